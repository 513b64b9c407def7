"""One load of a sweep, held against the budgets of its test."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_llmspeed.metrics.budget_checks import check
from pytest_llmspeed.metrics.budgets import Budget
from pytest_llmspeed.metrics.load_curve import Point
from pytest_llmspeed.metrics.load_result import LoadResult
from pytest_llmspeed.metrics.measurement import Measurement


def point_of(level: float, load: LoadResult, budgets: Sequence[Budget]) -> Point:
    """Return a load as a point of a curve, held against the budgets."""
    whole = Measurement(load.samples, loads=(load,))
    checks = [check(budget, whole) for budget in budgets]
    missed = [found.name for found in checks if found.kept is False]
    if load.failures and not any(budget.metric.name == "error_rate" for budget in budgets):
        missed.append("error_rate")
    return Point(level, load, tuple(missed))
