"""Budgets: what a mark may say, and whether a measurement keeps it."""

from math import inf, nan

import numpy as np
import pytest

from pytest_llmspeed.errors import SettingsError
from pytest_llmspeed.metrics.budget_checks import check
from pytest_llmspeed.metrics.budgets import (
    default_budgets,
    enough_rounds,
    in_environment,
    merged,
    parse_budgets,
    requests_needed,
)
from pytest_llmspeed.metrics.measurement import Measurement
from pytest_llmspeed.metrics.reasons import Reason

NAMES = [
    "ttft_ms",
    "ttft_p95_ms",
    "ttft_mean_ms",
    "ttft_min_ms",
    "ttft_max_ms",
    "ttfo_ms",
    "tpot_ms",
    "itl_p99_ms",
    "e2e_ms",
    "throughput_tps",
    "throughput_p10_tps",
    "error_rate",
    "peak_memory_mib",
]


def budget(**limits):
    """The one budget of a mark."""
    (only,) = parse_budgets(limits)
    return only


@pytest.mark.parametrize("name", NAMES)
def test_a_budget_is_named_as_the_mark_spells_it(name):
    """What reports and failures show can be found in the test's source."""
    assert budget(**{name: 0.5}).name == name


@pytest.mark.parametrize(
    ("name", "metric", "quantile"),
    [
        ("ttft_ms", "ttft", 0.5),
        ("ttft_median_ms", "ttft", 0.5),
        ("tpot_p90_ms", "tpot", 0.9),
        ("itl_p99_ms", "itl", 0.99),
        ("throughput_p5_tps", "throughput", 0.05),
        ("e2e_mean_ms", "e2e", None),
        ("e2e_max_ms", "e2e", None),
        ("error_rate", "error_rate", None),
        ("peak_memory_mib", "peak_memory", None),
    ],
)
def test_a_name_says_metric_and_statistic(name, metric, quantile):
    """The default statistic is the median; others stand before the unit."""
    parsed = budget(**{name: 1})
    assert (parsed.metric.name, parsed.quantile) == (metric, quantile)


