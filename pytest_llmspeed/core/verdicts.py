"""The words of a judgement, and the one table of what fails a test and what may be stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pytest_llmspeed.core.metrics import metric_of


class Verdict(StrEnum):
    """What a comparison, or a whole test, was found to be. From the gravest to the mildest."""

    INVALID = "invalid"
    SLOWER = "slower"
    SUSPECT = "suspect"
    INCONCLUSIVE = "inconclusive"
    INCOMPARABLE = "incomparable"
    NO_BASELINE = "no_baseline"
    FASTER = "faster"
    PASSED = "passed"


@dataclass(frozen=True, slots=True)
class Consequence:
    """What a verdict does: fail the test, and let its session be stored on an update."""

    fails: bool
    stored: bool
    fails_if_required: bool = False
    fails_if_strict: bool = False


CONSEQUENCES: dict[Verdict, Consequence] = {
    Verdict.INVALID: Consequence(fails=True, stored=False),
    Verdict.SLOWER: Consequence(fails=True, stored=False),
    Verdict.SUSPECT: Consequence(fails=False, stored=True, fails_if_strict=True),
    Verdict.INCONCLUSIVE: Consequence(fails=False, stored=True, fails_if_strict=True),
    Verdict.INCOMPARABLE: Consequence(fails=False, stored=True, fails_if_required=True),
    Verdict.NO_BASELINE: Consequence(fails=False, stored=True, fails_if_required=True),
    Verdict.FASTER: Consequence(fails=False, stored=True),
    Verdict.PASSED: Consequence(fails=False, stored=True),
}


def gravest(verdicts: list[Verdict]) -> Verdict | None:
    """Return the gravest of some verdicts, None of none."""
    order = list(Verdict)
    return min(verdicts, key=order.index, default=None)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One metric of one stratum against its baseline.

    `delta` is the ratio new/baseline of the metric itself, `ci` its 95% interval. `baseline` and
    `now` are the compared locations in the metric's unit. `visible` is the smallest slowdown (a
    factor) that would be called slower. `more_sessions` maps a slowdown (1.2) to how many further
    stored sessions would show it, None where no number up to the window would. `sessions` is K.
    """

    verdict: Verdict
    reason: str = ""
    metric: str = ""
    label: str | None = None
    stratum: str = ""
    baseline: float | None = None
    now: float | None = None
    delta: float | None = None
    ci: tuple[float, float] | None = None
    p_samples: float | None = None
    p_session: float | None = None
    visible: float | None = None
    more_sessions: tuple[tuple[float, int | None], ...] = ()
    sessions: int = 0
    crept: bool = False
    """True if it is slower than the level's first sessions, not than its last ones."""


@dataclass(frozen=True, slots=True)
class BudgetCheck:
    """One budget against what was measured.

    `observed` is None where nothing could be measured, `reason` then says why, and the budget is
    not kept. `kept` is None of a budget that was not checked in this run, for the `reason` given. `ci` is
    a 95% interval of the statistic; a bound that the samples cannot give is None.
    """

    name: str
    limit: float
    observed: float | None
    kept: bool | None
    ci: tuple[float | None, float | None] | None = None
    label: str | None = None
    reason: str = ""

    @property
    def close_call(self) -> bool:
        """True if the interval of the statistic contains the limit (unless that is a plain zero)."""
        if self.ci is None or self.observed is None or self.limit == 0:
            return False
        low, high = self.ci
        return (low is None or low <= self.limit) and (high is None or high >= self.limit)


def severity(found: Comparison) -> tuple[int, float]:
    """Return what comparisons are ordered by, the worst largest: gravity, then change for the worse."""
    order = list(Verdict)
    gravity = len(order) - order.index(found.verdict)
    if found.delta is None:
        return gravity, 0.0
    return gravity, found.delta if metric_of(found.metric).better == "lower" else 1 / found.delta


def worst_of_each_metric(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparison that speaks for each metric: the worst of its strata."""
    metrics = dict.fromkeys(found.metric for found in comparisons)
    return [max((f for f in comparisons if f.metric == metric), key=severity) for metric in metrics]
