"""Rank tests, quantiles, autocorrelation and tails against published values and other libraries."""

from itertools import combinations
from math import comb, log, sqrt
from statistics import mean, stdev

import numpy as np
import pytest
from scipy import stats as reference

from pytest_llmspeed.metrics.stats import (
    EXACT_UP_TO,
    Samples,
    autocorrelation_products,
    binomial_tail,
    mann_whitney,
    quantile_median_unbiased,
    t_quantile,
    t_tail,
)


def two_sided(first, second):
    """Twice the smaller tail."""
    return 2 * min(mann_whitney(first, second).p, mann_whitney(second, first).p)


def counted_p(first, second):
    """The permutation p value by looking at every way to divide the pooled values."""
    ranks = reference.rankdata([*first, *second])
    observed = sum(ranks[: len(first)])
    sums = [sum(ranks[i] for i in chosen) for chosen in combinations(range(len(ranks)), len(first))]
    return sum(total >= observed - 1e-9 for total in sums) / comb(len(ranks), len(first))


def test_samples_apart_have_u_zero_and_the_published_p():
    """Four values all below four others: U is 0 and the exact two-sided p value 2/70."""
    found = mann_whitney([2, 1, 3, 5], [12, 11, 13, 15])
    assert found.u == 0
    assert two_sided([2, 1, 3, 5], [12, 11, 13, 15]) == pytest.approx(0.0285714, abs=1e-7)


def test_overlapping_samples_have_the_published_u_and_p():
    """The textbook example of unequal sizes: U 17, exact two-sided p .1111111."""
    first, second = [19, 22, 16, 29, 24], [20, 11, 17, 12]
    assert mann_whitney(first, second).u == 17
    assert two_sided(first, second) == pytest.approx(0.1111111, abs=1e-7)


def test_asymmetric_ties_have_the_exact_p_where_the_normal_limit_is_off():
    """With ties the p value is the exact one, .0476190, not SciPy's default .04162."""
    found = mann_whitney([2, 1, 3, 5], [1, 1, 1, 1, 1])
    assert found.u == 17.5
    assert found.p == pytest.approx(0.0476190, abs=1e-7)


