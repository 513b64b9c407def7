"""What the tests of a run say together: the prior they teach, and a shift that they share.

Tests of one session share its machine, so M tests with K sessions tell K - 1 things about how far
sessions differ, not M (K - 1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log, sqrt
from statistics import fmean, median
from typing import TypeVar

from pytest_llmspeed.metrics.stats import t_quantile, t_tail, variance
from pytest_llmspeed.regression.session_test import (
    ALONE_SD,
    DEFAULT_PRIOR,
    LEAST_REQUESTS,
    LEAST_SHIFT,
    LOW,
    Prior,
    compare,
    logs_of,
    spread_of_sessions,
)
from pytest_llmspeed.regression.verdicts import Comparison, Verdict

LEAST_TESTS = 6
TEACHERS = 200
Test = TypeVar("Test")


def teachers(tests: Sequence[Test]) -> Sequence[Test]:
    """Return 200 of the tests, evenly picked, or all: more teach a prior hardly more, and take their time."""
    return tests[:: max(1, len(tests) // TEACHERS)]


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
    """One comparison of a test: session id → stored values, and the new values. Larger is worse.

    A test with several strata has one such comparison for each, under the same `name`.
    """

    name: str
    baseline: Mapping[str, Sequence[float]]
    new: Sequence[float]


@dataclass(frozen=True, slots=True)
class CommonShift:
    """How far the whole suite moved: a ratio with its 95 % interval, over `sessions` stored ones.

    `by_session` is the shift of each stored session from the mean of all, in logs; `new` that of
    the new one. `prior` is how far sessions of a test differ once the shifts are taken out.
    """

    verdict: Verdict
    ratio: float
    ci: tuple[float, float]
    p: float
    tests: int
    sessions: int
    by_session: Mapping[str, float]
    new: float
    prior: Prior = DEFAULT_PRIOR


def common_shift(comparisons: Sequence[SuiteTest], *, spans_a_day: bool = True) -> CommonShift | None:
    """Return the shift that the tests of a run share; None of fewer than six, or without sessions.

    G_k is the median over tests of l_tk - mean_k l_tk, l the 10 % quantile of the logs (of a test
    with several strata their median); the new one is held against the stored ones by the t rule,
    once. As for single tests, the spread is not taken to be smaller than the prior's until the
    sessions span a day.
    """
    shifts: dict[str, list[_Shifts]] = {}
    for comparison in comparisons:
        if comparison.baseline and len(comparison.new) >= LEAST_REQUESTS:
            shifts.setdefault(comparison.name, []).append(_shifts(comparison))
    if len(shifts) < LEAST_TESTS:
        return None
    tests = [_middle(strata) for strata in shifts.values()]
    whole = _middle(tests)
    shift = _judged(whole.new, whole.stored, len(tests), spans_a_day=spans_a_day)
    if not spans_a_day:
        return shift
    return replace(shift, prior=learned_prior([_beside(test, shift) for test in teachers(comparisons)]))


@dataclass(frozen=True, slots=True)
class _Shifts:
    """The new shift, and that of each stored session, from the mean of the stored ones."""

    new: float
    stored: Mapping[str, float]


def _shifts(comparison: SuiteTest) -> _Shifts:
    new, *places = _places(comparison, LOW.quantile)
    centre = fmean(places)
    stored = {session: place - centre for session, place in zip(comparison.baseline, places, strict=True)}
    return _Shifts(new - centre, stored)


def _places(comparison: SuiteTest, quantile: float) -> list[float]:
    """A quantile of the logs of the new values, and of each stored session."""
    return logs_of([comparison.new, *comparison.baseline.values()], 1.0).quantiles(quantile)


def _middle(several: Sequence[_Shifts]) -> _Shifts:
    """Their medians, of the new shift and of each session."""
    if len(several) == 1:
        return several[0]
    by_session: dict[str, list[float]] = {}
    for each in several:
        for session, shift in each.stored.items():
            by_session.setdefault(session, []).append(shift)
    stored = {session: median(shifts) for session, shifts in sorted(by_session.items())}
    return _Shifts(median([each.new for each in several]), stored)


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


def slower_beside(
    test: SuiteTest, shift: CommonShift, *, comparisons: int = 1, spans_a_day: bool = True
) -> Comparison | None:
    """Return the verdict on a test with the shift of the suite taken out, None if it is not slower.

    `comparisons` is M, as for the test alone.
    """
    if not _moved_beside(test, shift):
        return None
    new = [value / exp(shift.new) for value in test.new]
    found = compare(
        _beside(test, shift), new, comparisons=comparisons, spans_a_day=spans_a_day, prior=shift.prior
    )
    return found if found.verdict is Verdict.SLOWER else None


def _beside(test: SuiteTest, shift: CommonShift) -> list[list[float]]:
    """The stored sessions of a test with the shift of the suite taken out."""
    return [
        [value / exp(shift.by_session.get(session, 0.0)) for value in values]
        for session, values in test.baseline.items()
    ]


def _moved_beside(test: SuiteTest, shift: CommonShift) -> bool:
    """Return False if the median moved so little beside the suite that no comparison would be slower."""
    new, *places = _places(test, 0.5)
    stored = [
        place - shift.by_session.get(session, 0.0)
        for session, place in zip(test.baseline, places, strict=True)
    ]
    return new - shift.new - fmean(stored) >= LEAST_SHIFT / 2
