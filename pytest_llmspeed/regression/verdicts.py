"""The words of a judgement, and the one table of what fails a test and what may be stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isclose

from pytest_llmspeed.metrics.reasons import Explanation
from pytest_llmspeed.metrics.sample import metric_of

ROUNDING = 0.005
"""Figures are shown to three digits."""


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

    `baseline` and `now` are the metric's own figures, the same as everywhere else: the median of the
    requests, or what the load as a whole showed. The comparison itself is made at the location `at`
    ("the fastest 10%"), from `at_baseline` to `at_now`: `delta` is their ratio, `ci` its 95% interval.
    `part` names the series among several of one test. `visible` is the smallest slowdown (a factor)
    that would be called slower. `more_sessions` maps a slowdown (1.2) to how many further
    stored sessions would show it, None where no number up to the window would. `sessions` is K; of old
    against new it is 0, and `blocks` says how many blocks decided.
    """

    verdict: Verdict
    reason: Explanation | None = None
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
    blocks: int = 0
    crept: bool = False
    """True if it is slower than the level's first sessions, not than its last ones."""
    part: str = ""
    at: str = ""
    at_baseline: float | None = None
    at_now: float | None = None
    prompt_tokens: tuple[float, float] | None = None
    """The usual prompt tokens of the stored sessions and those of now, if they differ by much."""

    @property
    def follows_a_shorter_prompt(self) -> bool:
        """True if it is faster while the prompt shrank: that is not taken for a new norm by itself."""
        before, now = self.prompt_tokens or (0.0, 0.0)
        return self.verdict is Verdict.FASTER and now < before

    @property
    def at_another_location(self) -> bool:
        """True if it was not the shown figures themselves that were compared."""
        pairs = ((self.baseline, self.at_baseline), (self.now, self.at_now))
        return self.at_now is not None and not all(_same(shown, compared) for shown, compared in pairs)


def _same(one: float | None, other: float | None) -> bool:
    """True of figures that read the same: a median may be interpolated between values, or their logs."""
    return one is not None and other is not None and isclose(one, other, rel_tol=ROUNDING)


def severity(found: Comparison) -> tuple[int, float]:
    """Return what comparisons are ordered by, the worst largest: gravity, then change for the worse."""
    order = list(Verdict)
    gravity = len(order) - order.index(found.verdict)
    if found.delta is None:
        return gravity, 0.0
    return gravity, found.delta if metric_of(found.metric).better == "lower" else 1 / found.delta


def worst_of_each_metric(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparison that speaks for each metric: the worst of its strata."""
    metrics = dict.fromkeys(comparison.metric for comparison in comparisons)
    return [max((f for f in comparisons if f.metric == metric), key=severity) for metric in metrics]
