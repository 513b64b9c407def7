"""The second look: a test in the grey zone is measured once more in another job, and both decide together.

*Grey* is what one job can neither call slower for certain nor clear: p <= 0.10 and a shift of 3% or more,
at the 10% quantile and at the core; or more spells than usual, p <= 0.05. `slower` then needs both jobs
grey, and the mean D of both shifts

    SE² = t2 (c + 1/K) + extra,  p <= 0.003 and 2 M p <= 0.05

where c is 3/4 for jobs within a day of each other, whose machine may be in the same mood, and 1/2 for
others. Of the two places the one decides at which the stored sessions agree better; where that is the
core, p at the quantile has to be 0.02 or less. t2 is that of the session rule, its spread from up to
thirty stored sessions. Spells (from three sessions on that span a day) and the median have limits of
their own. Noise outside the model seldom strikes twice: `benchmarks/second_look.py` shows error rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp, log, sqrt
from statistics import fmean
from typing import TYPE_CHECKING

from pytest_llmspeed.metrics.reasons import Explanation, Reason
from pytest_llmspeed.metrics.stats import (
    mann_whitney,
    quantile_median_unbiased,
    t_quantile,
    t_tail,
)
from pytest_llmspeed.regression.places import core, core_variance, spread_within_windows
from pytest_llmspeed.regression.session_test import (
    ALONE_SD,
    DEFAULT_PRIOR,
    FAMILY_P,
    FLAG_P,
    LEAST_REQUESTS,
    LEAST_SHIFT,
    LOW,
    MID,
    WINDOW,
    Location,
    Prior,
    inflation_of,
    logs_of,
    to_logs,
    woodruff,
)
from pytest_llmspeed.regression.spells import Spells, spells
from pytest_llmspeed.regression.verdicts import Comparison, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_llmspeed.metrics.stats import Floats

HISTORY = 30
"""Stored sessions that say how far sessions lie apart; the last ten say where they lie."""
GREY_P, GREY_SHIFT, GREY_SPELLS_P = 0.10, log(1.03), 0.05
ALPHA, LOW_AGREES_P = 0.003, 0.02
SAME_DAY_SHARE, OTHER_DAY_SHARE = 0.75, 0.5
SPELLS_PRODUCT_P, MID_PRODUCT_P = 3e-4, 2e-4
LEAST_RISE, LEAST_SPELLS, LEAST_SESSIONS = 0.05, 3, 3


@dataclass(frozen=True, slots=True)
class Looks:
    """How a second look is made: M, the learned prior of the low place, and how the sessions lie in time."""

    comparisons: int = 1
    prior: Prior = DEFAULT_PRIOR
    spans_a_day: bool = True
    on_another_day: bool = False


@dataclass(frozen=True, slots=True)
class _ShiftsAtPlace:
    """One place: where the stored sessions lie, how far apart, and the shifts of the new sessions."""

    location: Location
    baseline: float
    shifts: Sequence[float]
    v: float
    s2: float
    degrees: int
    extra: float
    sessions: int
    spans_a_day: bool

    @property
    def nu(self) -> float:
        return self.location.prior_weight + self.degrees

    @property
    def looseness(self) -> float:
        """How far the stored sessions disagree here."""
        return 4 * self.v + self.degrees * self.s2

    @property
    def mean_shift(self) -> float:
        return fmean(self.shifts)

    def se(self, share: float = 1.0) -> float:
        """The standard error of a shift, or of the mean of several that share so much of their mood."""
        sd = self.location.prior_sd if self.sessions > 1 else max(self.location.prior_sd, ALONE_SD)
        prior, weight = sd**2 + self.v, self.location.prior_weight
        t2 = (weight * prior + self.degrees * self.s2) / (weight + self.degrees)
        t2 = max(t2, self.v if self.spans_a_day else prior)
        return sqrt(t2 * (share + 1 / self.sessions) + self.extra)

    def p(self, shift: float, share: float = 1.0) -> float:
        """The p value of being slower."""
        se = self.se(share)
        return t_tail(shift / se, self.nu) if se else float(shift <= 0)


class _Against:
    """Stored sessions, and the new ones held against them."""

    def __init__(
        self, baseline: Sequence[Sequence[float]], news: Sequence[Sequence[float]], sign: float, looks: Looks
    ):
        kept = [values for values in baseline if len(values) >= LEAST_REQUESTS][-HISTORY:]
        self.news = [to_logs(values, sign) for values in news]
        self.looks = looks
        self.recent = logs_of(kept[-WINDOW:], sign)
        self._stored = [to_logs(values, sign) for values in kept]
        self._inflation = inflation_of(self.recent)
        low = LOW.with_prior(looks.prior)
        self.low = self._at(low, _quantile(LOW.quantile), self._woodruff(LOW.quantile))
        self.mid = self._at(MID, _quantile(MID.quantile), self._woodruff(MID.quantile))
        self.core = self._at(low, core, self._core_variance)

    def _woodruff(self, q: float) -> Callable[[float], float]:
        return lambda n: woodruff(self.recent, q, self._inflation, n)

    def _core_variance(self, n: float) -> float:
        import numpy as np

        return core_variance([np.sort(values) for values in self.recent.each], self._inflation, n)

    def _at(
        self, location: Location, place: Callable[[Floats], float], v_of: Callable[[float], float]
    ) -> _ShiftsAtPlace:
        import numpy as np

        places = [place(np.sort(values)) for values in self._stored]
        count = self.recent.count
        base, (s2, degrees) = fmean(places[-count:]), spread_within_windows(places)
        v = v_of(self.recent.mean_size)
        extra = max(0.0, v_of(fmean([len(values) for values in self.news])) - v)
        shifts = [place(np.sort(values)) - base for values in self.news]
        return _ShiftsAtPlace(location, base, shifts, v, s2, degrees, extra, count, self.looks.spans_a_day)

    @property
    def share(self) -> float:
        """c: how much of a session's variance the mean of the new ones keeps."""
        return OTHER_DAY_SHARE if self.looks.on_another_day else SAME_DAY_SHARE

    @property
    def alpha(self) -> float:
        """The p value needed."""
        return min(ALPHA, FAMILY_P / (2 * self.looks.comparisons))

    @cached_property
    def p_samples(self) -> float:
        """The p value of all new requests being slower than all stored ones."""
        import numpy as np

        return mann_whitney(np.concatenate(self.news), self.recent.pooled()).p

    @property
    def is_flagged(self) -> bool:
        """True if the requests became slower, whatever sessions do."""
        return self.p_samples <= FLAG_P and self.mid.mean_shift >= LEAST_SHIFT

    @property
    def deciding(self) -> _ShiftsAtPlace:
        """The place at which the stored sessions agree better."""
        alone = self.recent.count == 1
        return self.core if not alone and self.core.looseness < self.low.looseness else self.low

    @property
    def moved(self) -> list[float]:
        """The shift of each new session: the smaller of both places."""
        return [min(both) for both in zip(self.low.shifts, self.core.shifts, strict=True)]

    def spells(self) -> list[Spells]:
        """The spells of each new session; none where too little is stored to judge them."""
        if self.recent.count < LEAST_SESSIONS or not self.looks.spans_a_day:
            return []
        return [spells(self.recent.each, values) for values in self.news]

    def is_grey(self, number: int) -> bool:
        """True if one of the new sessions is grey."""
        place = self.deciding
        shifted = self.moved[number] >= GREY_SHIFT and place.p(place.shifts[number]) <= GREY_P
        found = self.spells()
        return shifted or bool(
            found and found[number].p <= GREY_SPELLS_P and found[number].rise >= LEAST_RISE
        )


