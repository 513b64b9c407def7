"""The session rule: whether this session is slower than the stored ones.

Requests of one run share the mood of its machine, so a plain Mann-Whitney test on requests calls
identical code slower in 10 to 40 % of runs. Here the session is the unit of replication: the
Mann-Whitney test is necessary (`flagged`), and a t test on sessions, with a prior on how far
sessions differ, decides. It is made at two locations of the log samples, the 10 % quantile (foreign
load only ever slows, so it is steady) and the median (a slowdown can spare some requests). With
x = ln(value), signed so that larger is worse, K sessions, l the location and m the median of x:

    D    = l_new - mean l_k
    v(n) = mean_k [(Q_k(q + h) - Q_k(q - h))/2]²,  h = sqrt(q(1 - q) min(I/n, 1))      (Woodruff)
    t2   = max([d0 (s0² + v) + (K - 1) s2]/nu, v),  nu = d0 + K - 1,  s2 = variance of the l_k
    SE²  = t2 (1 + 1/K) + max(0, v(n_new) - v(n)),  p = P(T_nu > D/SE)

I = (1 + r)/(1 - r) corrects for the lag-1 autocorrelation r of the requests.
`benchmarks/decision_adapter.py` lets anyone hold these functions against simulated noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, isfinite, log, sqrt
from operator import sub
from statistics import fmean
from typing import TYPE_CHECKING

from pytest_llmspeed.metrics.reasons import Explanation, Reason
from pytest_llmspeed.metrics.stats import (
    Samples,
    autocorrelation_products,
    binomial_tail,
    mann_whitney,
    quantile_median_unbiased,
    t_quantile,
    t_tail,
    variance,
)
from pytest_llmspeed.regression.verdicts import Comparison, Verdict

if TYPE_CHECKING:
    from pytest_llmspeed.metrics.stats import Floats

LEAST_REQUESTS = 5
WINDOW = 10
"""Sessions of a level that count."""
LEAST_SHIFT = log(1.05)
FLAG_P = 0.01
FAMILY_P = 0.05
SUSPECT_P = 0.05
LEAST_PENDING = 2
"""The number of suspect sessions just before a flagged one that count as evidence: three in a row."""
MOOD_OF_A_DAY = 0.5
"""Assumed correlation between the moods of sessions of one day: less than a day apart they repeat less."""
TAIL_FACTOR, TAIL_QUANTILE, TAIL_P = 1.10, 0.95, 0.02
ALONE_SD = 0.045
"""The least prior sd against a single stored session: nothing has shown yet how steady the machine is."""
STEADY_SD = 0.015
VALUE_FLOOR = 1e-3
"""Values below this (a microsecond, of times in ms) count as this: a clock shows no less."""


@dataclass(frozen=True, slots=True)
class Location:
    """Where in a sample the sessions are compared.

    `prior_sd` is the assumed spread between sessions, worth `prior_weight` degrees of freedom;
    `alpha` the p value needed; `passes_below` the largest slowdown that `passed` may leave open.
    """

    quantile: float
    prior_sd: float
    alpha: float
    passes_below: float
    prior_weight: float = 4.0

    def with_prior(self, prior: Prior) -> Location:
        """The same location with a prior learned from other tests."""
        return replace(self, prior_sd=prior.sd, prior_weight=prior.weight)


@dataclass(frozen=True, slots=True)
class Prior:
    """How far sessions of a test differ, before its own are seen: an sd of logs, worth `weight` of them."""

    sd: float = 0.03
    weight: float = 4.0


LOW = Location(quantile=0.1, prior_sd=0.03, alpha=0.005, passes_below=log(1.20))
DEFAULT_PRIOR = Prior()
MID = Location(quantile=0.5, prior_sd=0.10, alpha=0.002, passes_below=log(1.10))


@dataclass(frozen=True, slots=True)
class Shift:
    """The new session against the stored ones at one location, in logs, larger is worse."""

    location: Location
    baseline: float
    d: float
    se: float
    t2: float
    extra: float
    nu: float

    @property
    def p_slower(self) -> float:
        """P value of being slower."""
        return t_tail(self.d / self.se, self.nu)

    @property
    def p_faster(self) -> float:
        """P value of being faster."""
        return t_tail(-self.d / self.se, self.nu)

    @property
    def half_width(self) -> float:
        """Half of the 95 % interval of d."""
        return t_quantile(0.975, self.nu) * self.se


def compare(
    baseline: Sequence[Sequence[float]],
    new: Sequence[float],
    *,
    larger_is_worse: bool = True,
    comparisons: int = 1,
    spans_a_day: bool = True,
    prior: Prior = DEFAULT_PRIOR,
    pending: Sequence[Sequence[float]] = (),
    pending_span_a_day: bool = False,
) -> Comparison:
    """Return the verdict on a new session against the stored sessions of its level.

    `baseline` holds one sequence of values a session, oldest first, values in the order measured;
    sessions of fewer than five values, or with one that is not a number, are left out and the last ten
    count. `comparisons` is M, how
    many such comparisons the gate makes. Unless the sessions span a day (`spans_a_day`), their
    spread is not taken to be smaller than the prior's: what has not been seen yet is not known to
    be small. `prior` is that of the low location, learned where there are tests enough.

    `pending` are the suspect sessions just before the new one. If there are two or more, and that is
    flagged too, they are judged together with it; `pending_span_a_day` says that a day or more lies
    between the first of them and the new one.
    """
    sessions = [values for values in baseline if _is_usable(values)][-WINDOW:]
    new = new if isfinite(sum(new)) else [value for value in new if isfinite(value)]
    if not baseline:
        return Comparison(Verdict.NO_BASELINE, Reason.NO_SESSION())
    if len(new) < LEAST_REQUESTS or not sessions:
        return _too_few(len(new), len(sessions))
    sign = 1.0 if larger_is_worse else -1.0
    case = _Case(
        logs_of(sessions, sign),
        to_logs(new, sign),
        sign=sign,
        comparisons=comparisons,
        low=LOW.with_prior(prior),
        spans_a_day=spans_a_day,
        pending=[to_logs(values, sign) for values in pending if _is_usable(values)],
        same_mood=0.0 if pending_span_a_day else MOOD_OF_A_DAY,
    )
    return case.comparison()


def _is_usable(values: Sequence[float]) -> bool:
    """True if a stored session has requests enough, and nothing but numbers."""
    return len(values) >= LEAST_REQUESTS and isfinite(sum(values))


class _Case:
    """The figures of one comparison, each computed once."""

    def __init__(
        self,
        sessions: Samples,
        new: Floats,
        *,
        sign: float,
        comparisons: int,
        low: Location,
        spans_a_day: bool,
        pending: Sequence[Floats] = (),
        same_mood: float = 0.0,
    ) -> None:
        self.pending, self.same_mood = pending, same_mood
        self.sessions, self.new, self.sign = sessions, new, sign
        self.comparisons = comparisons
        self.pooled = sessions.pooled()
        inflation = inflation_of(sessions)
        self.low = self._shift(low, inflation, spans_a_day)
        self.mid = self._shift(MID, inflation, spans_a_day)
        self.p_greater = mann_whitney(new, self.pooled).p

    def _shift(self, location: Location, inflation: float, spans_a_day: bool) -> Shift:
        k, n = self.sessions.count, self.sessions.mean_size
        places = self.sessions.quantiles(location.quantile)
        v = woodruff(self.sessions, location.quantile, inflation, n)
        same_size = len(self.new) == n
        v_new = v if same_size else woodruff(self.sessions, location.quantile, inflation, len(self.new))
        sd = location.prior_sd if k > 1 else max(location.prior_sd, ALONE_SD)
        prior, weight = sd**2 + v, location.prior_weight
        spread = variance(places) if k > 1 else 0.0
        nu = weight + k - 1
        t2 = max((weight * prior + (k - 1) * spread) / nu, v if spans_a_day else prior)
        extra = max(0.0, v_new - v)
        base = fmean(places)
        d = quantile_median_unbiased(sorted(self.new.tolist()), location.quantile) - base
        return Shift(location, base, d, sqrt(t2 * (1 + 1 / k) + extra), t2, extra, nu)

    def comparison(self) -> Comparison:
        """The verdict, with the medians and the location that speaks for it."""
        verdict, shown, reason = self._verdict()
        low, high = shown.d - shown.half_width, shown.d + shown.half_width
        ends = sorted((exp(self.sign * low), exp(self.sign * high)))
        alpha = min(shown.location.alpha, FAMILY_P / (2 * self.comparisons))
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
            p_samples=self.p_greater,
            p_session=shown.p_slower,
            visible=max(exp(t_quantile(1 - alpha, shown.nu) * shown.se), exp(LEAST_SHIFT)),
            more_sessions=tuple((slow, self._more_sessions(slow)) for slow in (1.2, 1.1)),
            sessions=self.sessions.count,
        )

    def _verdict(self) -> tuple[Verdict, Shift, Explanation | None]:
        flagged = self.p_greater <= FLAG_P and self.mid.d >= LEAST_SHIFT
        if flagged:
            for shift in (self.low, self.mid):
                if shift.d >= LEAST_SHIFT and self._significant(shift, shift.p_slower):
                    return Verdict.SLOWER, shift, None
            if len(self.pending) >= LEAST_PENDING and (together := self._slower_together()):
                return Verdict.SLOWER, together, Reason.WITH_EARLIER_SUSPECTS(suspects=len(self.pending))
            for shift in (self.low, self.mid):
                if shift.d >= LEAST_SHIFT and shift.p_slower <= SUSPECT_P:
                    return Verdict.SUSPECT, shift, Reason.COULD_BE_CHANCE()
        if faster := self._faster():
            return Verdict.FASTER, faster, None
        if flagged:
            return Verdict.INCONCLUSIVE, self.low, Reason.SESSIONS_DIFFER()
        return self._passed_or_open()

    def _slower_together(self) -> Shift | None:
        """The mean shift of the new session and the suspects before it, if that is beyond chance."""
        for shift in (self.low, self.mid):
            together = self._together(shift)
            grown = min(shift.d, together.d) >= LEAST_SHIFT
            if grown and self._significant(together, together.p_slower):
                return together
        return None

    def _together(self, shift: Shift) -> Shift:
        q = shift.location.quantile
        before = [
            quantile_median_unbiased(sorted(logs.tolist()), q) - shift.baseline for logs in self.pending
        ]
        m = 1 + len(before)
        share = (1 + (m - 1) * self.same_mood) / m
        variance_of_mean = shift.t2 * (share + 1 / self.sessions.count) + shift.extra / m
        return replace(shift, d=fmean([shift.d, *before]), se=sqrt(variance_of_mean))

    def _faster(self) -> Shift | None:
        """The mirror of slower: the location that shows a speed-up, if one does."""
        if self.mid.d > -LEAST_SHIFT or mann_whitney(self.pooled, self.new).p > FLAG_P:
            return None
        shifts = (self.low, self.mid)
        return next((s for s in shifts if s.d <= -LEAST_SHIFT and self._significant(s, s.p_faster)), None)

    def _significant(self, shift: Shift, p: float) -> bool:
        return p <= shift.location.alpha and 2 * self.comparisons * p <= FAMILY_P

    def _passed_or_open(self) -> tuple[Verdict, Shift, Explanation | None]:
        open_low = self.low.d + self.low.half_width
        if not open_low < LOW.passes_below:  # so that what is not a number does not pass
            return (
                Verdict.INCONCLUSIVE,
                self.low,
                Reason.CANNOT_RULE_OUT(slowdown=exp(open_low) if isfinite(open_low) else None),
            )
        if not self.mid.d < MID.passes_below:
            return Verdict.INCONCLUSIVE, self.mid, Reason.ONLY_THE_MEDIAN_MOVED(slowdown=exp(self.mid.d))
        slow = self._slow_requests()
        if binomial_tail(slow, len(self.new), 1 - TAIL_QUANTILE) <= TAIL_P:
            return Verdict.INCONCLUSIVE, self.low, Reason.TAIL_GREW(slow=slow, total=len(self.new))
        return Verdict.PASSED, self.low, None

    def _slow_requests(self) -> int:
        """New samples beyond 1.10 times the pooled baseline's 95 % quantile."""
        edge = quantile_median_unbiased(self.pooled, TAIL_QUANTILE) + log(TAIL_FACTOR)
        return int((self.new > edge).sum())

    def _more_sessions(self, slowdown: float) -> int | None:
        """Return how many further sessions would show a slowdown; None if the window is too short."""
        shift, k = self.low, self.sessions.count
        alpha = min(shift.location.alpha, FAMILY_P / (2 * self.comparisons))
        for sessions in range(k, WINDOW + 1):
            nu = shift.location.prior_weight + sessions - 1
            se = sqrt(shift.t2 * (1 + 1 / sessions) + shift.extra)
            if exp(t_quantile(1 - alpha, nu) * se) <= slowdown:
                return sessions - k
        return None


