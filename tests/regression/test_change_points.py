"""Change points: their definition, and series whose steps are known."""

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from pytest_llmspeed.regression import change_points as module
from pytest_llmspeed.regression.change_points import LEAST_SIDE, change_points

WOBBLE = (1.0, 1.01, 0.99, 1.02, 0.98, 1.005, 0.995, 1.015, 0.985, 1.0)


def sessions(*levels):
    """Ten sessions a level, within two percent."""
    return [level * wobble for level in levels for wobble in WOBBLE]


def test_a_steady_series_has_none():
    """Whatever its length."""
    for count in (1, 2, 5):
        assert change_points(sessions(*[40.0] * count)) == []


def test_a_step_is_found_where_it_is():
    """With the medians of both sides."""
    (found,) = change_points(sessions(40.0, 46.0))
    assert found.place == 10
    assert (found.before, found.after) == (40.0, 46.0)
    assert found.p == pytest.approx(1 / 4001, abs=2e-3)


def test_each_of_several_steps_is_found():
    """Up, and half of the way down again."""
    found = change_points(sessions(40.0, 50.0, 45.0))
    assert [point.place for point in found] == [10, 20]
    assert [(point.before, point.after) for point in found] == [(40.0, 50.0), (50.0, 45.0)]


def test_a_step_of_less_than_five_percent_is_none():
    """However certain it is."""
    assert change_points(sessions(40.0, 41.5)) == []
    assert len(change_points(sessions(40.0, 42.5))) == 1


def test_the_newest_two_sessions_are_not_history_yet():
    """Ranks of so few say nothing, however slow they are; of six they do."""
    assert change_points([*sessions(40.0), 60.0, 60.0]) == []
    assert len(change_points([*sessions(40.0, 40.0), *[60.0] * 6])) == 1


def test_one_slow_session_is_no_change():
    """An outlier has no level."""
    series = sessions(40.0, 40.0)
    series[7] = 90.0
    assert change_points(series) == []


def test_too_few_sessions_have_none():
    """Also an empty series."""
    assert change_points([]) == []
    assert change_points([40.0, 40.0, 60.0, 60.0, 60.0]) == []


def test_the_statistic_is_the_standardised_one_of_mann_and_whitney():
    """At each cut, from SciPy's U."""
    values = np.array([3.0, 1.0, 4.0, 1.5, 5.0, 9.0, 2.0, 6.0])
    ours = module._statistics(module._ranks(values))
    n = len(values)
    for number, k in enumerate(range(LEAST_SIDE, n - LEAST_SIDE + 1)):
        u = mannwhitneyu(values[:k], values[k:]).statistic
        expected = (u - k * (n - k) / 2) / np.sqrt(k * (n - k) * (n + 1) / 12)
        assert ours[number] == pytest.approx(expected)


def test_the_p_value_is_that_of_all_permutations():
    """Of six values there is one cut: the share of splits as extreme, both ways, is 2 of 20."""
    splits = list(combinations(range(1, 7), 3))
    extreme = sum(sum(split) in (6, 15) for split in splits) / len(splits)
    chance = module._largest_by_chance(6)
    assert np.mean(chance >= chance.max() - 1e-12) == pytest.approx(extreme, abs=0.02)
