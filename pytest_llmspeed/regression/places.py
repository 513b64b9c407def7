"""Where in a session it is compared: the core of its requests, as an alternative to their 10% quantile.

The *core* is the mean of the order statistics of ranks 10 to 60%. Where requests scatter, it is steadier
than a quantile; like the 10% quantile it leaves out the slowest, which other programs disturb most.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from pytest_llmspeed.regression.session_test import WINDOW

if TYPE_CHECKING:
    from pytest_llmspeed.metrics.stats import Floats

CORE = (0.10, 0.60)


def core(ordered: Floats) -> float:
    """Return the mean of the ranks from 10 to 60% of a sorted sample."""
    first, last = _ranks(len(ordered))
    return float(ordered[first:last].mean())


def core_variance(ordered: Sequence[Floats], inflation: float, n: float) -> float:
    """Return the sampling variance of the core of n such values, averaged over sorted sessions.

    It is the winsorised variance of the kept part over the square of its share (trimmed means).
    """
    kept = []
    for session in ordered:
        first, last = _ranks(len(session))
        kept.append(session.clip(session[first], session[last - 1]).var(ddof=1))
    return fmean(kept) / (CORE[1] - CORE[0]) ** 2 * min(inflation / n, 1.0)


def _ranks(n: int) -> tuple[int, int]:
    first = int(CORE[0] * n + 1e-9)
    return first, max(first + 1, round(CORE[1] * n))


def spread_within_windows(places: Sequence[float]) -> tuple[float, int]:
    """Return the variance of sessions about the mean of their window of ten, and its degrees of freedom.

    It is pooled over the windows. They are counted from the newest session back: long ago the machine may
    have been another one.
    """
    squares, degrees, stop = 0.0, 0, len(places)
    while stop > 0:
        part = places[max(0, stop - WINDOW) : stop]
        centre = fmean(part)
        squares += sum((place - centre) ** 2 for place in part)
        degrees += len(part) - 1
        stop -= WINDOW
    return (squares / degrees if degrees else 0.0), degrees
