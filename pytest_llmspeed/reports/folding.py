"""Reports of thousands of tests stay readable: like advice becomes one sentence, long lists are cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from pytest_llmspeed.messages.folded import Kind, kind_of, of_several
from pytest_llmspeed.metrics.reasons import Explanation
from pytest_llmspeed.records.record import TestRecord
from pytest_llmspeed.regression.verdicts import Comparison

FOLDED_FROM = 3
"""Fewer tests that are undecided for one reason each keep a sentence with their own figures."""
TERMINAL_LINES = 50
MARKDOWN_LINES = 1000
"""GitHub refuses a step summary above 1 MiB."""

Item = TypeVar("Item")


def advice_of(records: Sequence[TestRecord]) -> list[tuple[str, list[str]]]:
    """Return node id and advice of each test; what is undecided for one reason is worded alike."""
    alike: dict[Kind, list[Comparison]] = {}
    for record in records:
        for advice in record.advice:
            if kind := kind_of(advice):
                alike.setdefault(kind, []).append(advice.figures["comparison"])
    folded = {
        kind: of_several(kind, comparisons)
        for kind, comparisons in alike.items()
        if len(comparisons) >= FOLDED_FROM
    }

    def worded(advice: Explanation) -> str:
        kind = kind_of(advice)
        return folded[kind] if kind in folded else str(advice)

    return [(record.nodeid, list(map(worded, record.advice))) for record in records]


def cut(items: Sequence[Item], most: int | None, *, kept: Sequence[bool] = ()) -> tuple[list[Item], int]:
    """Return at most so many items (None: all) in their order, and how many are left out.

    Those `kept`, flagged one by one, are never left out.
    """
    if most is None or len(items) <= most:
        return list(items), 0
    flags = list(kept) or [False] * len(items)
    room = max(0, most - sum(flags))
    shown = []
    for item, is_kept in zip(items, flags, strict=True):
        if is_kept or room > 0:
            shown.append(item)
            room -= not is_kept
    return shown, len(items) - len(shown)
