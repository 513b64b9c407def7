"""Engines side by side → rows of one table and the sentences below it. Drawn here, decided in the core."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_llmspeed.messages.figures import quantity
from pytest_llmspeed.records.record import TestRecord
from pytest_llmspeed.reports.engines_compared import FIGURES, EngineFigures, SideBySide, side_by_side
from pytest_llmspeed.reports.rows import DASH, AddressedSentence, once

HEADERS = ("test", "engine", "TTFT", "TPOT", "throughput", "memory", "start")
FEW_TESTS = 3
"""Above this number of tests, only their combined figures are shown unless all rows are requested."""

Cells = tuple[str, ...]


def compared(records: Sequence[TestRecord], *, verbose: bool) -> list[SideBySide]:
    """Return what is shown of the tests that ran on several engines."""
    found = side_by_side(records)
    tests = [each for each in found if each.tests == 1]
    together = [each for each in found if each.tests > 1]
    gathered = sum(each.tests for each in together)
    return found if verbose or len(tests) <= FEW_TESTS or gathered < len(tests) else together


def rows(found: Sequence[SideBySide]) -> Iterator[Cells]:
    """Yield a row for each engine of each test; of `HEADERS` the first engine has the plain figures."""
    for test in found:
        for place, engine in enumerate(test.engines):
            name = "" if place else _name(test)
            yield (name, engine.engine, *(_cell(engine, figure, first=not place) for figure in FIGURES))


def sentences(found: Sequence[SideBySide]) -> Iterator[AddressedSentence]:
    """Yield what was not the same work on all engines, each sentence once with its tests."""
    yield from once([(_name(test), test.unlike) for test in found])


def _name(test: SideBySide) -> str:
    return f"{test.test}, {test.load}" if test.load and test.tests == 1 else test.test


def _cell(engine: EngineFigures, figure: str, *, first: bool) -> str:
    value, ratio = engine.values.get(figure), engine.ratios.get(figure)
    times = f"{ratio:.3g}×" if ratio is not None else ""
    if value is None:
        return times or DASH
    shown = quantity(value, figure)
    return shown if first or not times else f"{shown} ({times})"
