"""The rule on blocks of runs: its figures from their definition, and what ends it early."""

from math import exp, log, sqrt
from statistics import mean, median, variance

import pytest
from scipy.stats import t as student

from pytest_llmspeed.metrics.reasons import Reason
from pytest_llmspeed.regression.block_test import compare_blocks
from pytest_llmspeed.regression.looks import EARLY_LOOK, LAST_LOOK
from pytest_llmspeed.regression.verdicts import Verdict

SHAPE = (100.0, 101.5, 99.2, 103.1, 100.7, 98.8, 102.2, 100.1, 99.6, 101.0)


def run(level):
    return [level * value for value in SHAPE]


def blocks(*ratios):
    """Blocks whose new side is so many times as slow; the machine's mood changes from block to block."""
    moods = (1.0, 1.3, 0.8, 1.1, 0.95)
    return [(run(mood), run(mood * ratio)) for mood, ratio in zip(moods, ratios, strict=False)]


def test_the_figures_are_those_of_the_definition():
    """D, its interval and p at the low location, of two blocks that differ by 6 and 10 %."""
    found = compare_blocks(blocks(1.06, 1.10))
    d, s2 = mean((log(1.06), log(1.10))), variance((log(1.06), log(1.10)))
    nu = 4 + 2 - 1
    interval = [log(bound) for bound in found.ci]
    half = (interval[1] - interval[0]) / 2
    assert found.delta == pytest.approx(exp(d))
    se = half / student.ppf(0.975, nu)
    v = (se**2 * 2 * nu - s2) / 4 - 2 * 0.03**2  # what is left of t2 is the sampling variance
    assert 0 < v < 2 * 0.02**2
    assert found.p_session == pytest.approx(student.sf(d / se, nu))
    assert found.blocks == 2
    assert found.baseline == pytest.approx(exp(mean(log(m * median(SHAPE)) for m in (1.0, 1.3))), rel=0.01)


def test_the_mood_of_the_machine_falls_out():
    """Blocks are 60 % apart; the sides within each are alike."""
    found = compare_blocks(blocks(1.0, 1.01, 0.99, 1.0, 1.01))
    assert found.verdict is Verdict.PASSED
    assert found.delta == pytest.approx(1.002, abs=0.002)


def test_a_slowdown_in_each_block_is_slower():
    """By 12 %, with moods far apart."""
    found = compare_blocks(blocks(1.12, 1.11, 1.13, 1.12, 1.12))
    assert found.verdict is Verdict.SLOWER
    assert found.p_session < 0.005


def test_the_mirror_is_faster():
    """The same ratios the other way round."""
    assert compare_blocks(blocks(*[1 / 1.12] * 5)).verdict is Verdict.FASTER


def test_larger_is_better_of_throughput():
    """A throughput that falls is slower."""
    swapped = [(new, old) for old, new in blocks(*[1.15] * 5)]
    found = compare_blocks(swapped, larger_is_worse=False)
    assert found.verdict is Verdict.SLOWER
    assert found.delta == pytest.approx(1 / 1.15)


def test_blocks_that_disagree_decide_nothing():
    """The mean is 12 % slower, but the blocks are all over the place."""
    found = compare_blocks(blocks(1.5, 0.9, 1.3, 0.8, 1.25))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.reason.reason is Reason.CANNOT_RULE_OUT


def test_an_early_look_asks_for_more():
    """What the last look calls slower, an early one leaves open."""
    three = blocks(1.11, 1.11, 1.11)
    p = compare_blocks(three).p_session
    assert 0.005 * EARLY_LOOK.share < p < 0.005 * LAST_LOOK.share
    assert compare_blocks(three, look=EARLY_LOOK).verdict is Verdict.INCONCLUSIVE
    assert compare_blocks(three, look=LAST_LOOK).verdict is Verdict.SLOWER


def test_many_comparisons_need_a_smaller_p():
    """A hundred of them share one error rate."""
    three = blocks(1.11, 1.11, 1.11)
    assert compare_blocks(three).verdict is Verdict.SLOWER
    assert compare_blocks(three, comparisons=100).verdict is Verdict.INCONCLUSIVE


def test_fewer_than_two_whole_blocks_decide_nothing():
    """A block in which one side measured four requests does not count."""
    found = compare_blocks([*blocks(1.0), (run(1.0), run(1.0)[:4])])
    assert (found.verdict, found.blocks) == (Verdict.INCONCLUSIVE, 1)
    assert found.reason.reason is Reason.TOO_FEW_BLOCKS


def test_the_smallest_slowdown_that_is_seen_shrinks_with_blocks():
    """It is the t quantile times the standard error."""
    seen = [compare_blocks(blocks(*[1.0] * count)).visible for count in (2, 3, 5)]
    assert seen == sorted(seen, reverse=True)
    assert log(seen[1]) / log(seen[2]) == pytest.approx(
        sqrt(5 / 3) * student.ppf(0.995, 6) / student.ppf(0.995, 8) * sqrt(8 / 6), rel=0.02
    )
