"""Rank tests, quantiles and autocorrelation: the statistics that the verdicts rest on.

SciPy loads inside the functions that need it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

EXACT_UP_TO = 40
"""Pooled size up to which the Mann-Whitney p value is exact; beyond it the normal limit is close."""


@dataclass(frozen=True, slots=True)
class RankTest:
    """A Mann-Whitney test: `u` counts the pairs in which the first sample is larger, ties half."""

    u: float
    p: float


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> RankTest:
    """Return the one-sided Mann-Whitney test of `first` being larger than `second`.

    Exact for small samples, by the permutation distribution of the midranks where there are ties;
    else the normal limit with corrections for ties and continuity.
    """
    from scipy.stats import mannwhitneyu

    small = len(first) + len(second) <= EXACT_UP_TO
    tied = len(set(first) | set(second)) < len(first) + len(second)
    if small and tied:
        return _exact_with_ties(np.asarray(first, float), np.asarray(second, float))
    method = "exact" if small else "asymptotic"
    found = mannwhitneyu(first, second, alternative="greater", method=method)
    p = float(found.pvalue)
    return RankTest(float(found.statistic), 1.0 if np.isnan(p) else p)


def _exact_with_ties(first: Array, second: Array) -> RankTest:
    """The permutation test on midranks, counted by the shift algorithm (Streitberg and Röhmel).

    Midranks are doubled to integers; `counts[k, s]` is how many subsets of k of them have sum s.
    """
    from scipy.stats import rankdata

    ranks = np.rint(2 * rankdata(np.concatenate([first, second]))).astype(int)
    n, total = len(first), int(ranks.sum())
    counts = np.zeros((n + 1, total + 1))
    counts[0, 0] = 1
    for rank in ranks:
        counts[1:, rank:] += counts[:-1, : total + 1 - rank]
    observed = int(ranks[:n].sum())
    p = counts[n, observed:].sum() / counts[n].sum()
    return RankTest(observed / 2 - n * (n + 1) / 2, float(p))


def quantile_median_unbiased(ordered: Array, q: float) -> float:
    """Return the q quantile of a sorted sample, at position q(n + 1/3) + 1/3 (Hyndman and Fan's type 8)."""
    n = len(ordered)
    position = min(max(q * (n + 1 / 3) + 1 / 3, 1.0), float(n))
    below = int(position)
    above = min(below + 1, n)
    low, high = float(ordered[below - 1]), float(ordered[above - 1])
    return low + (position - below) * (high - low)


def autocorrelation_products(values: Array) -> tuple[float, float]:
    """Return the lag-1 products and the squares of a series about its median, summed.

    Deviations beyond three robust standard deviations (1.4826 MAD) are pulled in to there, so that
    a single hiccup does not hide the correlation. The ratio of the two sums, pooled over series,
    is the lag-1 autocorrelation.
    """
    deviations = values - np.median(values)
    bound = 3 * 1.4826 * float(np.median(np.abs(deviations)))
    deviations = np.clip(deviations, -bound, bound)
    return float(deviations[1:] @ deviations[:-1]), float(deviations @ deviations)


def binomial_tail(hits: int, trials: int, share: float) -> float:
    """Return P(X >= hits) for X binomial with `trials` and `share`."""
    from scipy.special import bdtrc

    return float(bdtrc(hits - 1, trials, share)) if hits > 0 else 1.0


def t_tail(value: float, degrees: float) -> float:
    """Return P(T > value) for Student's t with `degrees` of freedom."""
    from scipy.special import stdtr

    return float(stdtr(degrees, -value))


def t_quantile(p: float, degrees: float) -> float:
    """Return the p quantile of Student's t with `degrees` of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, p))


def signed_rank(differences: Array) -> float:
    """Return the one-sided p value of Wilcoxon's signed-rank test that differences are positive.

    Exact for up to 50 differences without ties or zeros, else the normal limit. No difference at
    all gives 1.
    """
    from scipy.stats import wilcoxon

    if not np.any(differences):
        return 1.0
    return float(wilcoxon(differences, alternative="greater").pvalue)
