"""Curves of sweeps → one table each, with what follows from it. Drawn elsewhere, decided in the core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_llmspeed.metrics.load_curve import cells, findings, headers
from pytest_llmspeed.records.record import TestRecord

MOST_CURVES = 10
"""In a report of more curves than this the others are counted only, unless everything is asked for."""


@dataclass(frozen=True, slots=True)
class ShownCurve:
    """The table of one sweep: the test that made it, its cells, and a sentence on each finding."""

    nodeid: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    findings: tuple[str, ...]


def curves_of(records: Sequence[TestRecord]) -> list[ShownCurve]:
    """Return the curves of the tests, in their order."""
    return [
        ShownCurve(record.nodeid, headers(curve), tuple(cells(curve)), tuple(findings(curve)))
        for record in records
        for curve in record.measurement.curves
    ]
