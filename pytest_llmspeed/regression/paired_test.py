"""Old against new, measured side by side: the rule on interleaved pairs.

Both sides answer in turn (AB BA AB …) in several blocks, each of which starts both sides afresh, so
that the mood of the machine and the luck of a memory layout fall out. With d = ln new - ln old:

    D   = mean of the blocks' medians of d
    t2  = max([4 (0.03² + v) + (B - 1) s2]/nu, v),  nu = 4 + B - 1,  SE² = t2/B

where v is the sampling variance of a block's median (Woodruff, at the 50% quantile; the slow noise
of the machine is gone from differences of neighbours, so their autocorrelation is drawn to 0).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import exp, log, sqrt
from statistics import fmean, median

from pytest_llmspeed.metrics.reasons import Explanation, Reason
from pytest_llmspeed.metrics.stats import Samples, signed_rank, t_quantile, t_tail, variance
from pytest_llmspeed.regression.looks import ONLY_LOOK, Look
from pytest_llmspeed.regression.session_test import (
    DEFAULT_PRIOR,
    FAMILY_P,
    FLAG_P,
    LEAST_REQUESTS,
    inflation_of,
    woodruff,
)
from pytest_llmspeed.regression.verdicts import Comparison, Verdict

ALPHA = 0.005
LEAST_SHIFT = log(1.03)
PASSES_BELOW = log(1.10)

Pair = tuple[float, float]


def compare_pairs(
    blocks: Sequence[Sequence[Pair]],
    *,
    larger_is_worse: bool = True,
    comparisons: int = 1,
    look: Look = ONLY_LOOK,
) -> Comparison:
    """Return the verdict on blocks of (old, new) pairs; blocks of fewer than five pairs are left out.

    `look` says whether more blocks could follow.
    """
    sign = 1.0 if larger_is_worse else -1.0
    kept = [block for block in blocks if len(block) >= LEAST_REQUESTS]
    if len(kept) < 2:
        return Comparison(Verdict.INCONCLUSIVE, Reason.TOO_FEW_PAIRS(), blocks=len(kept))
    shifts = [[sign * log(new / old) for old, new in block] for block in kept]
    d, se, nu = _location(shifts)
    half, alpha = t_quantile(0.975, nu) * se, min(ALPHA, FAMILY_P / comparisons)
    p_pairs, p = signed_rank([*chain.from_iterable(shifts)]), _p_larger(d, se, nu)
    certain = alpha * look.share
    faster = d <= -LEAST_SHIFT and _p_larger(-d, se, nu) <= certain and _all_fell(shifts)
    bound = d + t_quantile((1 + look.level) / 2, nu) * se
    verdict, reason = _verdict(d, bound, p_pairs, p <= certain, faster)
    ends = sorted((exp(sign * (d - half)), exp(sign * (d + half))))
    return Comparison(
        verdict=verdict,
        reason=reason,
        delta=exp(sign * d),
        ci=(ends[0], ends[1]),
        p_samples=p_pairs,
        p_session=p,
        visible=max(exp(t_quantile(1 - alpha, nu) * se), exp(LEAST_SHIFT)),
        blocks=len(kept),
    )


def _location(shifts: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """D, its standard error, and the degrees of freedom."""
    places = [median(block) for block in shifts]
    count, weight = len(places), DEFAULT_PRIOR.weight
    samples = Samples.of(shifts)
    v = woodruff(samples, 0.5, inflation_of(samples, prior=0.0), samples.mean_size)
    nu = weight + count - 1
    t2 = max((weight * (DEFAULT_PRIOR.sd**2 + v) + (count - 1) * variance(places)) / nu, v)
    return fmean(places), sqrt(t2 / count), nu


def _p_larger(d: float, se: float, nu: float) -> float:
    return t_tail(d / se, nu) if se else float(d <= 0)


def _all_fell(shifts: Sequence[Sequence[float]]) -> bool:
    return signed_rank([-shift for shift in chain.from_iterable(shifts)]) <= FLAG_P


def _verdict(
    d: float, bound: float, p_pairs: float, certain: bool, faster: bool
) -> tuple[Verdict, Explanation | None]:
    flagged = p_pairs <= FLAG_P and d >= LEAST_SHIFT
    if flagged and certain:
        return Verdict.SLOWER, None
    if faster:
        return Verdict.FASTER, None
    if not flagged and bound < PASSES_BELOW:
        return Verdict.PASSED, None
    return Verdict.INCONCLUSIVE, Reason.CANNOT_RULE_OUT(slowdown=exp(bound))