def test_the_median_spelt_out_is_the_default():
    """Both spellings are the same budget, so that the closer one replaces the other."""
    assert budget(ttft_median_ms=3).slot == budget(ttft_ms=4).slot


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("ttf_ms", "ttft_ms"),
        ("tpot", "tpot_ms"),
        ("error_rat", "error_rate"),
        ("throughput_tok", "throughput_tps"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest(wrong, near):
    """The error names the value and proposes the fix."""
    with pytest.raises(SettingsError, match=rf"{wrong}=.*did you mean '{near}'"):
        budget(**{wrong: 3})


@pytest.mark.parametrize(
    "wrong",
    [
        "ttft_p100_ms",
        "ttft_p0_ms",
        "ttft_p095_ms",
        "ttft_mode_ms",
        "ttft_s",
        "ttft__ms",
        "error_rate_p95",
        "peak_memory_p95_mib",
        "speed",
    ],
)
def test_an_unknown_statistic_or_metric_is_refused(wrong):
    """Only median, mean, min, max and p1 to p99 of known metrics in their own unit."""
    with pytest.raises(SettingsError, match=wrong):
        budget(**{wrong: 3})


@pytest.mark.parametrize("value", [True, False, "300", nan, inf, [300], -inf])
def test_a_limit_that_is_no_finite_number_is_refused(value):
    """Neither a truth value, nor a text, nor infinity or NaN is a limit."""
    with pytest.raises(SettingsError, match="a limit must be a finite number"):
        budget(ttft_ms=value)


def test_a_negative_limit_is_refused():
    """The message holds the name and the value."""
    with pytest.raises(SettingsError, match=r"ttft_ms=-1\).*negative"):
        budget(ttft_ms=-1)


def test_an_error_rate_is_a_share():
    """More than 1 is refused, since it was meant as percent; 0 and 1 are limits."""
    with pytest.raises(SettingsError, match="between 0 and 1"):
        budget(error_rate=5)
    assert [budget(error_rate=share).limit for share in (0, 1)] == [0.0, 1.0]


def test_a_mark_without_a_limit_is_refused():
    """Neither no keyword at all nor one that only narrows."""
    for empty in ({}, {"label": "chat"}, {"backend": "vllm"}):
        with pytest.raises(SettingsError, match="sets no limit"):
            parse_budgets(empty)


def test_label_and_backend_narrow_every_limit_of_a_mark():
    """They are no limits themselves."""
    both = parse_budgets({"ttft_ms": 300, "tpot_ms": 40, "label": "chat", "backend": "vllm"})
    assert [(b.name, b.label, b.backend) for b in both] == [
        ("ttft_ms", "chat", "vllm"),
        ("tpot_ms", "chat", "vllm"),
    ]


@pytest.mark.parametrize("name", ["label", "backend"])
def test_narrowing_takes_a_string(name):
    """Anything else is refused by name."""
    with pytest.raises(SettingsError, match=rf"{name}=3\): {name} takes a string"):
        parse_budgets({"ttft_ms": 300, name: 3})


def test_a_budget_of_another_label_does_not_replace():
    """Budgets are replaced slot by slot: name, label and backend."""
    slots = {budget(ttft_ms=3).slot, budget(ttft_ms=3, label="a").slot, budget(ttft_ms=3, backend="b").slot}
    assert len(slots) == 3


@pytest.mark.parametrize(("observed", "kept"), [(299.0, True), (300.0, True), (300.1, False)])
def test_an_upper_limit_is_kept_up_to_its_value(measured, observed, kept):
    """A time at its limit is kept, one above is not."""
    found = check(budget(ttft_ms=300), measured([observed] * 3))
    assert (found.observed, found.kept) == (observed, kept)


@pytest.mark.parametrize(("observed", "kept"), [(24.9, False), (25.0, True), (60.0, True)])
def test_a_rate_has_a_lower_limit(measured, observed, kept):
    """Throughput at its limit is kept, below is not."""
    found = check(budget(throughput_tps=25), measured([observed] * 3, "throughput_tps"))
    assert (found.observed, found.kept) == (observed, kept)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ttft_ms", np.median),
        ("ttft_p90_ms", lambda v: np.quantile(v, 0.9)),
        ("ttft_mean_ms", np.mean),
        ("ttft_min_ms", np.min),
        ("ttft_max_ms", np.max),
    ],
)
def test_each_statistic_is_the_one_that_it_says(measured, name, expected):
    """Observed values agree with NumPy."""
    values = np.random.default_rng(4).lognormal(3, 0.5, 31).tolist()
    assert check(budget(**{name: 1}), measured(values)).observed == pytest.approx(expected(values))


def test_the_point_estimate_decides(measured):
    """A median just within its limit is kept although its interval reaches beyond."""
    found = check(budget(ttft_ms=100), measured([float(v) for v in range(80, 120)]))
    assert found.kept
    assert found.ci[1] > 100


def test_a_budget_is_held_for_its_label_only(sample):
    """Slow requests of another label do not count."""
    both = Measurement(
        (*[sample(label="chat", ttft_ms=10.0)] * 3, *[sample(label="bulk", ttft_ms=900.0)] * 3)
    )
    assert check(budget(ttft_ms=50, label="chat"), both).kept
    assert not check(budget(ttft_ms=50, label="bulk"), both).kept
    assert not check(budget(ttft_max_ms=50), both).kept


def test_a_label_that_was_never_used_is_not_measured(sample):
    """The reason names the labels that were."""
    found = check(budget(ttft_ms=50, label="chta"), Measurement((sample(label="chat"),)))
    assert (found.kept, found.observed) == (False, None)
    assert "'chta'" in str(found.reason)
    assert "['chat']" in str(found.reason)


def test_nothing_measured_is_not_kept():
    """No request is no proof."""
    found = check(budget(ttft_ms=50), Measurement())
    assert (found.kept, found.observed, found.reason) == (False, None, Reason.NO_REQUEST())


