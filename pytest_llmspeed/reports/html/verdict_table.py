"""Records → the verdicts of the page: how many of each, and a group of rows a test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_llmspeed.records.record import TestRecord
from pytest_llmspeed.regression.verdicts import Verdict
from pytest_llmspeed.reports.rows import OVER_BUDGET, rows, spoken, word_of
from pytest_llmspeed.text.harmless import harmless

FAILED = "failed"
OPEN = "open"
ICONS = {
    "failed": "✗",
    "invalid": "⊘",
    "slower": "▼",
    "suspect": "?",
    "inconclusive": "~",
    "incomparable": "≠",
    "no_baseline": "–",
    "faster": "▲",
    "passed": "✓",
    OPEN: "·",
}
"""A sign for each kind of verdict, so that no colour is needed to tell them apart."""
KINDS_OF_ROWS = {
    "slower, accepted": "passed",
    "accepted": "passed",
    "budget missed": FAILED,
    "budget kept": "passed",
    "failed": FAILED,
    "not measured": FAILED,
    "nothing measured": FAILED,
    **{verdict.value.replace("_", " "): verdict.value for verdict in Verdict},
}
"""How the last cell of a row starts → its kind; the first that fits counts."""


@dataclass(frozen=True, slots=True)
class ShownVerdict:
    """A verdict as the page shows it: its kind is a class of the style sheet."""

    kind: str
    icon: str
    word: str


@dataclass(frozen=True, slots=True)
class Chip:
    """How many tests have a verdict, and the place of the first of them."""

    finding: ShownVerdict
    count: int
    anchor: str


@dataclass(frozen=True, slots=True)
class Row:
    """What was found of one metric, budget or set of prompts: all cells but the first and the last."""

    cells: Sequence[str]
    finding: ShownVerdict


@dataclass(frozen=True, slots=True)
class Group:
    """The rows of one test."""

    anchor: str
    nodeid: str
    rows: Sequence[Row]
    is_calm: bool


def finding_of(record: TestRecord) -> ShownVerdict:
    """Return the verdict on a test; one that fails by anything but its speed has failed."""
    if record.problems and record.verdict not in (Verdict.INVALID, Verdict.SLOWER):
        return _shown(FAILED, FAILED)
    word = word_of(record)
    verdict = record.verdict.value if record.verdict else OPEN
    kinds = {"accepted": "passed", OVER_BUDGET: FAILED}
    return _shown(spoken(word), kinds.get(word, verdict))


def chips(records: Mapping[str, TestRecord]) -> Iterator[Chip]:
    """Yield how many of the tests, by their anchors, have each verdict."""
    found: dict[ShownVerdict, list[str]] = {}
    for anchor, record in records.items():
        found.setdefault(finding_of(record), []).append(anchor)
    for finding, anchors in found.items():
        yield Chip(finding, len(anchors), anchors[0])


def group(record: TestRecord, anchor: str) -> Group:
    """Return the rows of a test; it is calm if nothing in them asks for a look."""
    shown = [
        Row([harmless(cell) for cell in cells], _shown(harmless(word), _kind_of_row(word)))
        for _, *cells, word in rows(record, verbose=True)
    ]
    calm = not record.problems and all(row.finding.kind in ("passed", OPEN) for row in shown)
    return Group(anchor, harmless(record.nodeid), shown, calm)


def _kind_of_row(word: str) -> str:
    return next((kind for start, kind in KINDS_OF_ROWS.items() if word.startswith(start)), OPEN)


def _shown(word: str, kind: str) -> ShownVerdict:
    return ShownVerdict(kind, ICONS[kind], word)