def _quantile(q: float) -> Callable[[Floats], float]:
    return lambda ordered: quantile_median_unbiased(ordered, q)


def is_grey(
    baseline: Sequence[Sequence[float]],
    new: Sequence[float],
    *,
    larger_is_worse: bool = True,
    looks: Looks | None = None,
) -> bool:
    """Return whether a session is worth a second look; one that cannot be judged is not."""
    if not _is_judged(baseline, new):
        return False
    return _Against(baseline, [new], 1.0 if larger_is_worse else -1.0, looks or Looks()).is_grey(0)


def _is_judged(baseline: Sequence[Sequence[float]], *news: Sequence[float]) -> bool:
    stored = sum(len(values) >= LEAST_REQUESTS for values in baseline)
    return stored > 0 and all(len(values) >= LEAST_REQUESTS for values in news)


def compare_twice(
    baseline: Sequence[Sequence[float]],
    first: Sequence[float],
    second: Sequence[float],
    *,
    larger_is_worse: bool = True,
    looks: Looks | None = None,
) -> Comparison:
    """Return the verdict of two jobs of the same code against the stored sessions, oldest first.

    The first was grey; `inconclusive` is what both together do not call slower.
    """
    stored = sum(len(values) >= LEAST_REQUESTS for values in baseline)
    if not _is_judged(baseline, first, second):
        reason = Reason.TOO_FEW_REQUESTS(requests=min(len(first), len(second)), least=LEAST_REQUESTS)
        return Comparison(Verdict.INCONCLUSIVE, reason, sessions=stored)
    sign = 1.0 if larger_is_worse else -1.0
    against = _Against(baseline, [first, second], sign, looks or Looks())
    shown, how = _slower(against)
    verdict = Verdict.INCONCLUSIVE if how is None else Verdict.SLOWER
    return _comparison(against, shown, verdict, how or Reason.SECOND_LOOK_OPEN(), sign)