def test_a_quantile_of_too_few_samples_is_not_kept(measured):
    """The reason says how many are needed."""
    found = check(budget(ttft_p95_ms=50), measured([1.0] * 19))
    assert (found.kept, found.observed) == (False, None)
    assert "at least 20 samples, there are 19" in str(found.reason)


def test_failures_alone_are_not_measured(sample):
    """The reason shows the error."""
    found = check(budget(e2e_ms=50), Measurement((sample(error="HTTP 500: oops"),) * 2))
    assert not found.kept
    assert "all 2 requests failed: HTTP 500: oops" in str(found.reason)


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("ttft_ms", {"ttft_ms": None, "flags": frozenset({"non_streaming"})}, "not streamed"),
        ("tpot_ms", {"tpot_ms": None, "output_tokens": None}, "tokenizer="),
        ("throughput_tps", {"throughput_tps": None, "output_tokens": None}, "tokenizer="),
        ("tpot_ms", {"tpot_ms": None, "flags": frozenset({"buffered"})}, "proxy"),
        ("tpot_ms", {"tpot_ms": None, "output_tokens": 1, "output_events": 1}, "raise max_tokens"),
        ("itl_ms", {"output_tokens": 40}, "use tpot_ms"),
        ("ttfo_ms", {"ttfo_ms": None}, "ttfo_ms"),
    ],
    ids=[
        "non streaming",
        "no tokens",
        "no tokens for a rate",
        "buffered",
        "one token",
        "chunks",
        "reasoning only",
    ],
)
def test_a_metric_without_a_value_says_why(sample, name, fields, words):
    """Each symptom has its own sentence with the fix, and the budget is not kept."""
    found = check(budget(**{name: 50}), Measurement((sample(**fields),) * 3))
    assert (found.kept, found.observed) == (False, None)
    assert words in str(found.reason)


def test_an_error_rate_counts_failures(sample):
    """One failure of four is a rate of 0.25."""
    measurement = Measurement((sample(), sample(error="HTTP 500"), sample(), sample()))
    assert check(budget(error_rate=0.25), measurement).kept
    found = check(budget(error_rate=0.2), measurement)
    assert (found.observed, found.kept) == (0.25, False)
    assert 0 < found.ci[0] < 0.25 < found.ci[1] < 1


def test_an_error_rate_of_no_failures_is_zero(sample):
    """Zero failures are a measured zero."""
    found = check(budget(error_rate=0), Measurement((sample(),) * 10))
    assert (found.observed, found.kept) == (0.0, True)


def test_all_requests_failed_is_an_error_rate_of_one(sample):
    """An error rate is measured where no latency is."""
    found = check(budget(error_rate=0.5), Measurement((sample(error="HTTP 500"),) * 2))
    assert (found.observed, found.kept) == (1.0, False)


def test_the_interval_of_a_mean_is_students(measured):
    """Mean ± t sd/√n."""
    found = check(budget(ttft_mean_ms=50), measured([10.0, 12.0, 14.0, 16.0]))
    half = 3.182446 * np.std([10, 12, 14, 16], ddof=1) / 2
    assert found.ci == pytest.approx((13 - half, 13 + half))


def test_the_interval_of_a_median_holds_the_true_one(measured):
    """Over 200 samples of 15 the order-statistic interval covers the true median in 185 or more."""
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(200):
        low, high = check(budget(ttft_ms=1), measured(rng.exponential(10, 15).tolist())).ci
        held += low <= 10 * np.log(2) <= high
    assert held >= 185


def test_an_interval_that_the_samples_cannot_close_is_open(measured):
    """Twenty samples cannot bound a p95 from above."""
    low, high = check(budget(ttft_p95_ms=50), measured([float(v) for v in range(20)])).ci
    assert low is not None
    assert high is None


@pytest.mark.parametrize("name", ["ttft_min_ms", "ttft_max_ms"])
def test_extremes_have_no_interval(measured, name):
    """No interval is better than a wrong one."""
    assert check(budget(**{name: 50}), measured([1.0, 2.0, 3.0])).ci is None


