"""The session rule: what is called slower, what passes, and what stays open."""

from dataclasses import asdict
from itertools import pairwise
from math import exp, log, sqrt
from statistics import mean, median, variance

import numpy as np
import pytest
from scipy.stats import binom, mannwhitneyu
from scipy.stats import t as student

from pytest_llmspeed.regression.session_test import LEAST_REQUESTS, LOW, MID, WINDOW, compare
from pytest_llmspeed.regression.verdicts import Verdict

SAMPLE = [100.0, 101.5, 99.2, 103.1, 100.7, 98.8, 102.2, 100.1, 99.6, 101.0]


def stored(*levels):
    """One session a level, all of the same shape."""
    return [[level * value / 100 for value in SAMPLE] for level in levels]


def scaled(values, factor):
    return [value * factor for value in values]


def quantile8(values, q):
    """The median-unbiased quantile, from its definition."""
    ordered, n = sorted(values), len(values)
    position = min(max(q * (n + 1 / 3) + 1 / 3, 1), n)
    whole = int(position)
    upper = ordered[min(whole, n - 1)]
    return ordered[whole - 1] + (position - whole) * (upper - ordered[whole - 1])


def recomputed(sessions, new, q, s0, *, spans_a_day=True):
    """D, SE and p at one location, step by step from the page that states the rule."""
    logs, new_logs = [[log(v) for v in s] for s in sessions], [log(v) for v in new]
    k, n = len(logs), mean(len(s) for s in logs)

    products = squares = 0.0
    for x in logs:
        m = median(x)
        bound = 3 * 1.4826 * median(abs(v - m) for v in x)
        dev = [min(max(v - m, -bound), bound) for v in x]
        products += sum(late * early for early, late in pairwise(dev))
        squares += sum(v * v for v in dev)
    r = products / squares
    pairs = sum(len(x) - 1 for x in logs)
    r = (pairs * (r + (1 + 4 * r) / n) + 20 * 0.3) / (pairs + 20)
    r = min(max(r, 0.0), 0.8)
    inflation = (1 + r) / (1 - r)

    def v(size):
        h = sqrt(q * (1 - q) * min(inflation / size, 1))
        above, below = min(q + h, 1), max(q - h, 0)
        return mean(((quantile8(x, above) - quantile8(x, below)) / 2) ** 2 for x in logs)

    places = [quantile8(x, q) for x in logs]
    s2 = variance(places) if k > 1 else 0.0
    nu = 4 + k - 1
    floor = v(n) if spans_a_day else s0**2 + v(n)
    t2 = max((4 * (s0**2 + v(n)) + (k - 1) * s2) / nu, floor)
    d = quantile8(new_logs, q) - mean(places)
    se = sqrt(t2 * (1 + 1 / k) + max(0.0, v(len(new)) - v(n)))
    return d, se, float(student.sf(d / se, nu)), nu


def test_without_a_stored_session_there_is_no_baseline():
    """Nothing stored is said as such, whatever was measured."""
    assert compare([], SAMPLE).verdict is Verdict.NO_BASELINE
    assert compare([], []).verdict is Verdict.NO_BASELINE


@pytest.mark.parametrize("count", [0, 1, LEAST_REQUESTS - 1])
def test_too_few_new_requests_are_inconclusive(count):
    """Fewer than five requests decide nothing, not even twenty times as slow, and are never passed."""
    found = compare(stored(100, 101, 99), scaled(SAMPLE[:count], 20))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert str(LEAST_REQUESTS) in str(found.reason)
    assert found.delta is None


def test_stored_sessions_with_too_few_requests_do_not_count():
    """Only stored sessions of at least five requests are baseline; none of them is inconclusive."""
    short = [SAMPLE[: LEAST_REQUESTS - 1]] * 3
    assert compare(short, SAMPLE).verdict is Verdict.INCONCLUSIVE
    assert compare([*short, *stored(100, 101)], SAMPLE).sessions == 2


