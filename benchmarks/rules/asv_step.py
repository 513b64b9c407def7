"""asv's step from one commit to the next. Slower if the median grew by more than 10 % and the samples differ.

What `asv continuous` and `asv compare` do by default (airspeed velocity: the commands `compare` and
`continuous`, and `is_different` in its module `statistics`, in newer releases `_stats`), written anew:

- the new median is more than `factor` = 1.1 times the old one, and
- a two-sided Mann-Whitney test on the samples gives p < 0.002, by the normal limit without corrections
  where a sample has more than 20 values, else exact; if so few samples could never give such a p, the
  99 % intervals of the two medians (order statistics) must not overlap.

asv has one set of samples of the old commit: here all stored requests, or all old values of interleaved
pairs. Left out: of samples too few for the order statistics asv makes an interval from a Laplace
posterior; here they count as not different. Ties: asv breaks them to the least significant p, here they
count half. Reads and prints what `line_protocol` says.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import chain
from math import comb, erfc, sqrt
from statistics import median

from line_protocol import answer_lines
from scipy.stats import binom, mannwhitneyu

FACTOR = 1.1
THRESHOLD_P = 0.002
EXACT_UP_TO = 20
COVERAGE = 0.99


def is_slower(sessions: Sequence[Sequence[float]], new: Sequence[float]) -> bool:
    """Whether the median grew by more than the factor, and significantly."""
    old = list(chain.from_iterable(sessions))
    return median(new) > FACTOR * median(old) and is_different(old, new)


def is_different(old: Sequence[float], new: Sequence[float]) -> bool:
    """Whether two samples differ; True is certain, False may be for lack of samples."""
    if 1 / comb(len(old) + len(new), min(len(old), len(new))) < THRESHOLD_P:
        return two_sided_p(old, new) < THRESHOLD_P
    ends = median_interval(old), median_interval(new)
    if ends[0] is None or ends[1] is None:
        return False
    (low_old, high_old), (low_new, high_new) = ends[0], ends[1]
    return high_old < low_new or high_new < low_old


def two_sided_p(old: Sequence[float], new: Sequence[float]) -> float:
    """The Mann-Whitney test; its normal limit is asv's, without corrections for ties and continuity."""
    n, m = len(old), len(new)
    if max(n, m) <= EXACT_UP_TO:
        return float(mannwhitneyu(new, old, method="exact").pvalue)
    ordered = sorted(old)
    u = sum(bisect_left(ordered, x) + bisect_right(ordered, x) for x in new) / 2
    z = abs(u - n * m / 2) / sqrt(n * m * (n + m + 1) / 12)
    return erfc(z / sqrt(2))


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The order statistics that hold the median with at least 99 %; None if no two do."""
    ordered, n = sorted(values), len(values)
    cut = int(binom.ppf((1 - COVERAGE) / 2, n, 0.5))
    return (ordered[cut - 1], ordered[n - cut]) if cut else None


if __name__ == "__main__":
    answer_lines(is_slower)
