"""Schedules of open loads."""

from __future__ import annotations

from itertools import pairwise
from math import inf, isfinite
from statistics import fmean, pstdev

import pytest

from pytest_llmspeed import Rate
from pytest_llmspeed.errors import SettingsError


def gaps(rate: Rate, count: int = 20_000) -> list[float]:
    return [late - early for early, late in pairwise(rate.first(count))]


@pytest.mark.parametrize(
    ("rate", "variation"),
    [
        (Rate.poisson(20), 1.0),
        (Rate.constant(20), 0.0),
        (Rate.gamma(20, burstiness=0.25), 2.0),
        (Rate.gamma(20, burstiness=4), 0.5),
    ],
)
def test_gaps_have_the_asked_mean_and_variation(rate: Rate, variation: float) -> None:
    """Their mean is 1/rate, their coefficient of variation 1/sqrt(burstiness)."""
    found = gaps(rate)
    assert fmean(found) == pytest.approx(1 / 20, rel=0.05)
    assert pstdev(found) / fmean(found) == pytest.approx(variation, abs=0.06)


def test_one_seed_is_one_schedule() -> None:
    """The same rate gives the same moments again, another seed others; the first is due at once."""
    assert Rate(5, seed=1).first(10) == Rate(5, seed=1).first(10) != Rate(5, seed=2).first(10)
    assert (Rate(5).first(1), Rate(5).first(0)) == ((0.0,), ())


@pytest.mark.parametrize("requests", [2, 50, 100, 120, 160, 200, 500])
@pytest.mark.parametrize("rate", [Rate(60), Rate.gamma(60, burstiness=0.1, seed=7), Rate.constant(60)])
def test_a_schedule_offers_its_rate_exactly(rate: Rate, requests: int) -> None:
    """Whatever the seed drew: n requests take (n - 1) / rate."""
    assert rate.first(requests)[-1] == pytest.approx((requests - 1) / 60)
    assert len(rate.first(requests)) == requests


@pytest.mark.parametrize("rate", [Rate(50), Rate.gamma(50, burstiness=0.01), Rate.constant(50)])
@pytest.mark.parametrize(("duration_s", "requests"), [(2.0, 100), (1.01, 51), (0.3, 15), (0.001, 1)])
def test_a_duration_holds_its_part_of_the_rate(rate: Rate, duration_s: float, requests: int) -> None:
    """So many requests as the rate has in that time, all of them due before its end."""
    due_s = rate.within(duration_s)
    assert len(due_s) == requests
    assert due_s == rate.first(requests)
    assert due_s[-1] < duration_s


def test_bursts_too_short_to_draw_offer_the_rate_all_the_same() -> None:
    """Gaps may all round to nothing; no schedule is NaN."""
    assert all(isfinite(due_s) for due_s in Rate.gamma(5, burstiness=1e-6).first(20))


@pytest.mark.parametrize("per_s", [0, -1, inf, float("nan")])
def test_a_senseless_rate_is_refused(per_s: float) -> None:
    """The error names the rate."""
    with pytest.raises(SettingsError, match="rate="):
        Rate(per_s)


def test_a_rate_says_what_it_is() -> None:
    """What is declared of a workload names rate, shape and seed, where they are not the usual ones."""
    assert [str(Rate(20)), str(Rate.gamma(0.5, burstiness=0.5, seed=3)), str(Rate.constant(2))] == [
        "20/s",
        "0.5/s burstiness=0.5 seed=3",
        "2/s burstiness=inf",
    ]