def test_five_requests_are_enough_to_be_judged():
    """At exactly five requests there is a figure."""
    assert compare(stored(100, 101, 99), SAMPLE[:LEAST_REQUESTS]).delta is not None


@pytest.mark.parametrize("count", [1, 5])
def test_values_that_are_all_equal_pass(count):
    """A clock that always says the same crashes nothing; with enough sessions it passes."""
    found = compare([[50.0] * 10] * count, [50.0] * 10)
    assert found.verdict is (Verdict.PASSED if count == 5 else found.verdict)
    assert found.verdict in (Verdict.PASSED, Verdict.INCONCLUSIVE)
    assert found.delta == pytest.approx(1.0)
    assert found.p_samples == 1.0


def test_values_that_are_all_equal_and_twice_as_slow_are_slower():
    """Without any spread within sessions a doubling is still a slowdown."""
    found = compare([[50.0] * 10] * 5, [100.0] * 10)
    assert found.verdict is Verdict.SLOWER
    assert found.delta == pytest.approx(2.0)


def test_a_value_of_zero_is_judged_without_a_crash():
    """A clock too coarse to see a time gives zeros, which have no logarithm of their own."""
    assert compare([[0.0] * 10] * 5, [0.0] * 10).verdict is Verdict.PASSED


def test_the_same_code_passes():
    """Five sessions within a few percent of each other and a sixth like them."""
    assert compare(stored(100, 101, 99, 102, 98), scaled(SAMPLE, 1.01)).verdict is Verdict.PASSED


def test_a_shift_below_five_percent_passes_however_sure():
    """Four percent in every request are beyond chance, and too little to speak of."""
    found = compare(stored(100, 100.2, 99.8, 100.1, 99.9), scaled(SAMPLE, 1.04))
    assert found.p_samples <= 0.01
    assert found.verdict is Verdict.PASSED


def test_a_median_that_moved_does_not_pass_for_want_of_requests():
    """Five requests, three of them 12% slower: too few to be flagged, too many to pass."""
    found = compare(stored(100, 101, 99, 102, 98), [98.8, 112.0, 99.2, 112.5, 113.0])
    assert found.p_samples > 0.01
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "its median is" in str(found.reason)


def test_one_hiccup_passes():
    """A single request ten times as slow is no slowdown."""
    hiccup = [*SAMPLE[:-1], SAMPLE[-1] * 10]
    assert compare(stored(100, 101, 99, 102, 98), hiccup).verdict is Verdict.PASSED


def test_sixty_percent_slower_than_five_sessions_is_slower():
    """A clear slowdown is called one, with its size."""
    found = compare(stored(100, 101, 99, 102, 98), scaled(SAMPLE, 1.6))
    assert found.verdict is Verdict.SLOWER
    assert found.delta == pytest.approx(1.6, rel=0.01)
    assert (found.baseline, found.now) == pytest.approx((100.4, 160.6), rel=0.01)
    assert found.at == "the fastest 10%"
    assert (found.at_baseline, found.at_now) == pytest.approx((99, 1.6 * 99), rel=0.01)


def test_one_stored_session_shows_a_large_slowdown_only():
    """With K = 1 the prior alone speaks: fifteen percent stays open, forty is slower."""
    assert compare(stored(100), scaled(SAMPLE, 1.15)).verdict is not Verdict.SLOWER
    assert compare(stored(100), scaled(SAMPLE, 1.40)).verdict is Verdict.SLOWER


def test_slower_requests_in_sessions_that_differ_as_much_are_no_slowdown():
    """Requests all slower than before prove nothing where sessions differ by as much."""
    found = compare(stored(70, 130, 90, 120, 100), scaled(SAMPLE, 1.35))
    assert found.p_samples is not None
    assert found.p_samples <= 0.01
    assert found.verdict in (Verdict.SUSPECT, Verdict.INCONCLUSIVE)


