"""Schedules of open loads."""

from __future__ import annotations

from itertools import pairwise
from math import inf
from statistics import fmean, pstdev

import pytest

from pytest_llmspeed import Rate
from pytest_llmspeed.core.errors import SettingsError


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
    assert Rate(5).first(1) == (0.0,)


def test_a_duration_cuts_the_schedule() -> None:
    """Only what is due before the end is sent; a shorter schedule is the beginning of a longer one."""
    assert Rate.constant(10).within(1.0) == pytest.approx([place / 10 for place in range(10)])
    assert Rate(50).within(2.0)[:20] == Rate(50).first(20)


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
