"""Rank tests, quantiles and autocorrelation: the statistics that the verdicts rest on.

SciPy and NumPy load inside the functions that need them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, groupby
from math import erfc, sqrt
from statistics import fmean
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

    Floats = NDArray[float64]
    Change = Callable[[Floats], Floats]

EXACT_UP_TO = 40
"""Pooled size up to which the Mann-Whitney p value is exact; beyond it the normal limit is close."""


@dataclass(frozen=True, slots=True)
class RankTest:
    """A Mann-Whitney test: `u` counts the pairs in which the first sample is larger, ties half."""

    u: float
    p: float


def mann_whitney(first: Sequence[float] | Floats, second: Sequence[float] | Floats) -> RankTest:
    """Return the one-sided Mann-Whitney test of `first` being larger than `second`.

    Exact for small samples, by the permutation distribution of the midranks where there are ties;
    else the normal limit with corrections for ties and continuity.
    """
    size = len(first) + len(second)
    if size > EXACT_UP_TO:
        return _normal_limit(first, second)
    if len(set(first) | set(second)) < size:
        return _exact_with_ties(first, second)
    from scipy.stats import mannwhitneyu

    found = mannwhitneyu(first, second, alternative="greater", method="exact")
    return RankTest(float(found.statistic), float(found.pvalue))


def _normal_limit(first: Sequence[float] | Floats, second: Sequence[float] | Floats) -> RankTest:
    """The normal limit of U, its variance less what ties take off it.

    As SciPy's `mannwhitneyu(method="asymptotic")`, without the cost of its general machinery.
    """
    import numpy as np

    n, m = len(first), len(second)
    ordered = np.sort(second)
    u = float((ordered.searchsorted(first) + ordered.searchsorted(first, "right")).sum()) / 2
    ties = _ties(np.concatenate([first, ordered]))
    spread = n * m / 12 * (n + m + 1 - ties / ((n + m) * (n + m - 1)))
    if spread <= 0:
        return RankTest(u, 1.0)
    z = (u - n * m / 2 - 0.5) / sqrt(spread)
    return RankTest(u, erfc(z / sqrt(2)) / 2)


def _ties(values: Floats) -> int:
    """The sum of t³ - t over the values that occur t times."""
    import numpy as np

    ordered = np.sort(values)
    if not (ordered[1:] == ordered[:-1]).any():
        return 0
    _, counts = np.unique(ordered, return_counts=True)
    return int((counts**3 - counts).sum())


def _exact_with_ties(first: Sequence[float] | Floats, second: Sequence[float] | Floats) -> RankTest:
    """The permutation test on midranks, counted by the shift algorithm (Streitberg and Röhmel).

    Midranks are doubled to integers; `counts[k, s]` is how many subsets of k of them have sum s.
    """
    import numpy as np
    from scipy.stats import rankdata

    ranks = np.rint(2 * rankdata([*first, *second])).astype(int)
    n, total = len(first), int(ranks.sum())
    counts = np.zeros((n + 1, total + 1))
    counts[0, 0] = 1
    for rank in ranks:
        counts[1:, rank:] += counts[:-1, : total + 1 - rank]
    observed = int(ranks[:n].sum())
    p = counts[n, observed:].sum() / counts[n].sum()
    return RankTest(observed / 2 - n * (n + 1) / 2, float(p))


def quantile_median_unbiased(ordered: Sequence[float] | Floats, q: float) -> float:
    """Return the q quantile of a sorted sample, at rank q(n + 1/3) + 1/3 (Hyndman and Fan's type 8)."""
    return float(value_at(ordered, quantile_rank(q, len(ordered))))


def quantile_rank(q: float, n: int) -> float:
    """Return the rank, 1 to n and fractional, at which the q quantile of n values lies."""
    rank = q * (n + 1 / 3) + 1 / 3
    return 1.0 if rank < 1 else rank if rank < n else float(n)


def value_at(ordered: Any, rank: float) -> Any:
    """Return the value at a fractional rank of a sorted sample, or of each column of such, interpolated."""
    below = int(rank)
    low = ordered[below - 1]
    return low if below == rank else low + (rank - below) * (ordered[below] - low)


def variance(values: Sequence[float]) -> float:
    """Return the sample variance of two or more values (in floats: the library's goes by fractions)."""
    centre = fmean(values)
    return sum([(value - centre) ** 2 for value in values]) / (len(values) - 1)


class Samples:
    """Several samples, each in the order measured: neighbours of one size are the columns of one matrix.

    `count` is how many samples there are, `size` how many values in all.
    """

    def __init__(self, measured: Sequence[Floats]) -> None:
        import numpy as np

        self.measured = measured
        self.ordered = [np.sort(columns, axis=0) for columns in measured]
        self.count: int = sum(columns.shape[1] for columns in measured)
        self.size: int = sum(columns.size for columns in measured)

    @classmethod
    def of(cls, samples: Sequence[Sequence[float]], change: Change | None = None) -> Samples:
        """Return some samples, none of them empty, with a change (the logarithm) made to each value."""
        import numpy as np

        columns = [np.array([*alike], dtype=float).T for _, alike in groupby(samples, len)]
        return cls([change(column) for column in columns] if change else columns)

    @property
    def mean_size(self) -> float:
        """Values a sample."""
        return self.size / self.count

    @property
    def each(self) -> list[Floats]:
        """The samples one by one, each in the order measured."""
        return [column for columns in self.measured for column in columns.T]

    def pooled(self) -> Floats:
        """Return all values, sorted."""
        import numpy as np

        return np.sort(np.concatenate([columns.ravel(order="K") for columns in self.ordered]))

    def quantiles(self, q: float) -> list[float]:
        """Return the q quantile of each sample."""
        ranked = ((columns, quantile_rank(q, len(columns))) for columns in self.ordered)
        return list(chain.from_iterable(value_at(columns, rank).tolist() for columns, rank in ranked))


def autocorrelation_products(series: Floats) -> tuple[float, float]:
    """Return the lag-1 products and the squares about the median, summed: of a series, or of many as columns.

    Deviations beyond three robust standard deviations (1.4826 MAD) are pulled in to there, so that
    a single hiccup does not hide the correlation. The ratio of the two sums, pooled over series,
    is the lag-1 autocorrelation.
    """
    import numpy as np

    deviations = series - _median(np.sort(series, axis=0))
    bound = 3 * 1.4826 * _median(np.sort(np.abs(deviations), axis=0))
    deviations = np.minimum(np.maximum(deviations, -bound), bound)
    return float(np.vdot(deviations[1:], deviations[:-1])), float(np.vdot(deviations, deviations))


def _median(ordered: Any) -> Any:
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def binomial_tail(hits: int, trials: int, share: float) -> float:
    """Return P(X >= hits) for X binomial with `trials` and `share`."""
    from scipy.special import bdtrc

    return float(bdtrc(hits - 1, trials, share)) if hits > 0 else 1.0


def t_tail(value: float, degrees: float) -> float:
    """Return P(T > value) for Student's t with `degrees` of freedom."""
    from scipy.special import stdtr

    return float(stdtr(degrees, -value))


@lru_cache(maxsize=1024)  # a run asks for few of them, thousands of times
def t_quantile(p: float, degrees: float) -> float:
    """Return the p quantile of Student's t with `degrees` of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, p))


def signed_rank(differences: Sequence[float]) -> float:
    """Return the one-sided p value of Wilcoxon's signed-rank test that differences are positive.

    Exact for up to 50 differences without ties or zeros, else the normal limit. No difference at
    all gives 1.
    """
    from scipy.stats import wilcoxon

    if not any(differences):
        return 1.0
    return float(wilcoxon(differences, alternative="greater").pvalue)