def test_half_of_the_requests_twice_as_slow_do_not_pass():
    """A slowdown that spares some requests hides from the low quantile, and does not pass for that."""
    half = [value * (2 if place % 2 else 1) for place, value in enumerate(SAMPLE)]
    assert compare(stored(100, 101, 99, 102, 98), half).verdict is not Verdict.PASSED


def test_most_requests_slower_are_seen_at_the_median():
    """Eight of ten requests at 2.5 times: the fastest two are as before, the median tells."""
    some = [value * (1 if place in (0, 5) else 2.5) for place, value in enumerate(SAMPLE)]
    found = compare(stored(100, 101, 99, 102, 98), some)
    assert found.verdict is Verdict.SLOWER
    assert found.delta == pytest.approx(2.5, rel=0.05)


def test_a_grown_tail_is_inconclusive():
    """Three of ten requests beyond nearly all before is more than chance, and does not pass."""
    tail = [value * (1.5 if place in (2, 5, 8) else 1) for place, value in enumerate(SAMPLE)]
    assert binom.sf(2, 10, 0.05) <= 0.02 < binom.sf(1, 10, 0.05)
    found = compare(stored(100, 101, 99, 102, 98), tail)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "3 of 10" in str(found.reason)


def test_a_tail_within_chance_passes():
    """Two of ten requests beyond nearly all before happen by chance."""
    tail = [value * (1.5 if place in (2, 5) else 1) for place, value in enumerate(SAMPLE)]
    assert compare(stored(100, 101, 99, 102, 98), tail).verdict is Verdict.PASSED


def test_faster_is_the_mirror_of_slower():
    """Forty percent less time is faster, by the same measure."""
    found = compare(stored(100, 101, 99, 102, 98), scaled(SAMPLE, 0.6))
    assert found.verdict is Verdict.FASTER
    assert found.delta == pytest.approx(0.6, rel=0.01)


@pytest.mark.parametrize("factor", [0.5, 0.93, 1.0, 1.12, 1.7])
def test_a_metric_of_which_more_is_better_is_judged_upside_down(factor):
    """Rates judged with larger_is_worse=False give the verdict and p values of their inverses."""
    sessions, new = stored(100, 101, 99, 102, 98), scaled(SAMPLE, factor)
    times = compare(sessions, new)
    rates = compare([[1000 / v for v in s] for s in sessions], [1000 / v for v in new], larger_is_worse=False)
    assert rates.verdict is times.verdict
    assert rates.p_session == pytest.approx(times.p_session)
    assert rates.p_samples == pytest.approx(times.p_samples)
    assert rates.delta == pytest.approx(1 / times.delta)
    assert rates.ci == pytest.approx((1 / times.ci[1], 1 / times.ci[0]))
    assert rates.baseline == pytest.approx(1000 / times.baseline)


def test_a_rate_that_falls_is_slower():
    """Half of the tokens per second is slower, where more is better."""
    found = compare(stored(100, 101, 99, 102, 98), scaled(SAMPLE, 0.5), larger_is_worse=False)
    assert found.verdict is Verdict.SLOWER
    assert found.delta == pytest.approx(0.5, rel=0.01)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("count", "spans_a_day"), [(1, True), (2, False), (5, True), (10, False)])
def test_the_low_location_is_what_the_page_says(noisy_sessions, seed, count, spans_a_day):
    """D, SE, p and the interval at the 10% quantile agree with a plain recomputation."""
    rng = np.random.default_rng(seed)
    *sessions, new = noisy_sessions(rng, count + 1, 12, between=0.03)
    new = scaled(new, 2.0) if seed % 2 else new[:8]
    prior_sd = 0.03 if count > 1 else 0.045
    d, se, p, nu = recomputed(sessions, new, 0.1, prior_sd, spans_a_day=spans_a_day)
    found = compare(sessions, new, spans_a_day=spans_a_day)
    assert log(found.delta) == pytest.approx(d)
    assert found.p_session == pytest.approx(p)
    half = student.ppf(0.975, nu) * se
    assert found.ci == pytest.approx((exp(d - half), exp(d + half)))
    assert found.visible == pytest.approx(max(1.05, exp(student.ppf(1 - 0.005, nu) * se)))


