"""Spells: how often requests turn slow. It sees a slowdown that most requests are spared.

A request is slow if its ln value lies above its own session's 10% quantile by more than
max(ln 1.25, 3 · the mean distance of the stored medians from there). A *spell* is a run of slow requests:
one disturbance of the machine is one spell, however many requests it hits. The number of spells is held
against those of the stored sessions by a beta-binomial distribution; the correlation within a session is
estimated from them, and drawn to 0.02 with the weight of four sessions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from statistics import fmean
from typing import TYPE_CHECKING

from pytest_llmspeed.metrics.stats import quantile_median_unbiased, variance

if TYPE_CHECKING:
    from numpy import bool_
    from numpy.typing import NDArray

    from pytest_llmspeed.metrics.stats import Floats

    Flags = NDArray[bool_]

SLOW, SPREADS = log(1.25), 3.0
USUAL_CORRELATION, WEIGHT = 0.02, 4.0


@dataclass(frozen=True, slots=True)
class Spells:
    """The spells of a session: how many, by how much their share of the requests rose, and its p value."""

    count: int
    rise: float
    p: float


def spells(stored: Sequence[Floats], new: Floats) -> Spells:
    """Return the spells of a new session against stored ones; values are logs in the order measured."""
    lows = [_low(session) for session in stored]
    halves = [
        quantile_median_unbiased(sorted(session.tolist()), 0.5) - low
        for session, low in zip(stored, lows, strict=True)
    ]
    edge = max(SLOW, SPREADS * fmean(halves))
    counts = [_count(session - low > edge) for session, low in zip(stored, lows, strict=True)]
    sizes = [len(session) for session in stored]
    count = _count(new - _low(new) > edge)
    share, pairs = _beta(counts, sizes)
    return Spells(count, count / len(new) - share, _tail(count, len(new), share, pairs))


def _low(session: Floats) -> float:
    return quantile_median_unbiased(sorted(session.tolist()), 0.1)


def _count(slow: Flags) -> int:
    """The number of runs of slow requests."""
    return int(slow[0]) + int((slow[1:] & ~slow[:-1]).sum())


def _beta(counts: Sequence[int], sizes: Sequence[int]) -> tuple[float, float]:
    """The mean share of spells, and the weight of the beta distribution of a new session's own share."""
    k, total = len(counts), sum(sizes)
    share, size = (sum(counts) + 0.5) / (total + 1), total / k
    own = 0.0
    if k > 1:
        shares = [count / n for count, n in zip(counts, sizes, strict=True)]
        own = (variance(shares) / (share * (1 - share)) - 1 / size) / (1 - 1 / size)
    correlation = (WEIGHT * USUAL_CORRELATION + (k - 1) * own) / (WEIGHT + k - 1)
    correlation = min(max(correlation, 0.0), 0.95)
    return share, 1 / min(correlation * (1 + 1 / k) + 1 / total, 0.98) - 1


def _tail(count: int, n: int, share: float, weight: float) -> float:
    """The probability of so many spells or more."""
    from scipy.stats import betabinom

    return float(betabinom.sf(count - 1, n, share * weight, (1 - share) * weight))
