"""The exact paired test and its power, held against SciPy and against plain counting."""

from __future__ import annotations

import pytest
from scipy.stats import binom, binomtest, fisher_exact, multinomial

from pytest_llmspeed.quality.paired_test import (
    FAIL_P,
    mcnemar,
    more_often,
    paired,
    power,
    prompts_needed,
    visible_loss,
)


@pytest.mark.parametrize(("worse", "better"), [(0, 0), (1, 0), (4, 0), (7, 0), (9, 2), (3, 8), (40, 20)])
def test_mcnemar_is_the_exact_binomial_test(worse: int, better: int) -> None:
    """As SciPy's binomial test of the changed prompts."""
    expected = binomtest(worse, worse + better, alternative="greater").pvalue if worse + better else 1.0
    assert mcnemar(worse, better) == pytest.approx(expected, rel=1e-12)


def test_pairs_are_counted_by_the_direction_of_their_change() -> None:
    """Right and wrong as well as any other scores; rounding is no change."""
    found = paired([(1, 0), (1, 1), (0, 1), (0.7, 0.65), (0.5, 0.5 + 1e-12)])
    assert (found.prompts, found.worse, found.better) == (5, 2, 1)
    assert found.p == 0.5


@pytest.mark.parametrize("prompts", [20, 40, 100, 300])
@pytest.mark.parametrize("loss", [0.02, 0.05, 0.1, 0.2, 0.5])
def test_power_of_a_pure_loss_is_a_binomial_tail(prompts: int, loss: float) -> None:
    """Seven answers have to break, none mended, before the test speaks: 2^-7 <= .01 < 2^-6."""
    assert power(prompts, loss) == pytest.approx(binom.sf(6, prompts, loss), rel=1e-9)


@pytest.mark.parametrize(("prompts", "loss", "gain"), [(25, 0.3, 0.1), (40, 0.2, 0.05), (30, 0.1, 0.1)])
def test_power_beside_gains_is_the_sum_over_all_outcomes(prompts: int, loss: float, gain: float) -> None:
    """Every number of worse and better answers, weighed by its probability."""
    outcomes = multinomial(prompts, [loss, gain, 1 - loss - gain])
    expected = sum(
        outcomes.pmf([worse, better, prompts - worse - better])
        for worse in range(prompts + 1)
        for better in range(prompts + 1 - worse)
        if mcnemar(worse, better) <= FAIL_P
    )
    assert power(prompts, loss, gain=gain) == pytest.approx(expected, rel=1e-9)


def test_twenty_prompts_cannot_show_a_loss_of_ten_percent_and_a_hundred_can() -> None:
    """The sentence of the documentation."""
    assert power(20, 0.10) < 0.01
    assert power(100, 0.10) > 0.85


@pytest.mark.parametrize("loss", [0.05, 0.1, 0.3])
def test_the_prompts_needed_are_the_fewest_that_do(loss: float) -> None:
    """One less does not."""
    needed = prompts_needed(loss)
    assert power(needed, loss) >= 0.8 > power(needed - 1, loss)


@pytest.mark.parametrize(("prompts", "visible"), [(6, None), (7, 0.97), (20, 0.42), (100, 0.09)])
def test_the_smallest_visible_loss(prompts: int, visible: float | None) -> None:
    """Six prompts show nothing at all; seven hardly anything."""
    assert visible_loss(prompts) == visible


@pytest.mark.parametrize(
    ("now", "before"),
    [((5, 12), (0, 12)), ((0, 12), (0, 12)), ((3, 10), (4, 40)), ((2, 2), (1, 3)), ((0, 0), (0, 0))],
)
def test_more_often_is_fishers_exact_test(now: tuple[int, int], before: tuple[int, int]) -> None:
    """As SciPy's, one-sided."""
    table = [[now[0], now[1] - now[0]], [before[0], before[1] - before[0]]]
    expected = fisher_exact(table, alternative="greater").pvalue if now[1] else 1.0
    assert more_often(now, before) == pytest.approx(expected, rel=1e-9)
