"""The closing section of the terminal: records → lines. Drawn here, decided elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pytest_llmspeed.records.record import SuiteVerdict, TestRecord
from pytest_llmspeed.reports import side_by_side
from pytest_llmspeed.reports.curves import MOST_CURVES, ShownCurve, curves_of
from pytest_llmspeed.reports.engines_compared import SideBySide
from pytest_llmspeed.reports.folding import TERMINAL_LINES, cut
from pytest_llmspeed.reports.rows import (
    HEADERS,
    AddressedSentence,
    Row,
    counts,
    left_out,
    of_suite,
    rows_of_all,
    sentences,
)


def closing_section(
    records: Sequence[TestRecord],
    *,
    verbose: bool,
    suite: SuiteVerdict | None = None,
    stored: Sequence[Path] = (),
    problems: Sequence[str] = (),
    headers: Sequence[str] = HEADERS,
) -> Iterator[str]:
    """Yield the lines of the closing section: a table, advice, counts, engines side by side.

    A row for what is not passed, with `verbose` for everything. Without it, long lists are cut, though
    never the rows of tests that fail. No line where nothing was used. `headers` are those of the table.
    """
    if not records and not problems:
        return
    most = None if verbose else TERMINAL_LINES
    shown, more = rows_of_all(records, verbose=verbose, most=most)
    if shown:
        yield from _table(_named_once(shown), headers)
        yield from _left_out(more, "row")
        yield ""
    advice, left = cut(list(sentences(records, fold=not verbose)), most)
    yield from _sentences(advice)
    yield from _left_out(left, "sentence")
    yield from _sentences(of_suite(suite))
    yield from problems
    yield counts(records)
    for path in stored:
        yield f"baseline stored: {path}"
    yield from _side_by_side(side_by_side.compared(records, verbose=verbose))
    curves, others = cut(curves_of(records), None if verbose else MOST_CURVES)
    for curve in curves:
        yield from _curve(curve)
    yield from _left_out(others, "curve")


def _left_out(number: int, thing: str) -> Iterator[str]:
    if number:
        yield left_out(number, thing, "-v or --llmspeed-json")


def _sentences(addressed: Iterable[AddressedSentence]) -> Iterator[str]:
    for nodeids, sentence in addressed:
        yield f"{_named(nodeids)}{sentence}"


def _curve(curve: ShownCurve) -> Iterator[str]:
    yield ""
    yield f"{curve.nodeid}: sweep by {curve.headers[0]} (times in ms)"
    yield from _table(curve.rows, curve.headers)
    yield from curve.findings


def _side_by_side(found: Sequence[SideBySide]) -> Iterator[str]:
    if not found:
        return
    yield ""
    yield from _table(side_by_side.rows(found), side_by_side.HEADERS)
    yield from _sentences(side_by_side.sentences(found))


def _table(shown: Iterable[Sequence[str]], headers: Sequence[str]) -> list[str]:
    from tabulate import tabulate

    return str(tabulate(shown, headers, tablefmt="simple", disable_numparse=True)).splitlines()


def _named_once(shown: Sequence[Row]) -> Iterator[Row]:
    """The rows with each test named in its first one only."""
    before = None
    for row in shown:
        yield ("", *row[1:]) if row[0] == before else row
        before = row[0]


def _named(nodeids: Sequence[str]) -> str:
    """The test, or the number of tests, that a sentence is for; nothing of the whole run."""
    if not nodeids:
        return ""
    return f"{nodeids[0] if len(nodeids) == 1 else f'{len(nodeids):,} tests'}: "