@pytest.mark.parametrize("seed", range(4))
def test_the_mid_location_is_what_the_page_says(noisy_sessions, seed):
    """Where the median speaks, its D and p are those of quantile 0.5 with the wider prior."""
    rng = np.random.default_rng(seed)
    *sessions, new = noisy_sessions(rng, 6, 20)
    spared = [v * (1 if place % 5 == 0 else 2.5) for place, v in enumerate(new)]
    d, _, p, _ = recomputed(sessions, spared, 0.5, 0.10)
    found = compare(sessions, spared)
    assert found.verdict is Verdict.SLOWER
    assert log(found.delta) == pytest.approx(d)
    assert found.p_session == pytest.approx(p)


def test_the_p_of_the_samples_is_mann_whitney_against_the_pooled_baseline():
    """`p_samples` is the one-sided test of all new against all stored requests."""
    sessions, new = stored(100, 103.3, 97.9), [value * 1.0127 for value in SAMPLE]
    pooled = [value for session in sessions for value in session]
    assert len({*pooled, *new}) == len(pooled) + len(new)
    expected = mannwhitneyu(new, pooled, alternative="greater", method="exact").pvalue
    assert compare(sessions, new).p_samples == pytest.approx(expected)


def test_sessions_of_one_afternoon_are_not_taken_to_agree():
    """Until sessions span a day, their agreement makes the standard error no smaller than the prior's."""
    sessions, new = stored(100, 100.1, 99.9, 100, 100), scaled(SAMPLE, 1.05)
    of_days, of_hours = (compare(sessions, new, spans_a_day=spans) for spans in (True, False))
    assert of_hours.visible > of_days.visible
    assert of_hours.p_session > of_days.p_session
    assert of_hours.ci[0] < of_days.ci[0]
    assert of_hours.ci[1] > of_days.ci[1]


def test_sessions_that_differ_widely_are_no_steadier_for_spanning_a_day():
    """Where the seen spread is above the prior's, the span of time changes nothing."""
    sessions, new = stored(80, 125, 95, 110, 100), SAMPLE
    assert compare(sessions, new, spans_a_day=True) == compare(sessions, new, spans_a_day=False)


def test_many_comparisons_ask_for_a_clearer_slowdown():
    """What is slower alone is suspect among a thousand; the figures stay the same."""
    sessions, new = stored(100, 101, 99, 102, 98), scaled(SAMPLE, 1.22)
    alone, among_many = compare(sessions, new), compare(sessions, new, comparisons=1000)
    assert alone.verdict is Verdict.SLOWER
    assert among_many.verdict is Verdict.SUSPECT
    assert among_many.p_session == alone.p_session
    assert among_many.visible > alone.visible


def test_five_comparisons_ask_for_no_more_than_one():
    """Up to 2 M p ≤ 0.05 with p ≤ 0.005, M = 5 changes nothing."""
    sessions, new = stored(100, 101, 99, 102, 98), scaled(SAMPLE, 1.22)
    assert compare(sessions, new, comparisons=5) == compare(sessions, new, comparisons=1)


def test_only_the_last_ten_sessions_count():
    """Sessions before the last ten are not looked at."""
    recent = stored(*(100 + step for step in range(-5, 5)))
    ancient = [scaled(SAMPLE, 5.0), scaled(SAMPLE, 0.2)]
    found = compare([*ancient, *recent], SAMPLE)
    assert found == compare(recent, SAMPLE)
    assert found.sessions == WINDOW


