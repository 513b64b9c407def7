"""Change points: where a series of sessions moved from one level to another.

A maximally selected rank statistic: of all ways to cut a series in two, with at least three sessions on
either side, the one with the largest standardised Mann-Whitney statistic

    z_k = (R_k - k (n + 1)/2) / sqrt(k (n - k) (n + 1)/12)        (R_k: the sum of the first k ranks)

is a change point if its p value is at most 0.01 and the medians differ by 5% or more; then both parts are
searched likewise (binary segmentation). The p value is that of the largest |z| among permutations, which
depends on n alone. Sessions that resemble their neighbours (a machine that drifts) raise more false alarms:
`benchmarks/change_points.py` shows how many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import log
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_llmspeed.metrics.stats import Floats

LEAST_SIDE = 3
"""Sessions on either side of a change point: the newest two and their change are not history yet."""
ALPHA = 0.01
LEAST_STEP = log(1.05)
PERMUTATIONS = 4000


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """A series has another level from `place` on: medians `before` and `after`, of the parts around it."""

    place: int
    before: float
    after: float
    p: float


def change_points(values: Sequence[float]) -> list[ChangePoint]:
    """Return the change points of a series of positive values, oldest first."""
    import numpy as np

    if len(values) < 2 * LEAST_SIDE:
        return []
    logs = np.log(np.asarray(values, dtype=float))
    places = sorted(_places(logs, 0, len(logs)))
    bounds = [0, *(place for place, _ in places), len(values)]
    levels = [median(values[first:last]) for first, last in pairwise(bounds)]
    return [
        ChangePoint(place, levels[number], levels[number + 1], p) for number, (place, p) in enumerate(places)
    ]


def _places(logs: Floats, first: int, last: int) -> list[tuple[int, float]]:
    """The change points of a part, each with its p value."""
    import numpy as np

    n = last - first
    if n < 2 * LEAST_SIDE:
        return []
    part = logs[first:last]
    z = np.abs(_statistics(_ranks(part)))
    cut = LEAST_SIDE + int(z.argmax())
    p = float((1 + np.count_nonzero(_largest_by_chance(n) >= z.max() - 1e-12)) / (1 + PERMUTATIONS))
    step = abs(float(np.median(part[:cut]) - np.median(part[cut:])))
    if p > ALPHA or step < LEAST_STEP:
        return []
    place = first + cut
    return [*_places(logs, first, place), (place, p), *_places(logs, place, last)]


def _ranks(values: Floats) -> Floats:
    from scipy.stats import rankdata

    ranks: Floats = rankdata(values)
    return ranks


def _statistics(ranks: Floats) -> Floats:
    """z_k for each permitted k, along the last axis."""
    import numpy as np

    n = ranks.shape[-1]
    k = np.arange(LEAST_SIDE, n - LEAST_SIDE + 1)
    sums = np.cumsum(ranks, axis=-1)[..., k - 1]
    z: Floats = (sums - k * (n + 1) / 2) / np.sqrt(k * (n - k) * (n + 1) / 12)
    return z


@lru_cache(maxsize=256)
def _largest_by_chance(n: int) -> Floats:
    """The largest |z| of each of many permutations of n ranks: the same ones each time."""
    import numpy as np

    rng = np.random.default_rng(n)
    ranks = np.tile(np.arange(1.0, n + 1), (PERMUTATIONS, 1))
    largest: Floats = np.abs(_statistics(rng.permuted(ranks, axis=1))).max(axis=1)
    return largest
