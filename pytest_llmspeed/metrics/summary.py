"""Statistics of one metric's values.

Quantiles interpolate linearly. One asked of too few samples is refused with the number that it
needs: p90 wants 10, p95 20, p99 100.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, fsum

from pytest_llmspeed.errors import TooFewSamplesError


def needed_samples(q: float) -> int:
    """Return how many samples the q quantile needs, so that at least one lies beyond it."""
    beyond = min(q, 1 - q)
    return ceil(round(1 / beyond, 9)) if q != 0.5 else 1


def quantile(values: Sequence[float], q: float) -> float:
    """Return the q quantile by linear interpolation (Hyndman and Fan's type 7).

    Raises `TooFewSamplesError` where there are fewer values than `needed_samples(q)`.
    """
    needed = needed_samples(q)
    if len(values) < needed:
        raise TooFewSamplesError(q, len(values), needed)
    ordered = sorted(values)
    position = q * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


@dataclass(frozen=True, slots=True)
class Summary:
    """Statistics of one metric in its unit. A quantile that wants more samples is None."""

    n: int
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    mean: float
    min: float
    max: float


def spelled_out(summary: Summary) -> str:
    """Return the quantiles that are known, as in "p50 112  p90 130"."""
    quantiles = (("p50", summary.p50), ("p90", summary.p90), ("p95", summary.p95), ("p99", summary.p99))
    return "  ".join(f"{name} {value:.4g}" for name, value in quantiles if value is not None)


def summarise(values: Sequence[float]) -> Summary:
    """Return the statistics of one or more values."""
    return Summary(
        n=len(values),
        p50=quantile(values, 0.5),
        p90=_quantile_or_none(values, 0.90),
        p95=_quantile_or_none(values, 0.95),
        p99=_quantile_or_none(values, 0.99),
        mean=fsum(values) / len(values),
        min=min(values),
        max=max(values),
    )


def _quantile_or_none(values: Sequence[float], q: float) -> float | None:
    try:
        return quantile(values, q)
    except TooFewSamplesError:
        return None
