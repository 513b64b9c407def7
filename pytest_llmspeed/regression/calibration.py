"""Sessions of unchanged code → how often the gate would be wrong on this machine, and what it sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, sqrt
from statistics import median, stdev

from pytest_llmspeed.metrics.stats import t_quantile
from pytest_llmspeed.regression.session_test import (
    FAMILY_P,
    LEAST_REQUESTS,
    LEAST_SHIFT,
    LOW,
    WINDOW,
    compare,
    spread_of_sessions,
    to_logs,
)
from pytest_llmspeed.regression.verdicts import Verdict

LEAST_SESSIONS = 3


@dataclass(frozen=True, slots=True)
class Calibration:
    """What sessions of unchanged code say of one metric of one test.

    `verdicts` holds that of each session against all others, None of a session with too few
    requests. `low_sd` and `mid_sd` are the spread between sessions: the sd of the logs of their
    10% quantile and of their median. `visible` is the smallest slowdown (a factor) that would be
    called slower with so many stored sessions, `visible_at_most` with as many as count.
    `sessions_to_halve` is how many would halve it, None where no number up to the window would.
    """

    verdicts: tuple[Verdict | None, ...]
    middle: float
    low_sd: float
    mid_sd: float
    visible: float
    visible_at_most: float
    sessions_to_halve: int | None

    @property
    def false_alarms(self) -> int:
        """The number of sessions of the same code that would have failed."""
        return sum(verdict is Verdict.SLOWER for verdict in self.verdicts)

    @property
    def judged(self) -> int:
        """The number of sessions that could be judged."""
        return sum(verdict is not None for verdict in self.verdicts)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of the share of false alarms."""
        return wilson(self.false_alarms, self.judged)


def calibrate(
    sessions: Sequence[Sequence[float]], *, larger_is_worse: bool = True, comparisons: int = 1
) -> Calibration | None:
    """Return what some sessions of one metric say; None of fewer than three with requests enough.

    `sessions` holds one sequence of values a session, in the order run; `comparisons` is M.
    """
    usable = [values for values in sessions if len(values) >= LEAST_REQUESTS]
    if len(usable) < LEAST_SESSIONS:
        return None
    verdicts = tuple(
        compare(
            _others(sessions, place),
            sessions[place],
            larger_is_worse=larger_is_worse,
            comparisons=comparisons,
            spans_a_day=False,
        ).verdict
        if len(sessions[place]) >= LEAST_REQUESTS
        else None
        for place in range(len(sessions))
    )
    sight = _Sight.of(usable[-WINDOW:], 1.0 if larger_is_worse else -1.0, comparisons)
    middles = [float(median(values)) for values in usable]
    return Calibration(
        verdicts=verdicts,
        middle=median(middles),
        low_sd=sight.low_sd,
        mid_sd=stdev(to_logs(middles, 1.0).tolist()),
        visible=sight.visible(sight.sessions),
        visible_at_most=sight.visible(WINDOW),
        sessions_to_halve=sight.sessions_to_halve(),
    )


def _others(sessions: Sequence[Sequence[float]], place: int) -> list[Sequence[float]]:
    return [*sessions[:place], *sessions[place + 1 :]]


@dataclass(frozen=True, slots=True)
class _Sight:
    """What the session rule sees at its low location, were there more sessions like these."""

    sessions: int
    low_sd: float
    t2: float
    alpha: float

    @classmethod
    def of(cls, sessions: Sequence[Sequence[float]], sign: float, comparisons: int) -> _Sight:
        k, weight = len(sessions), LOW.prior_weight
        s2, v = spread_of_sessions([[value**sign for value in values] for values in sessions])
        prior = LOW.prior_sd**2 + v
        t2 = max((weight * prior + (k - 1) * s2) / (weight + k - 1), prior)
        return cls(k, sqrt(s2), t2, min(LOW.alpha, FAMILY_P / (2 * comparisons)))

    def visible(self, sessions: int) -> float:
        """The smallest slowdown that would be called slower with so many stored sessions."""
        reach = t_quantile(1 - self.alpha, LOW.prior_weight + sessions - 1)
        return max(exp(reach * sqrt(self.t2 * (1 + 1 / sessions))), exp(LEAST_SHIFT))

    def sessions_to_halve(self) -> int | None:
        half = (self.visible(self.sessions) - 1) / 2
        more = range(self.sessions + 1, WINDOW + 1)
        return next((k for k in more if self.visible(k) - 1 <= half), None)


def wilson(hits: int, trials: int) -> tuple[float, float]:
    """Return the 95% interval of a share (Wilson 1927)."""
    z = 1.959964
    centre, spread = hits + z * z / 2, z * sqrt(hits * (trials - hits) / trials + z * z / 4)
    low, high = (centre - spread) / (trials + z * z), (centre + spread) / (trials + z * z)
    return max(low, 0.0), min(high, 1.0)
