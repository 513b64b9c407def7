"""Undecided comparisons of many tests → one sentence for each kind, with the ranges of their figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pytest_llmspeed.messages import busy
from pytest_llmspeed.messages.speed import (
    NOT_BY_SESSIONS,
    RUN_AGAIN,
    UPDATE,
    inconclusive,
    sessions_are_in_vain,
    sessions_to_store,
    size,
)
from pytest_llmspeed.regression.verdicts import Comparison, Verdict


class Kind(NamedTuple):
    """What undecided comparisons share if one sentence can speak for them.

    `step` says what would settle them; `detail` is the slowdown that more sessions would show, or the
    reason that nothing could be compared for.
    """

    step: str
    detail: str = ""


def kind_of(found: Comparison, sentence: str) -> Kind | None:
    """Return the kind of a comparison that `sentence` is the advice on; None if that stands for itself."""
    if found.verdict is not Verdict.INCONCLUSIVE or found.prompt_tokens is not None:
        return None
    for again in (False, True):
        if sentence == busy.busy(found, again=again):
            return Kind("quiet", "again" if again else "")
    if sentence != inconclusive(found):
        return None
    if found.visible is None:
        return Kind("reason", found.reason)
    if step := sessions_to_store(found):
        return Kind("store", size(step[0]))
    return Kind("in vain" if sessions_are_in_vain(found) else "run again")


def of_several(kind: Kind, found: Sequence[Comparison]) -> str:
    """Return the sentence on comparisons of one kind."""
    if kind.step == "quiet":
        return busy.busy_tests(again=bool(kind.detail))
    if kind.step == "reason":
        return f"undecided: {kind.detail}"
    hidden = _range([(each.visible or 1.0) - 1 for each in found], "{:.0%}")
    said = f"undecided so far; a slowdown under {hidden} would not show"
    steps = [step for each in found if (step := sessions_to_store(each))]
    if kind.step == "store":
        most = max(more for _, more in steps)
        sessions = f"{_range([more for _, more in steps], '{}')} more session{'' if most == 1 else 's'}"
        return f"{said}; {sessions} would show {kind.detail}: pytest {UPDATE}"
    return f"{said}; {NOT_BY_SESSIONS if kind.step == 'in vain' else RUN_AGAIN}"


def _range(values: Sequence[float], style: str) -> str:
    """The least and the largest value, once if they read the same: "4 to 6"."""
    low, high = style.format(min(values)), style.format(max(values))
    return low if low == high else f"{low} to {high}"
