"""The sentences that a person reads."""

import pytest

from pytest_llmspeed.messages import budgets, comparisons, figures, speed
from pytest_llmspeed.metrics.budgets import BudgetCheck
from pytest_llmspeed.metrics.reasons import Reason
from pytest_llmspeed.regression.verdicts import Comparison, Verdict

SLOWER = Comparison(
    Verdict.SLOWER,
    metric="ttft_ms",
    baseline=240.0,
    now=312.4,
    delta=1.3017,
    ci=(1.18, 1.43),
    visible=1.15,
    sessions=5,
)


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [(1.28, "+28%"), (0.7, "-30%"), (1.05, "+5.0%"), (0.984, "-1.6%"), (1.0, "+0.0%")],
)
def test_a_ratio_is_shown_as_a_signed_change(ratio, expected):
    """Whole percents from ten on, one decimal below."""
    assert figures.percent(ratio) == expected


@pytest.mark.parametrize(
    ("value", "metric", "expected"),
    [
        (312.4, "ttft_ms", "312 ms"),
        (5.678, "tpot_ms", "5.68 ms"),
        (0.01234, "itl_ms", "0.0123 ms"),
        (12345.6, "e2e_ms", "12,346 ms"),
        (25.0, "throughput_tps", "25 tokens/s"),
        (0.25, "error_rate", "0.25"),
        (0.0, "error_rate", "0"),
        (999.7, "ttft_ms", "1,000 ms"),
    ],
)
def test_a_quantity_is_shown_to_three_figures_with_its_unit(value, metric, expected):
    """No digits that nobody measured, and no powers of ten."""
    assert figures.quantity(value, metric) == expected


def test_a_missed_budget_says_by_how_much_and_how_sure():
    """Value, limit, interval."""
    check = BudgetCheck("ttft_p95_ms", 300.0, 412.0, False, (350.0, None))
    assert budgets.missed(check, "ttft_ms") == (
        "ttft_p95_ms is 412 ms, above its budget of 300 ms (95% interval at least 350 ms)"
    )


def test_a_missed_lower_limit_is_told_as_below():
    """A rate misses its budget from the other side."""
    check = BudgetCheck("throughput_tps", 25.0, 24.0, False, (20.0, 26.0), "chat")
    assert budgets.missed(check, "throughput_tps") == (
        "throughput_tps of 'chat' is 24 tokens/s, below its budget of 25 tokens/s "
        "(95% interval 20 tokens/s to 26 tokens/s)"
    )


def test_a_budget_that_could_not_be_measured_says_why():
    """The reason stands where the value would."""
    check = BudgetCheck("tpot_ms", 40.0, None, False, reason=Reason.AS_WRITTEN(text="no token counts"))
    assert budgets.missed(check, "tpot_ms") == "tpot_ms not measured: no token counts"


def test_a_slower_test_is_told_with_figures_and_what_changed():
    """Old → new, change, interval, sessions, and what is different since."""
    assert speed.slower(SLOWER, ["torch: 2.5 → 2.6"]) == (
        "ttft_ms is slower than its baseline: 240 ms → 312 ms, +30% "
        "(95% interval +18% to +43%, 5 stored sessions); changed since: torch: 2.5 → 2.6"
    )


def test_nothing_changed_is_not_mentioned():
    """The sentence ends with its figures."""
    assert speed.slower(SLOWER, []).endswith("5 stored sessions)")


def test_one_session_is_singular():
    """Grammar is part of trust."""
    single = Comparison(
        Verdict.SLOWER, metric="ttft_ms", baseline=1.0, now=2.0, delta=2.0, ci=(1.5, 3.0), sessions=1
    )
    assert speed.moved(single).endswith("1 stored session)")


def test_a_faster_test_is_told_to_be_stored():
    """A speed-up that is not stored is not guarded."""
    found = Comparison(
        Verdict.FASTER, metric="tpot_ms", baseline=20.0, now=12.0, delta=0.6, ci=(0.55, 0.66), sessions=5
    )
    assert speed.faster(found) == (
        "tpot_ms is faster: 20 ms → 12 ms, -40% (95% interval -45% to -34%, 5 stored sessions); "
        "store it as the new baseline: pytest --llmspeed-update-baseline"
    )


def test_accepting_names_both_options():
    """The command can be copied."""
    assert speed.how_to_accept() == (
        'if this is meant, accept it: pytest --llmspeed-update-baseline --llmspeed-accept "why"'
    )