@pytest.mark.parametrize("seed", range(8))
def test_small_tied_samples_have_the_p_of_complete_enumeration(seed):
    """The shift algorithm counts what looking at every division of the values counts."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 5, rng.integers(2, 6)).tolist()
    second = rng.integers(0, 5, rng.integers(2, 7)).tolist()
    assert mann_whitney(first, second).p == pytest.approx(counted_p(first, second), abs=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_small_untied_samples_agree_with_scipys_exact_test(seed):
    """Without ties U and p are those of SciPy's exact method."""
    rng = np.random.default_rng(seed)
    first, second = rng.normal(0.3, 1, rng.integers(3, 15)), rng.normal(0, 1, rng.integers(3, 20))
    found = mann_whitney(first.tolist(), second.tolist())
    known = reference.mannwhitneyu(first, second, alternative="greater", method="exact")
    assert found.u == known.statistic
    assert found.p == pytest.approx(known.pvalue, rel=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_large_samples_agree_with_scipys_normal_limit(seed):
    """Beyond the exact range p is the normal limit with continuity and ties corrected, near the exact one."""
    rng = np.random.default_rng(seed)
    first, second = rng.normal(0.5, 1, 20), rng.normal(0, 1, EXACT_UP_TO)
    found = mann_whitney(first.tolist(), second.tolist())
    limit = reference.mannwhitneyu(first, second, alternative="greater", method="asymptotic")
    exact = reference.mannwhitneyu(first, second, alternative="greater", method="exact")
    assert (found.u, found.p) == pytest.approx((limit.statistic, limit.pvalue))
    assert found.p == pytest.approx(exact.pvalue, rel=0.25)


@pytest.mark.parametrize("size", [1, 5, 20, 60])
def test_values_that_are_all_equal_say_nothing(size):
    """All equal gives p = 1 at any size, without a warning."""
    assert mann_whitney([7.0] * size, [7.0] * size).p == 1.0


@pytest.mark.parametrize("count", [8, 40])
def test_the_order_of_values_changes_nothing(count):
    """Mann-Whitney looks at ranks only."""
    rng = np.random.default_rng(3)
    first, second = rng.integers(0, 30, count).tolist(), rng.integers(0, 30, count).tolist()
    before = mann_whitney(first, second)
    rng.shuffle(first)
    rng.shuffle(second)
    after = mann_whitney(first, second)
    assert (after.u, after.p) == pytest.approx((before.u, before.p))


@pytest.mark.parametrize("seed", range(4))
def test_swapping_the_samples_mirrors_u(seed):
    """The two U values share out all pairs, and negated values swap the two tails."""
    rng = np.random.default_rng(seed)
    first, second = rng.integers(0, 9, 7).tolist(), rng.integers(0, 9, 9).tolist()
    there, back = mann_whitney(first, second), mann_whitney(second, first)
    mirrored = mann_whitney([-v for v in first], [-v for v in second])
    assert there.u + back.u == 7 * 9
    assert mirrored.p == pytest.approx(back.p)


@pytest.mark.parametrize("q", [0.0, 0.03, 0.1, 0.37, 0.5, 0.77, 0.95, 1.0])
@pytest.mark.parametrize("n", [1, 2, 5, 10, 33])
def test_the_median_unbiased_quantile_is_numpys(n, q):
    """Position q(n + 1/3) + 1/3 is NumPy's method "median_unbiased", ends included."""
    values = np.sort(np.random.default_rng(n).normal(size=n))
    expected = float(np.quantile(values, q, method="median_unbiased"))
    assert quantile_median_unbiased(values, q) == pytest.approx(expected)


def test_the_autocorrelation_of_a_long_correlated_series_is_found():
    """An AR(1) series of coefficient 0.6 has a ratio of the two sums near 0.6."""
    rng = np.random.default_rng(11)
    series = [0.0]
    for shock in rng.normal(size=5000):
        series.append(0.6 * series[-1] + shock)
    product, square = autocorrelation_products(np.array(series))
    assert product / square == pytest.approx(0.6, abs=0.04)


def test_an_alternating_series_is_anticorrelated():
    """Up and down in turn gives a lag-1 autocorrelation of nearly -1."""
    product, square = autocorrelation_products(np.array([1.0, -1.0] * 20))
    assert product / square == pytest.approx(-39 / 40)


def test_one_hiccup_does_not_hide_the_autocorrelation():
    """A value a thousand times too large is pulled in, so that the ratio hardly moves."""
    rng = np.random.default_rng(12)
    series = [0.0]
    for shock in rng.normal(size=200):
        series.append(0.6 * series[-1] + shock)
    disturbed = np.array(series)
    disturbed[100] = 1000.0
    product, square = autocorrelation_products(disturbed)
    assert product / square == pytest.approx(0.6, abs=0.2)


def test_a_constant_series_has_no_products():
    """No spread gives two zeros, which the caller can tell from a correlation."""
    assert autocorrelation_products(np.full(9, 3.0)) == (0.0, 0.0)


RAGGED = [[4.0, 1.0, 3.0], [2.0, 9.0, 5.0], [7.0, 7.0], [1.0, 2.0, 8.0], [6.0]]


def test_samples_of_several_sizes_keep_their_order():
    """Each has its own quantile, at its own place, whatever the sizes of its neighbours."""
    found = Samples.of(RAGGED)
    assert (found.count, found.size, found.mean_size) == (5, 12, 2.4)
    assert found.quantiles(0.3) == [quantile_median_unbiased(sorted(sample), 0.3) for sample in RAGGED]
    assert found.pooled().tolist() == sorted(value for sample in RAGGED for value in sample)


def test_a_change_is_made_to_each_value_of_samples():
    """As the logarithm is, before quantiles are taken."""
    halved = Samples.of(RAGGED, lambda values: values / 2)
    assert halved.quantiles(0.5) == [place / 2 for place in Samples.of(RAGGED).quantiles(0.5)]


def test_the_products_of_columns_are_those_of_the_series_summed():
    """Each column is a series of its own, about its own median."""
    several = np.random.default_rng(5).normal(size=(20, 4)) + np.arange(4)
    apart = [autocorrelation_products(several[:, column]) for column in range(4)]
    assert autocorrelation_products(several) == pytest.approx(tuple(map(sum, zip(*apart, strict=True))))


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (1, 10), (3, 10), (10, 10), (4, 100)])
def test_the_binomial_tail_is_scipys(hits, trials):
    """P(X >= hits), the observed number included."""
    assert binomial_tail(hits, trials, 0.05) == pytest.approx(reference.binom.sf(hits - 1, trials, 0.05))


@pytest.mark.parametrize("degrees", [4, 5.5, 13])
@pytest.mark.parametrize("value", [-2.0, 0.0, 1.7, 6.0])
def test_the_t_tail_is_scipys(value, degrees):
    """P(T > value), for fractional degrees of freedom too."""
    assert t_tail(value, degrees) == pytest.approx(reference.t.sf(value, degrees))


@pytest.mark.parametrize("p", [0.5, 0.975, 0.995])
def test_the_t_quantile_undoes_the_tail(p):
    """The p quantile leaves 1 - p above it."""
    assert t_quantile(p, 7) == pytest.approx(reference.t.ppf(p, 7), abs=1e-9)
    assert t_tail(t_quantile(p, 7), 7) == pytest.approx(1 - p)


@pytest.mark.parametrize(("new", "p"), [(103, 0.081), (104, 0.0429), (105, 0.0239), (110, 0.00265)])
def test_the_t_tail_gives_the_published_values_of_a_plain_session_test(new, p):
    """Session medians 100 101 99 102 98 in logs, against a new one, by a plain t bound."""
    logs = [log(value) for value in (100, 101, 99, 102, 98)]
    se = stdev(logs) * sqrt(1 + 1 / 5)
    assert t_tail((log(new) - mean(logs)) / se, 4) == pytest.approx(p, rel=0.01)