def test_the_order_of_sessions_does_not_matter(noisy_sessions):
    """The stored sessions of a window are exchangeable."""
    rng = np.random.default_rng(5)
    *sessions, new = noisy_sessions(rng, 8)
    forth, back = asdict(compare(sessions, new)), asdict(compare(sessions[::-1], new))
    for name, value in forth.items():
        expected = (
            pytest.approx(value) if isinstance(value, float | tuple) and name != "more_sessions" else value
        )
        assert back[name] == expected, name


def test_the_order_of_requests_moves_the_error_only(noisy_sessions):
    """Order within a session tells of correlation: ratio and Mann-Whitney p do not depend on it."""
    rng = np.random.default_rng(6)
    *sessions, new = noisy_sessions(rng, 6)
    shuffled = [rng.permutation(session).tolist() for session in sessions]
    before, after = compare(sessions, new), compare(shuffled, rng.permutation(new).tolist())
    assert after.delta == pytest.approx(before.delta)
    assert after.p_samples == pytest.approx(before.p_samples)


def test_correlated_requests_widen_the_interval(noisy_sessions):
    """The same values drifting up within each session say less than the same values shuffled."""
    rng = np.random.default_rng(7)
    *sessions, new = noisy_sessions(rng, 6, between=0.0, within=0.10)
    drifting = compare([sorted(session) for session in sessions], new)
    mixed = compare(sessions, new)
    assert drifting.ci[1] / drifting.ci[0] > mixed.ci[1] / mixed.ci[0]


def test_a_unit_makes_no_difference():
    """Milliseconds or seconds: the same verdict, ratio and p."""
    sessions, new = stored(100, 101, 99, 102, 98), scaled(SAMPLE, 1.3)
    big = compare([scaled(s, 1000) for s in sessions], scaled(new, 1000))
    small = compare(sessions, new)
    assert big.verdict is small.verdict
    assert (big.delta, big.p_session) == pytest.approx((small.delta, small.p_session))
    assert big.baseline == pytest.approx(1000 * small.baseline)


def test_ratio_and_interval_bracket_the_truth(noisy_sessions):
    """Over 60 sets of sessions the 95% interval holds the true ratio at least nine times of ten."""
    rng = np.random.default_rng(8)
    held = 0
    for _ in range(60):
        *sessions, new = noisy_sessions(rng, 6)
        found = compare(sessions, scaled(new, 1.25))
        assert found.ci[0] < found.delta < found.ci[1]
        held += found.ci[0] <= 1.25 <= found.ci[1]
    assert held >= 54


def test_unchanged_code_is_left_alone_where_mann_whitney_cries_wolf(noisy_sessions):
    """Of 100 unchanged runs, sessions 5% apart, at most 3 are slower; Mann-Whitney says 20 or more."""
    rng = np.random.default_rng(9)
    runs = []
    for _ in range(100):
        *sessions, new = noisy_sessions(rng, 6, between=0.05)
        runs.append(compare(sessions, new))
    assert sum(run.verdict is Verdict.SLOWER for run in runs) <= 3
    assert sum(run.p_samples < 0.05 for run in runs) >= 20


def test_twenty_percent_slower_is_found(noisy_sessions):
    """Sessions 2% apart, five stored: at least 54 of 60 slowdowns by 20% are found and none passes."""
    rng = np.random.default_rng(10)
    verdicts = []
    for _ in range(60):
        *sessions, new = noisy_sessions(rng, 6)
        verdicts.append(compare(sessions, scaled(new, 1.2)).verdict)
    assert verdicts.count(Verdict.SLOWER) >= 54
    assert Verdict.PASSED not in verdicts


@pytest.mark.parametrize("count", [1, 3, 5, 10])
def test_the_visible_slowdown_is_the_edge_of_significance(noisy_sessions, count):
    """A shift just above `visible` is significant, one just below is not."""
    rng = np.random.default_rng(count)
    *sessions, new = noisy_sessions(rng, count + 1)
    found = compare(sessions, new)
    edge = found.visible / found.delta
    above, below = compare(sessions, scaled(new, edge * 1.001)), compare(sessions, scaled(new, edge / 1.001))
    assert above.p_session <= LOW.alpha < below.p_session
    assert above.verdict is Verdict.SLOWER
    assert below.verdict is not Verdict.SLOWER