def woodruff(samples: Samples, q: float, inflation: float, n: float) -> float:
    """Return the variance of the q quantile of n such values, averaged over sessions (Woodruff).

    It is the squared half-distance of two quantiles, one standard error of a share below and above q.
    """
    h = sqrt(q * (1 - q) * min(inflation / n, 1.0))
    above, below = min(q + h, 1.0), max(q - h, 0.0)
    spacings = map(sub, samples.quantiles(above), samples.quantiles(below))
    return fmean([spacing * spacing for spacing in spacings]) / 4


def spread_of_sessions(baseline: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return s2 and v at the low location: the variance between sessions, and what sampling makes of it."""
    logs = logs_of(baseline, 1.0)
    v = woodruff(logs, LOW.quantile, inflation_of(logs), logs.mean_size)
    return variance(logs.quantiles(LOW.quantile)), v


def is_steady(values: Sequence[float]) -> bool:
    """Return whether a sample's 10 % quantile is known to 1.5 %, so that more requests add little.

    It looks at the spread only, never at a difference, so stopping by it costs no false alarms.
    """
    logs = logs_of([values], 1.0)
    return woodruff(logs, LOW.quantile, inflation_of(logs), len(values)) <= STEADY_SD**2


def inflation_of(samples: Samples, prior: float = 0.3) -> float:
    """Return I = (1 + r)/(1 - r), r pooled over the sessions and drawn to a prior worth 20 pairs."""
    products = [autocorrelation_products(series) for series in samples.measured]
    squares = sum(square for _, square in products)
    r = sum(product for product, _ in products) / squares if squares else 0.0
    n, pairs = samples.mean_size, samples.size - samples.count
    r = (pairs * (r + (1 + 4 * r) / n) + 20 * prior) / (pairs + 20)
    r = min(max(r, 0.0), 0.8)
    return (1 + r) / (1 - r)


def logs_of(sessions: Sequence[Sequence[float]], sign: float) -> Samples:
    """Return the logs of the values of some sessions, signed so that larger is worse."""
    return Samples.of(sessions, lambda values: to_logs(values, sign))


def to_logs(values: Sequence[float] | Floats, sign: float) -> Floats:
    """Return the logs of some values, signed so that larger is worse."""
    import numpy as np

    return sign * np.log(np.maximum(values, VALUE_FLOOR))


def _too_few(new: int, sessions: int) -> Comparison:
    if new < LEAST_REQUESTS:
        reason = Reason.TOO_FEW_REQUESTS(requests=new, least=LEAST_REQUESTS)
    else:
        reason = Reason.NO_FULL_SESSION(least=LEAST_REQUESTS)
    return Comparison(Verdict.INCONCLUSIVE, reason, sessions=sessions)