def test_one_sample_has_no_interval(measured):
    """One value has no spread."""
    assert check(budget(ttft_ms=50), measured([1.0])).ci is None


def test_a_limit_within_the_interval_is_a_close_call(measured):
    """Close calls are where chance could have decided."""
    values = [float(v) for v in range(80, 120)]
    assert check(budget(ttft_ms=100), measured(values)).close_call
    assert not check(budget(ttft_ms=200), measured(values)).close_call
    assert not check(budget(ttft_ms=90), measured([1.0])).close_call


def test_a_bound_that_is_not_known_makes_no_close_call(measured):
    """Five requests at 5 ms have no interval, and are far from a budget of 300 ms; so has a p95 no end."""
    assert not check(budget(ttft_ms=300), measured([5.4, 5.5, 5.6, 5.5, 5.4])).close_call
    assert not check(budget(ttft_p95_ms=1000), measured([float(v) for v in range(20)])).close_call


@pytest.mark.parametrize(
    ("limits", "needed"),
    [
        ({"ttft_ms": 3}, 10),
        ({"ttft_p95_ms": 3}, 20),
        ({"ttft_p99_ms": 3, "tpot_p95_ms": 3}, 100),
        ({"itl_p99_ms": 3}, 10),
        ({"e2e_mean_ms": 3}, 10),
        ({"error_rate": 0}, 10),
    ],
)
def test_rounds_follow_from_what_the_budgets_need(limits, needed):
    """As many as the hungriest quantile wants, at least ten; gaps between tokens are many a request."""
    assert requests_needed(parse_budgets(limits), None, 10) == needed


def test_rounds_of_a_label_follow_from_its_own_budgets():
    """A p99 of another label asks for nothing here; one without a label does."""
    of_bulk = parse_budgets({"ttft_p99_ms": 3, "label": "bulk"})
    assert requests_needed(of_bulk, "chat", 10) == 10
    assert requests_needed(of_bulk, "bulk", 10) == 100
    assert requests_needed(parse_budgets({"ttft_p95_ms": 3}), "chat", 10) == 20
    assert requests_needed([], None, 10) == 10


@pytest.mark.parametrize(
    ("name", "gates"),
    [
        ("ttft_ms", True),
        ("e2e_mean_ms", True),
        ("throughput_tps", True),
        ("ttft_p95_ms", False),
        ("error_rate", False),
        ("peak_memory_mib", False),
    ],
)
def test_a_budget_on_the_middle_is_compared_too(name, gates):
    """A budget on a median or mean adds its metric to the gate; a tail or a share is a limit only."""
    assert budget(**{name: 1}).gates is gates


@pytest.mark.parametrize(("limit", "kept"), [(611.9, False), (612.0, True), (700.0, True)])
def test_a_budget_on_memory_is_held_for_the_peak(sample, limit, kept):
    """One figure a test, without an interval; at the limit it is kept, for a label too."""
    measurement = Measurement((sample(label="chat"),), peak_memory_mib=612.0)
    for found in (
        check(budget(peak_memory_mib=limit), measurement),
        check(budget(peak_memory_mib=limit, label="chat"), measurement),
    ):
        assert (found.observed, found.kept, found.ci, found.close_call) == (612.0, kept, None, False)


def test_memory_that_is_not_known_is_not_measured(sample):
    """Never taken for 0: the budget is missed, with the reason."""
    found = check(budget(peak_memory_mib=700), Measurement((sample(),)))
    assert (found.observed, found.kept) == (None, False)
    assert "the memory of this engine is not known" in str(found.reason)


def limits(budgets):
    return {(b.name, b.label, b.environment): b.limit for b in budgets}


def test_closer_limits_replace_those_of_their_name():
    """The farthest layer comes first; the settings lie beneath all."""
    defaults = default_budgets("ttft_ms=300 tpot_ms=40")
    assert limits(merged([[{"ttft_ms": 200}], [{"ttft_ms": 100}]], defaults)) == {
        ("ttft_ms", None, None): 100.0,
        ("tpot_ms", None, None): 40.0,
    }