def test_inconclusive_says_what_would_be_seen_and_what_would_help():
    """The smallest visible slowdown and the number of further sessions."""
    found = Comparison(
        Verdict.INCONCLUSIVE,
        Reason.AS_WRITTEN(text="sessions differ as much"),
        "tpot_ms",
        "chat",
        visible=1.32,
        more_sessions=((1.2, 2), (1.1, 6)),
    )
    assert speed.undecided(found) == (
        "tpot_ms of 'chat' is undecided: sessions differ as much; a slowdown under 32% would not show; "
        "store 2 more sessions to see 20%: pytest --llmspeed-update-baseline"
    )


def test_sessions_that_would_not_help_are_not_asked_for():
    """Nothing is promised that no number within the window could keep."""
    found = Comparison(
        Verdict.INCONCLUSIVE,
        Reason.AS_WRITTEN(text="x"),
        "tpot_ms",
        visible=1.9,
        more_sessions=((1.2, None), (1.1, None)),
    )
    assert speed.undecided(found).endswith(
        "a slowdown under 90% would not show; "
        "more sessions would not help: raise rounds=, or use a quieter machine"
    )


def test_where_enough_sessions_are_stored_the_test_is_to_be_run_again():
    """Neither more sessions nor more rounds: what was odd was this run."""
    found = Comparison(
        Verdict.INCONCLUSIVE,
        Reason.AS_WRITTEN(text="x"),
        "tpot_ms",
        visible=1.07,
        more_sessions=((1.2, 0), (1.1, 0)),
    )
    assert speed.undecided(found).endswith("; run it again; if it persists, look at what changed")


def test_too_few_requests_ask_for_more():
    """Without any figure the fix is to measure more."""
    found = Comparison(Verdict.INCONCLUSIVE, Reason.TOO_FEW_REQUESTS(requests=3, least=5), "ttft_ms")
    assert speed.undecided(found) == (
        "ttft_ms is undecided: 3 requests were measured, at least 5 are needed; "
        "measure ten with llm_client.measure(…) or rounds(10)"
    )
    assert comparisons.too_few_requests(1, 5).startswith("1 request was measured")


@pytest.mark.parametrize(
    ("ci", "said"),
    [
        ((None, 450.0), " (95% interval at most 450 ms)"),
        ((None, None), " (too few requests for an interval)"),
        (None, ""),
    ],
)
def test_an_interval_without_an_end_is_told_in_words(ci, said):
    """No question mark where a number should stand."""
    check = BudgetCheck("ttft_ms", 300.0, 412.0, False, ci)
    assert budgets.missed(check, "ttft_ms") == f"ttft_ms is 412 ms, above its budget of 300 ms{said}"


def test_no_baseline_says_how_to_store_one():
    """The option, and nothing else where nothing is stored."""
    assert speed.no_baseline("", ()) == "no baseline yet: store one with pytest --llmspeed-update-baseline"


def test_a_baseline_of_another_environment_is_pointed_out():
    """Its name, and the setting that would unite the two."""
    sentence = speed.no_baseline("store/here", ("box", "other"))
    assert "there is one for box, other" in sentence
    assert "llmspeed_environment" in sentence


def test_failed_requests_are_told_with_their_error_and_the_budget_that_allows_them():
    """Count, total, last error, fix."""
    assert speed.requests_failed(2, 10, "HTTP 500: oops") == (
        "2 of 10 requests failed, the last with: HTTP 500: oops; "
        "allow them with llm_budget(error_rate=…) if that is meant"
    )


@pytest.mark.parametrize(("now", "word"), [(236.0, "grew"), (3.0, "shrank")])
def test_a_prompt_that_moved_is_told_first(now, word):
    """Whose prompt, before, now; the change of the times follows."""
    found = Comparison(Verdict.SLOWER, metric="ttft_ms", stratum="call 2", prompt_tokens=(8.0, now))
    assert speed.slower(found, ()).startswith(
        f"the prompt of call 2 {word} from 8 to {now:g} tokens; ttft_ms"
    )


def test_nothing_measured_names_a_client_that_is_not_ours():
    """A fixture of the same name is the usual cause, so its file is told."""
    assert "conftest.py" in speed.nothing_measured("conftest.py")
    assert speed.nothing_measured(None) == (
        "nothing was measured: a test with llm_budget must send a request through llm_client"
    )


def test_a_close_call_is_told_with_its_interval():
    """A kept budget whose interval holds the limit."""
    check = BudgetCheck("ttft_ms", 300.0, 290.0, True, (280.0, 310.0))
    assert budgets.close_call(check, "ttft_ms") == (
        "ttft_ms is a close call: 290 ms, its budget is 300 ms (95% interval 280 ms to 310 ms); "
        "the next run may miss it"
    )
