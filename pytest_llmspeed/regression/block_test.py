"""Old against new in blocks of whole runs, each block one run of either side: the rule on blocks.

A run has a mood of its own (its process, its engine's memory layout, the machine in that minute), so
a block is the unit of replication. With x = ln(value), signed so that larger is worse, a block's
d = l_new - l_old at the locations of the session rule, the 10% quantile and the median:

    D   = mean of the d's of B blocks
    t2  = max([4 (2 s0² + v) + (B - 1) s2]/nu, v),  nu = 4 + B - 1,  SE² = t2/B,  p = P(T_nu > D/SE)

s0 is the prior spread of runs (0.03 at the quantile, 0.10 at the median), s2 the variance of the d's,
and v their sampling variance (Woodruff). The flag is a Mann-Whitney test on all requests, those of
each block about their common middle. A rule that looks after every block has stricter limits: see
`looks`. `benchmarks/old_against_new.py` shows false alarms and power.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, isfinite, log, sqrt
from statistics import fmean

from pytest_llmspeed.metrics.reasons import Explanation, Reason
from pytest_llmspeed.metrics.stats import Samples, mann_whitney, t_quantile, variance
from pytest_llmspeed.regression.looks import ONLY_LOOK, Look
from pytest_llmspeed.regression.session_test import (
    FAMILY_P,
    FLAG_P,
    LEAST_REQUESTS,
    LOW,
    MID,
    Location,
    Shift,
    inflation_of,
    logs_of,
    woodruff,
)
from pytest_llmspeed.regression.verdicts import Comparison, Verdict

LEAST_BLOCKS = 2
LEAST_SHIFT = log(1.03)
PASSES_BELOW = log(1.10)

Block = tuple[Sequence[float], Sequence[float]]
"""The values of the old side's run and of the new side's, in the order measured."""


def compare_blocks(
    blocks: Sequence[Block],
    *,
    larger_is_worse: bool = True,
    comparisons: int = 1,
    look: Look = ONLY_LOOK,
) -> Comparison:
    """Return the verdict on blocks of runs; those with fewer than five values on a side are left out.

    `comparisons` is M, how many such comparisons are made. `look` says whether more blocks could follow.
    """
    sign = 1.0 if larger_is_worse else -1.0
    usable = [block for block in blocks if all(map(_is_usable, block))]
    if len(usable) < LEAST_BLOCKS:
        return Comparison(Verdict.INCONCLUSIVE, Reason.TOO_FEW_BLOCKS(), blocks=len(usable))
    return _Blocks(usable, sign, comparisons, look).comparison()


def _is_usable(values: Sequence[float]) -> bool:
    return len(values) >= LEAST_REQUESTS and isfinite(sum(values))


class _Blocks:
    """The figures of one comparison, each computed once."""

    def __init__(self, blocks: Sequence[Block], sign: float, comparisons: int, look: Look) -> None:
        self.sign, self.look, self.count = sign, look, len(blocks)
        self.many = 2 * comparisons
        self.old, self.new = (logs_of([block[side] for block in blocks], sign) for side in (0, 1))
        self.low, self.mid = self._shift(LOW), self._shift(MID)

    def _shift(self, location: Location) -> Shift:
        old, new = (side.quantiles(location.quantile) for side in (self.old, self.new))
        shifts = [after - before for before, after in zip(old, new, strict=True)]
        v = sum(_sampling_variance(side, location) for side in (self.old, self.new))
        weight, nu = location.prior_weight, location.prior_weight + self.count - 1
        prior = 2 * location.prior_sd**2 + v
        t2 = max((weight * prior + (self.count - 1) * variance(shifts)) / nu, v)
        return Shift(location, fmean(old), fmean(shifts), sqrt(t2 / self.count), t2, 0.0, nu)

    def comparison(self) -> Comparison:
        """The verdict, with the location that speaks for it."""
        verdict, shown, reason = self._verdict()
        half = shown.half_width
        ends = sorted(exp(self.sign * end) for end in (shown.d - half, shown.d + half))
        alpha = min(shown.location.alpha, FAMILY_P / self.many)
        return Comparison(
            verdict=verdict,
            reason=reason,
            baseline=exp(self.sign * self.mid.baseline),
            now=exp(self.sign * (self.mid.baseline + self.mid.d)),
            at="the median" if shown is self.mid else f"the fastest {LOW.quantile:.0%}",
            at_baseline=exp(self.sign * shown.baseline),
            at_now=exp(self.sign * (shown.baseline + shown.d)),
            delta=exp(self.sign * shown.d),
            ci=(ends[0], ends[1]),
            p_samples=self._p_larger(self.new, self.old),
            p_session=shown.p_slower,
            visible=exp(max(t_quantile(1 - alpha, shown.nu) * shown.se, LEAST_SHIFT)),
            blocks=self.count,
        )

    def _verdict(self) -> tuple[Verdict, Shift, Explanation | None]:
        flagged = self.mid.d >= LEAST_SHIFT and self._p_larger(self.new, self.old) <= FLAG_P
        if flagged:
            for shift in (self.low, self.mid):
                if shift.d >= LEAST_SHIFT and self._is_significant(shift, shift.p_slower):
                    return Verdict.SLOWER, shift, None
        if self.mid.d <= -LEAST_SHIFT and self._p_larger(self.old, self.new) <= FLAG_P:
            for shift in (self.low, self.mid):
                if shift.d <= -LEAST_SHIFT and self._is_significant(shift, shift.p_faster):
                    return Verdict.FASTER, shift, None
        bound = self.low.d + t_quantile((1 + self.look.level) / 2, self.low.nu) * self.low.se
        if not flagged and max(bound, self.mid.d) < PASSES_BELOW:
            return Verdict.PASSED, self.low, None
        slowdown = exp(max(self.low.d + self.low.half_width, self.mid.d))
        return Verdict.INCONCLUSIVE, self.low, Reason.CANNOT_RULE_OUT(slowdown=slowdown)

    def _is_significant(self, shift: Shift, p: float) -> bool:
        return p <= shift.location.alpha * self.look.share and self.many * p <= FAMILY_P * self.look.share

    def _p_larger(self, first: Samples, second: Samples) -> float:
        """The p value of all requests of one side being slower, each block about its own middle."""
        import numpy as np

        middles = zip(first.quantiles(0.5), second.quantiles(0.5), strict=True)
        centres = [fmean(pair) for pair in middles]
        sides = (
            np.concatenate([run - centre for run, centre in zip(side.each, centres, strict=True)])
            for side in (first, second)
        )
        return mann_whitney(*sides).p


def _sampling_variance(side: Samples, location: Location) -> float:
    return woodruff(side, location.quantile, inflation_of(side), side.mean_size)
