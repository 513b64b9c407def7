"""What a command gives back: lines for people, the same for machines, an exit code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MOST_NAMES = 8


@dataclass(frozen=True, slots=True)
class Result:
    """`lines` go to stdout, or `shown` as JSON instead; `warnings` to stderr either way."""

    lines: tuple[str, ...]
    shown: Mapping[str, Any]
    exit_code: int = 0
    warnings: tuple[str, ...] = ()


def table(rows: Iterable[Sequence[str]], headers: Sequence[str]) -> list[str]:
    """Return the lines of a table, as the closing section draws it."""
    from tabulate import tabulate

    drawn: str = tabulate([list(row) for row in rows], headers, tablefmt="simple", disable_numparse=True)
    return [line.rstrip() for line in drawn.splitlines()]


def named_once(rows: Iterable[Sequence[str]]) -> Iterator[Sequence[str]]:
    """Yield the rows with what their first cell names said once, where it stays the same."""
    before = None
    for row in rows:
        yield ("", *row[1:]) if row[0] == before else row
        before = row[0]


def listed(names: Sequence[str]) -> str:
    """Return names for one line: all of them if they are few, else the first and how many more."""
    shown = ", ".join(names[:MOST_NAMES])
    return shown if len(names) <= MOST_NAMES else f"{shown} and {len(names) - MOST_NAMES} more"


def counted(number: int, thing: str) -> str:
    """Return a number with its thing: "1 session", "2 sessions"."""
    return f"{number} {thing}{'' if number == 1 else 's'}"
