"""What the tests of a run say together: the prior they teach, and a shift that they share.

Tests of one session share its machine, so M tests with K sessions tell K - 1 things about how far
sessions differ, not M (K - 1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import fmean, median

from pytest_llmspeed.core.decision import (
    ALONE_SD,
    DEFAULT_PRIOR,
    LEAST_REQUESTS,
    LEAST_SHIFT,
    LOW,
    Prior,
    spread_of_sessions,
    to_logs,
)
from pytest_llmspeed.core.stats import quantile_rank, t_quantile, t_tail, value_at, variance
from pytest_llmspeed.core.verdicts import Verdict

LEAST_TESTS = 6


def learned_prior(tests: Sequence[Sequence[Sequence[float]]]) -> Prior:
    """Return the prior that the stored sessions of an environment teach for one metric.

    `tests` holds for each test its sessions, each a sequence of values. With B the mean excess of
    the spread between sessions over what sampling explains, and kappa the mean of K - 1:

        B = max(0, mean[(K - 1)(s2 - v)]/kappa)
        sd² = max(B, (4·0.03² + kappa·B)/(4 + kappa)),  weight = 4 + kappa

    Fewer than six tests with two sessions teach nothing.
    """
    usable = [[s for s in sessions if len(s) >= LEAST_REQUESTS] for sessions in tests]
    usable = [sessions for sessions in usable if len(sessions) >= 2]
    if len(usable) < LEAST_TESTS:
        return DEFAULT_PRIOR
    spreads = [(len(sessions) - 1, *spread_of_sessions(sessions)) for sessions in usable]
    kappa = fmean(freedom for freedom, _, _ in spreads)
    between = max(0.0, fmean(freedom * (s2 - v) for freedom, s2, v in spreads) / kappa)
    weight = DEFAULT_PRIOR.weight
    shrunk = (weight * DEFAULT_PRIOR.sd**2 + kappa * between) / (weight + kappa)
    return Prior(sd=sqrt(max(between, shrunk)), weight=weight + kappa)


@dataclass(frozen=True, slots=True)
class SuiteTest:
    """One comparison of a run: session id → stored values, and the new values. Larger is worse."""

    baseline: Mapping[str, Sequence[float]]
    new: Sequence[float]


@dataclass(frozen=True, slots=True)
class CommonShift:
    """How far the whole suite moved: a ratio with its 95 % interval, over `sessions` stored ones.

    `by_session` is the shift of each stored session from the mean of all, in logs; `new` that of
    the new one.
    """

    verdict: Verdict
    ratio: float
    ci: tuple[float, float]
    p: float
    tests: int
    sessions: int
    by_session: Mapping[str, float]
    new: float


def common_shift(tests: Sequence[SuiteTest], *, spans_a_day: bool = True) -> CommonShift | None:
    """Return the shift that the tests of a run share; None of fewer than six, or without sessions.

    G_k is the median over tests of l_tk - mean_k l_tk, l the 10 % quantile of the logs; the new one
    is held against the stored ones by the t rule, once. As for single tests, the spread is not taken
    to be smaller than the prior's until the sessions span a day.
    """
    usable = [test for test in tests if test.baseline and len(test.new) >= LEAST_REQUESTS]
    if len(usable) < LEAST_TESTS:
        return None
    shifts = [_shifts(test) for test in usable]
    new = median(own for own, _ in shifts)
    by_session = {
        session: median(found[session] for _, found in shifts if session in found)
        for session in sorted({session for _, found in shifts for session in found})
    }
    return _judged(new, by_session, len(usable), spans_a_day=spans_a_day)


def _shifts(test: SuiteTest) -> tuple[float, dict[str, float]]:
    """A test's new shift, and that of each stored session, from the mean of its stored ones."""
    places = {session: _place(values) for session, values in test.baseline.items()}
    centre = fmean(places.values())
    return _place(test.new) - centre, {session: place - centre for session, place in places.items()}


def _place(values: Sequence[float]) -> float:
    """The low quantile of the logs; of no more of them than it lies between."""
    rank = quantile_rank(LOW.quantile, len(values))
    return value_at(to_logs(sorted(values)[: int(rank) + 1], 1.0), rank)


def _judged(new: float, by_session: Mapping[str, float], tests: int, *, spans_a_day: bool) -> CommonShift:
    stored = list(by_session.values())
    k, weight = len(stored), DEFAULT_PRIOR.weight
    d, nu = new - fmean(stored), weight + k - 1
    spread = variance(stored) if k > 1 else 0.0
    least = 0.0 if spans_a_day else (DEFAULT_PRIOR.sd if k > 1 else ALONE_SD) ** 2
    t2 = max((weight * DEFAULT_PRIOR.sd**2 + (k - 1) * spread) / nu, least)
    se = sqrt(t2 * (1 + 1 / k))
    half = t_quantile(0.975, nu) * se
    p = t_tail(d / se, nu)
    if d >= LEAST_SHIFT and p <= LOW.alpha:
        verdict = Verdict.SLOWER
    elif d <= -LEAST_SHIFT and t_tail(-d / se, nu) <= LOW.alpha:
        verdict = Verdict.FASTER
    else:
        verdict = Verdict.PASSED if d + half < log(1.2) else Verdict.INCONCLUSIVE
    return CommonShift(
        verdict=verdict,
        ratio=exp(d),
        ci=(exp(d - half), exp(d + half)),
        p=p,
        tests=tests,
        sessions=k,
        by_session=by_session,
        new=new,
    )


def may_be_slower_beside(test: SuiteTest, shift: CommonShift) -> bool:
    """Return False if the median moved so little beside the suite that no comparison would be slower."""
    stored = fmean(
        log(median(values)) - shift.by_session.get(session, 0.0) for session, values in test.baseline.items()
    )
    return log(median(test.new)) - shift.new - stored >= LEAST_SHIFT / 2


def without_common_shift(test: SuiteTest, shift: CommonShift) -> tuple[list[list[float]], list[float]]:
    """Return a test's stored sessions and its new values with the suite's own shift taken out."""
    baseline = [
        [value / exp(shift.by_session.get(session, 0.0)) for value in values]
        for session, values in test.baseline.items()
    ]
    return baseline, [value / exp(shift.new) for value in test.new]
