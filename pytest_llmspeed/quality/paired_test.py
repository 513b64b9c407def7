"""The same prompts before and after: the exact paired test on their scores, and what it can show.

McNemar's exact test. Of the prompts whose score changed, `worse` fell and `better` rose; if nothing
happened to the engine, each went either way like a coin. Of scores that are no plain right or wrong
this is the sign test. One-sided: only a fall counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import comb, exp, lgamma, log

from pytest_llmspeed.metrics.stats import binomial_tail

FAIL_P = 0.01
SUSPECT_P = 0.05
POWER = 0.8
SAME_SCORE = 1e-9


@dataclass(frozen=True, slots=True)
class Paired:
    """How many prompts have a score on both sides, how many of them fell and rose, and the p value."""

    prompts: int
    worse: int
    better: int

    @property
    def p(self) -> float:
        """The probability of so many falls among the changed, had nothing happened."""
        return mcnemar(self.worse, self.better)


def paired(scores: Iterable[tuple[float, float]]) -> Paired:
    """Return the comparison of pairs (before, now)."""
    changes = [now - before for before, now in scores]
    return Paired(
        prompts=len(changes),
        worse=sum(change < -SAME_SCORE for change in changes),
        better=sum(change > SAME_SCORE for change in changes),
    )


def mcnemar(worse: int, better: int) -> float:
    """Return P(X >= worse) for X binomial of the changed prompts with 1/2."""
    return binomial_tail(worse, worse + better, 0.5)


def power(prompts: int, loss: float, *, gain: float = 0.0, alpha: float = FAIL_P) -> float:
    """Return how likely so many prompts show a true loss at `alpha`.

    `loss` is the share of prompts whose answer turns bad, `gain` that of those that turn good.
    """
    moved = loss + gain
    if moved == 0:
        return 0.0
    return sum(
        _binomial(changed, prompts, moved) * binomial_tail(least, changed, loss / moved)
        for changed in range(prompts + 1)
        if (least := _least_worse(changed, alpha)) is not None
    )


def _least_worse(changed: int, alpha: float) -> int | None:
    """Return how many of the changed prompts must be worse for significance; None if even all are too few."""
    tail, least = 0, None
    for worse in range(changed, -1, -1):
        tail += comb(changed, worse)
        if tail > alpha * 2**changed:
            break
        least = worse
    return least


def _binomial(hits: int, trials: int, share: float) -> float:
    """P(X = hits) for X binomial."""
    if share >= 1:
        return float(hits == trials)
    ways = lgamma(trials + 1) - lgamma(hits + 1) - lgamma(trials - hits + 1)
    return exp(ways + hits * log(share) + (trials - hits) * log(1 - share))


def prompts_needed(loss: float) -> int:
    """Return the fewest prompts that show a true loss in 80 of 100 cases."""
    low, high = 1, 1
    while power(high, loss) < POWER:
        low, high = high, 2 * high
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if power(middle, loss) >= POWER else (middle + 1, high)
    return high


def visible_loss(prompts: int) -> float | None:
    """Return the smallest loss, in whole percents, that so many prompts show in 80 of 100 cases.

    None where not even the loss of all of them would be shown.
    """
    shown = (percent / 100 for percent in range(1, 101))
    return next((loss for loss in shown if power(prompts, loss) >= POWER), None)


def more_often(now: tuple[int, int], before: tuple[int, int]) -> float:
    """Return Fisher's exact one-sided p value of (hits, trials) being more frequent now than before."""
    hits, trials = now[0] + before[0], now[1] + before[1]
    ways = sum(
        comb(now[1], seen) * comb(before[1], hits - seen)
        for seen in range(now[0], min(hits, now[1]) + 1)
        if hits - seen <= before[1]
    )
    return ways / comb(trials, hits) if trials else 1.0