def _slower(against: _Against) -> tuple[_ShiftsAtPlace, Explanation | None]:
    """The place that speaks for both jobs, and how they are slower; None if they are not for certain."""
    found = against.spells()
    if against.is_flagged and _slower_together(against):
        return against.deciding, Reason.SLOWER_TWICE()
    if found and _more_spells(found, against.looks.comparisons):
        return against.deciding, Reason.MORE_SPELLS(rise=fmean([each.rise for each in found]))
    if against.is_flagged and found and _median_moved(against.mid, found, against.looks.comparisons):
        return against.mid, Reason.SLOWER_TWICE()
    return against.deciding, None


def _slower_together(against: _Against) -> bool:
    """True if both jobs are grey and their mean shift is beyond chance."""
    place, share = against.deciding, against.share
    both_grey = all(move >= GREY_SHIFT for move in against.moved)
    both_grey = both_grey and all(place.p(shift) <= GREY_P for shift in place.shifts)
    certain = place.p(place.mean_shift, share) <= against.alpha and fmean(against.moved) >= LEAST_SHIFT
    low = against.low
    return both_grey and certain and (place is low or low.p(low.mean_shift, share) <= LOW_AGREES_P)


def _median_moved(mid: _ShiftsAtPlace, found: Sequence[Spells], comparisons: int) -> bool:
    """True if half of the requests or so became slower in both jobs."""
    p_values = [mid.p(shift) for shift in mid.shifts]
    both = max(p_values) <= GREY_SPELLS_P and min(mid.shifts) >= LEAST_SHIFT
    spread_out = min(each.count for each in found) >= LEAST_SPELLS
    return both and spread_out and p_values[0] * p_values[1] <= MID_PRODUCT_P / comparisons


def _more_spells(found: Sequence[Spells], comparisons: int) -> bool:
    rose = all(each.p <= GREY_SPELLS_P and each.rise >= LEAST_RISE for each in found)
    return rose and found[0].p * found[1].p <= SPELLS_PRODUCT_P / comparisons


def _comparison(
    against: _Against, shown: _ShiftsAtPlace, verdict: Verdict, reason: Explanation, sign: float
) -> Comparison:
    """The figures of both jobs together, at the place that speaks for them."""
    d, se, mid = shown.mean_shift, shown.se(against.share), against.mid
    half = t_quantile(0.975, shown.nu) * se
    ends = sorted((exp(sign * (d - half)), exp(sign * (d + half))))
    names = {id(mid): "the median", id(against.core): "the core"}
    return Comparison(
        verdict=verdict,
        reason=reason,
        baseline=exp(sign * mid.baseline),
        now=exp(sign * (mid.baseline + mid.mean_shift)),
        at=names.get(id(shown), f"the fastest {LOW.quantile:.0%}"),
        at_baseline=exp(sign * shown.baseline),
        at_now=exp(sign * (shown.baseline + d)),
        delta=exp(sign * d),
        ci=(ends[0], ends[1]),
        p_samples=against.p_samples,
        p_session=shown.p(d, against.share),
        visible=exp(max(t_quantile(1 - against.alpha, shown.nu) * se, LEAST_SHIFT)),
        sessions=against.recent.count,
    )
