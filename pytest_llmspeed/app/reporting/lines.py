"""The closing section of the terminal: records → lines. Drawn here, decided elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_llmspeed.app.reporting.rows import HEADERS, Row, counts, rows, sentences
from pytest_llmspeed.core.record import SuiteVerdict, TestRecord


def closing_section(
    records: Sequence[TestRecord],
    *,
    verbose: bool,
    suite: SuiteVerdict | None = None,
    stored: Sequence[Path] = (),
    problems: Sequence[str] = (),
) -> Iterator[str]:
    """Yield the lines of the closing section: a table, advice, counts. None where nothing was used.

    A row for what is not passed, with `verbose` for everything.
    """
    if not records and not problems:
        return
    shown = [row for record in records for row in rows(record, verbose=verbose)]
    if shown:
        from tabulate import tabulate

        table = tabulate(_named_once(shown), HEADERS, tablefmt="simple", disable_numparse=True)
        yield from table.splitlines()
        yield ""
    for nodeids, sentence in sentences(records, suite):
        yield f"{_named(nodeids)}{sentence}"
    yield from problems
    yield counts(records)
    for path in stored:
        yield f"baseline stored: {path}"


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
    return f"{nodeids[0] if len(nodeids) == 1 else f'{len(nodeids)} tests'}: "