@pytest.mark.parametrize(
    ("closer", "left"),
    [
        ({"ttft_ms": None}, set()),
        ({"ttft_ms": None, "label": "plan"}, {(None, None), (None, "h100")}),
        ({"ttft_ms": None, "environment": "h100"}, {(None, None), ("plan", None)}),
        ({"ttft_ms": None, "tpot_ms": 5}, set()),
        ({"tpot_ms": None}, {(None, None), ("plan", None), (None, "h100")}),
    ],
)
def test_none_lifts_a_limit(closer, left):
    """Without narrowing each of that name, else the one that is narrowed so."""
    farther = [
        {"ttft_ms": 1},
        {"ttft_ms": 2, "label": "plan"},
        {"ttft_ms": 3, "environment": "h100"},
    ]
    found = {(b.label, b.environment) for b in merged([farther, [closer]]) if b.name == "ttft_ms"}
    assert found == left


def test_a_misspelt_limit_cannot_be_lifted():
    """None is checked as any other limit."""
    with pytest.raises(SettingsError, match="no such budget"):
        merged([[{"ttf_ms": None}]])


@pytest.mark.parametrize(
    ("environment", "limit"),
    [("h100", 100.0), ("nvidia-h100-80gib", 200.0), ("amd-epyc", 300.0)],
)
def test_a_budget_of_an_environment_takes_the_place_of_the_general_one(environment, limit):
    """There, and only there; the others are named as not checked. Names are written as people do."""
    marks = [
        {"ttft_ms": 100, "environment": "H100"},
        {"ttft_ms": 200, "environment": "NVIDIA H100*"},
        {"ttft_ms": 300},
    ]
    holding, elsewhere = in_environment(merged([marks]), environment)
    assert [budget.limit for budget in holding] == [limit]
    assert all(found.kept is None and environment in str(found.reason) for found in elsewhere)
    assert len(elsewhere) == {100.0: 1, 200.0: 1, 300.0: 2}[limit]


def test_a_closer_general_budget_wins_over_a_farther_one_of_the_environment():
    """The closest counts, as everywhere."""
    marks = [[{"ttft_ms": 100, "environment": "h100"}], [{"ttft_ms": 500}]]
    holding, _ = in_environment(merged(marks), "h100")
    assert [budget.limit for budget in holding] == [500.0]


def test_a_smoke_run_leaves_out_tails_that_need_more_rounds():
    """They are not missed: they are not checked, and say why."""
    budgets = parse_budgets({"ttft_p95_ms": 300, "tpot_ms": 40, "error_rate": 0})
    checked, left_out = enough_rounds(budgets, 2)
    assert [budget.name for budget in checked] == ["tpot_ms", "error_rate"]
    assert [(found.name, found.kept) for found in left_out] == [("ttft_p95_ms", None)]
    assert left_out[0].reason == Reason.SMOKE_RUN_TOO_SHORT(needed=20, rounds=2)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ttft_ms=300 tpot_ms=40", {("ttft_ms", None, None): 300.0, ("tpot_ms", None, None): 40.0}),
        (
            ["ttft_ms=300", "label=plan ttft_ms=90"],
            {("ttft_ms", None, None): 300.0, ("ttft_ms", "plan", None): 90.0},
        ),
        ("", {}),
    ],
)
def test_default_budgets_are_words_of_a_setting(text, found):
    """A line is a mark."""
    assert limits(default_budgets(text)) == found


@pytest.mark.parametrize("text", ["ttft_ms", "ttft_ms=fast", "ttf_ms=3", "label=plan"])
def test_a_wrong_default_budget_is_named_with_its_setting(text):
    """Where it stands is part of the sentence."""
    with pytest.raises(SettingsError, match="llmspeed_budget: "):
        default_budgets(text)


def test_a_default_budget_asks_for_nothing():
    """A test that measured nothing it is for keeps it unchecked; a mark's would be missed."""
    (default,) = default_budgets("label=plan ttft_ms=300")
    found = check(default, Measurement(()))
    assert (found.kept, found.observed) == (None, None)
