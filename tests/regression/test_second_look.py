"""The second look: grey zone, places and spells from their definitions, and verdicts of two jobs."""

from math import log, sqrt
from statistics import mean

import numpy as np
import pytest
from scipy.stats import betabinom
from scipy.stats import t as student

from pytest_llmspeed.metrics.reasons import Reason
from pytest_llmspeed.regression.places import core, core_variance, spread_within_windows
from pytest_llmspeed.regression.second_look import Looks, compare_twice, is_grey
from pytest_llmspeed.regression.session_test import compare
from pytest_llmspeed.regression.spells import spells
from pytest_llmspeed.regression.verdicts import Verdict

SHAPE = (
    *(100.0, 101.5, 99.2, 103.1, 100.7, 98.8, 102.2, 100.1, 99.6, 101.0),
    *(100.4, 102.9, 98.5, 101.8, 99.9, 100.9, 103.4, 99.0, 101.2, 100.2),
)
STORED = [[level * value for value in SHAPE] for level in (1.0, 1.02, 0.99, 1.01, 0.98)]


def session(level):
    return [level * value for value in SHAPE]


def bursts(every, factor=2.0):
    return [value * (factor if place % every == 0 else 1.0) for place, value in enumerate(SHAPE)]


# places and spells


def test_the_core_is_the_mean_of_the_ranks_from_10_to_60_percent():
    """Of twenty values, the third to the twelfth."""
    assert core(np.arange(1.0, 21.0)) == pytest.approx(mean(range(3, 13)))
    assert core(np.array([1.0, 2.0, 3.0, 4.0, 5.0])) == pytest.approx(2.0)


def test_the_variance_of_the_core_is_the_winsorised_one():
    """Over the square of the share that is kept, for one session of ten values."""
    values = np.array([1.0, 2.0, 4.0, 7.0, 11.0, 16.0, 22.0, 29.0, 37.0, 46.0])
    winsorised = np.clip(values, values[1], values[5])
    expected = winsorised.var(ddof=1) / 0.25 * 1.5 / 10
    assert core_variance([values], 1.5, 10) == pytest.approx(expected)


def test_the_spread_is_that_about_each_window_of_ten():
    """A machine that was replaced long ago does not widen it."""
    old, new = [1.0, 1.2] * 5, [2.0, 2.2] * 5
    spread, degrees = spread_within_windows([*old, *new])
    assert degrees == 18
    assert spread == pytest.approx(20 * 0.01 / 18)
    assert spread_within_windows([1.0]) == (0.0, 0)


def test_a_spell_is_a_run_of_slow_requests():
    """Three in a row are one; the p value is that of the beta-binomial distribution."""
    quiet = np.log(np.array(SHAPE))
    burst = quiet.copy()
    burst[[3, 4, 5, 10]] += log(2)
    found = spells([quiet] * 4, burst)
    assert found.count == 2
    share = 0.5 / 81
    assert found.rise == pytest.approx(2 / 20 - share)
    own = (0 / (share * (1 - share)) - 1 / 20) / (1 - 1 / 20)
    correlation = max((4 * 0.02 + 3 * own) / 7, 0.0)
    weight = 1 / (correlation * 1.25 + 1 / 80) - 1
    assert found.p == pytest.approx(betabinom.sf(1, 20, share * weight, (1 - share) * weight))


# grey


@pytest.mark.parametrize(
    ("level", "grey"), [(0.9, False), (1.0, False), (1.02, False), (1.07, True), (1.5, True)]
)
def test_what_one_job_can_neither_clear_nor_call_slower_is_grey(level, grey):
    """From a shift of 3%, also what is slower for certain."""
    assert is_grey(STORED, session(level)) is grey


def test_slow_spells_are_grey():
    """Though the fastest requests are as fast as ever."""
    assert is_grey(STORED, bursts(5))
    assert not is_grey(STORED, bursts(5), looks=Looks(spans_a_day=False))


def test_what_cannot_be_judged_is_not_grey():
    """Nothing stored, or too few requests."""
    assert not is_grey([], session(2.0))
    assert not is_grey(STORED, session(2.0)[:4])


# two jobs


def test_two_grey_jobs_are_slower():
    """By 9%, which one job leaves open."""
    assert compare(STORED, session(1.09)).verdict is Verdict.SUSPECT
    found = compare_twice(STORED, session(1.09), session(1.10), looks=Looks(on_another_day=True))
    assert found.verdict is Verdict.SLOWER
    assert found.reason.reason is Reason.SLOWER_TWICE
    assert found.delta == pytest.approx(sqrt(1.09 * 1.10), rel=0.01)
    assert found.sessions == 5


def test_one_grey_job_is_not_enough():
    """The second is as fast as ever: it was the machine."""
    found = compare_twice(STORED, session(1.15), session(1.0))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.reason.reason is Reason.SECOND_LOOK_OPEN


def test_the_interval_is_that_of_the_mean_of_both():
    """It is narrower for jobs on different days, which share no mood."""
    soon = compare_twice(STORED, session(1.09), session(1.10))
    later = compare_twice(STORED, session(1.09), session(1.10), looks=Looks(on_another_day=True))
    widths = [log(found.ci[1] / found.ci[0]) for found in (soon, later)]
    assert widths[0] / widths[1] == pytest.approx(sqrt((0.75 + 0.2) / (0.5 + 0.2)), rel=1e-6)
    nu = 4 + 4
    assert later.p_session == pytest.approx(
        student.sf(log(later.delta) / (widths[1] / 2 / student.ppf(0.975, nu)), nu)
    )


def test_slow_spells_in_both_jobs_are_slower():
    """One request in five takes twice as long: the median does not move."""
    assert compare(STORED, bursts(5)).verdict is not Verdict.SLOWER
    found = compare_twice(STORED, bursts(5), bursts(5))
    assert found.verdict is Verdict.SLOWER
    assert found.reason.reason is Reason.MORE_SPELLS


def test_many_comparisons_ask_for_more():
    """A hundred of them share the error rate."""
    both = (session(1.09), session(1.10))
    assert compare_twice(STORED, *both, looks=Looks(on_another_day=True)).verdict is Verdict.SLOWER
    found = compare_twice(STORED, *both, looks=Looks(on_another_day=True, comparisons=500))
    assert found.verdict is Verdict.INCONCLUSIVE


def test_throughput_is_worse_when_it_falls():
    """The mirror of a time."""
    fell = [1000 / value for value in session(1.2)]
    stored = [[1000 / value for value in one] for one in STORED]
    found = compare_twice(stored, fell, fell, larger_is_worse=False)
    assert found.verdict is Verdict.SLOWER
    assert found.delta == pytest.approx(1 / 1.2, rel=0.01)


def test_too_few_requests_decide_nothing():
    """In either job."""
    found = compare_twice(STORED, session(2.0)[:3], session(2.0))
    assert (found.verdict, found.reason.reason) == (Verdict.INCONCLUSIVE, Reason.TOO_FEW_REQUESTS)