def test_more_sessions_see_smaller_slowdowns():
    """With sessions of the same spread, the visible slowdown shrinks as they become more."""
    seen = [compare(stored(*[99, 101] * pairs), SAMPLE).visible for pairs in (1, 2, 3, 5)]
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] < seen[0]


def test_a_smaller_slowdown_asks_for_more_sessions():
    """Ten percent needs at least as many further sessions as twenty, where the window can show it at all."""
    for levels in ([100], [100, 103], [100, 104, 98], [96, 100, 104, 100]):
        (twenty, for_twenty), (ten, for_ten) = compare(stored(*levels), SAMPLE).more_sessions
        assert (twenty, ten) == (1.2, 1.1)
        assert for_twenty is not None
        assert for_ten is None or for_ten >= for_twenty


def test_what_is_visible_already_asks_for_no_more_sessions():
    """Where 20% would be seen now, no further session is needed for it; where not, some are."""
    seen, unseen = compare(stored(100, 101, 99, 102, 98), SAMPLE), compare(stored(100), SAMPLE)
    assert seen.visible < 1.2 < unseen.visible
    assert dict(seen.more_sessions)[1.2] == 0
    assert dict(unseen.more_sessions)[1.2] > 0


def test_sessions_that_differ_too_much_are_helped_by_no_number():
    """Where even a full window could not show it, the number of sessions is None."""
    assert dict(compare(stored(60, 160, 90, 130), SAMPLE).more_sessions)[1.1] is None


@pytest.mark.parametrize("levels", [(70, 130, 90, 120), (86, 114, 93, 107)])
def test_an_uncertain_baseline_does_not_pass(levels):
    """Sessions that differ widely leave a slowdown of more than 20% open, so nothing passes."""
    found = compare(stored(*levels), SAMPLE)
    assert found.ci[1] > 1.2
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "it could be up to" in str(found.reason)


def test_the_median_asks_for_a_smaller_p_than_the_low_quantile():
    """The location with the wider prior has the stricter limit."""
    assert MID.prior_sd > LOW.prior_sd
    assert MID.alpha < LOW.alpha


def test_suspects_in_a_row_are_slower_together():
    """Each alone could be chance; that all of the last runs are slow is not."""
    baseline, new = stored(100, 102, 98, 101, 99), scaled(SAMPLE, 1.09)
    assert compare(baseline, new).verdict is Verdict.SUSPECT
    together = compare(baseline, new, pending=[new, new], pending_span_a_day=True)
    assert together.verdict is Verdict.SLOWER
    assert "this run and the 2 suspect runs before it" in str(together.reason)


def test_suspects_of_one_day_say_less_than_those_of_several():
    """They share the mood of a machine, so their mean is known less well."""
    baseline, new = stored(100, 102, 98, 101, 99), scaled(SAMPLE, 1.09)
    same, apart = (
        compare(baseline, new, pending=[new, new], pending_span_a_day=apart) for apart in (False, True)
    )
    assert apart.ci[1] - apart.ci[0] < same.ci[1] - same.ci[0]


def test_what_is_not_a_number_never_passes():
    """It is left out: of a stored session with it nothing is believed, and passing needs evidence."""
    nan, good = float("nan"), stored(100, 102, 98)
    assert compare([[*SAMPLE[:-1], nan], *good], SAMPLE).sessions == 3
    for value in (nan, float("inf")):
        assert compare(good, [value] * 10).verdict is Verdict.INCONCLUSIVE
        assert compare([[value] * 10], SAMPLE).verdict is Verdict.INCONCLUSIVE
