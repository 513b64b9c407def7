"""The probabilities of commits, from their definition."""

from math import log

import pytest
from scipy.stats import t as student

from pytest_llmspeed.experiments.suspects import MOST_EVIDENCE, Evidence, Suspects
from pytest_llmspeed.regression.verdicts import Comparison, Verdict

WHOLE = Evidence(log(1.15), 0.02, 8)


def test_evidence_is_read_off_an_interval():
    """The standard error is half the interval over the t quantile of its degrees of freedom."""
    half = 0.02 * student.ppf(0.975, 7)
    low, high = (1.1 * 2.718281828459045**end for end in (-half, half))
    found = Comparison(Verdict.SLOWER, metric="tpot_ms", delta=1.1, ci=(low, high), blocks=4)
    evidence = Evidence.of(found)
    assert (evidence.d, evidence.se, evidence.nu) == pytest.approx((log(1.1), 0.02, 7))


def test_evidence_of_a_throughput_is_larger_where_it_fell():
    """Larger is worse, whatever the metric."""
    found = Comparison(Verdict.SLOWER, metric="throughput_tps", delta=0.8, ci=(0.75, 0.85), blocks=3)
    assert Evidence.of(found).d == pytest.approx(log(1.25))


@pytest.mark.parametrize("d", [0.05, 0.07, 0.09])
def test_the_ratio_is_that_of_the_two_densities(d):
    """Of a shift like that of the whole, and of none."""
    evidence = Evidence(d, 0.03, 6)
    spread = (0.03**2 + 0.02**2) ** 0.5
    expected = student.pdf(d, 6, log(1.15), spread) / student.pdf(d, 6, 0, 0.03)
    assert evidence.ratio(WHOLE) == pytest.approx(expected)


def test_no_single_measurement_decides():
    """However far it is from one of the two."""
    assert Evidence(log(1.15), 0.001, 8).ratio(WHOLE) == pytest.approx(MOST_EVIDENCE)
    assert Evidence(0.0, 0.001, 8).ratio(WHOLE) == pytest.approx(1 / MOST_EVIDENCE)


def test_a_slow_commit_makes_those_before_it_suspect():
    """Commit 4 of 8 against the good one: the ratio is that of the odds."""
    suspects = Suspects(8)
    suspects.learn(0, 4, 3.0)
    assert suspects.probability(0, 4) == pytest.approx(0.75)
    assert suspects.probability(3, 4) == pytest.approx(0.75 / 4)
    assert sum(suspects.probability(k - 1, k) for k in range(1, 9)) == pytest.approx(1)


def test_the_next_commit_halves_what_is_left():
    """Of those that can be tested."""
    suspects = Suspects(8)
    assert suspects.halving(range(1, 8)) == 4
    assert suspects.halving([1, 2, 7]) == 2
    suspects.learn(0, 4, 1e9)
    assert suspects.halving(range(1, 8)) == 2
    suspects.learn(3, 4, 1e9)
    assert suspects.likeliest == 4
    assert suspects.likely(0.95) == [4]


def test_where_nothing_splits_the_suspects_nothing_is_next():
    """The last commit is known to be slow already."""
    assert Suspects(1).halving([1]) is None
    assert Suspects(4).halving([]) is None
