"""What follows of a record, its budgets and its baseline: the table "What fails a test"."""

from dataclasses import replace

import pytest

from pytest_llmspeed.baselines.update import may_be_stored
from pytest_llmspeed.engines.backend import Backend
from pytest_llmspeed.judging.case import Case, Policy
from pytest_llmspeed.judging.comparing import compared_metrics, gated_metrics
from pytest_llmspeed.judging.judge import judge as judge_record
from pytest_llmspeed.metrics.budgets import parse_budgets
from pytest_llmspeed.records.record import TestRecord
from pytest_llmspeed.regression.verdicts import Verdict

DEFAULT, STRICT, REQUIRED = Policy(), Policy(strict=True), Policy(require_baseline=True)
ACCEPTING = Policy(accept="larger context")


def judge(record: TestRecord, case: Case, policy: Policy) -> TestRecord:
    """The judged record with its problems and advice as people read them."""
    judged = judge_record(record, case, policy)
    sentences = {name: tuple(map(str, getattr(judged, name))) for name in ("problems", "advice")}
    return replace(judged, **sentences)


def by_metric(judged):
    return {found.metric: found.verdict for found in judged.comparisons}


def test_an_unchanged_test_passes_without_a_word(record, samples, usual, case):
    """No problem, no advice, and it may be stored."""
    now = record(*samples())
    judged = judge(now, case(now, usual()), DEFAULT)
    assert by_metric(judged) == {"ttft_ms": Verdict.PASSED, "tpot_ms": Verdict.PASSED}
    assert (judged.verdict, judged.problems, judged.advice) == (Verdict.PASSED, (), ())
    assert may_be_stored(judged)


def test_a_slower_test_fails_with_figures_and_the_way_to_accept(record, samples, usual, case):
    """One sentence that fails it, one that says how to accept, and nothing is stored."""
    now = record(*samples(slow=1.6))
    judged = judge(now, case(now, usual()), DEFAULT)
    assert judged.verdict is Verdict.SLOWER
    (problem,) = judged.problems
    assert problem.startswith("ttft_ms is slower than its baseline: 100 ms → 161 ms; compared at the fastest")
    assert "+6" in problem
    assert "5 stored sessions" in problem
    assert "--llmspeed-accept" in judged.advice[0]
    assert not may_be_stored(judged)


def test_a_slower_test_is_told_what_changed_since(record, samples, usual, case):
    """Versions, options and the commit that differ from the newest session of the baseline."""
    now = record(*samples(slow=1.6), backend=Backend("tiny", precision="fp32", versions={"torch": "2.7"}))
    (problem,) = judge(now, case(now, usual()), DEFAULT).problems
    assert "torch: 2.6 → 2.7" in problem
    assert "commit: abc → def" in problem


def test_the_metric_that_became_slower_speaks_for_the_test(record, samples, usual, case):
    """TPOT alone is slower: TTFT passes, the test is slower and names TPOT."""
    now = record(*samples(slow_tokens=1.6))
    judged = judge(now, case(now, usual()), DEFAULT)
    assert by_metric(judged) == {"ttft_ms": Verdict.PASSED, "tpot_ms": Verdict.SLOWER}
    assert judged.verdict is Verdict.SLOWER
    assert judged.problems[0].startswith("tpot_ms is slower")


def test_each_slower_metric_has_its_sentence(record, samples, usual, case):
    """Two metrics are two sentences, and one way to accept them."""
    now = record(*samples(slow=1.5, slow_tokens=2.5))
    judged = judge(now, case(now, usual()), DEFAULT)
    assert [problem.split(" is ")[0] for problem in judged.problems] == ["ttft_ms", "tpot_ms"]
    assert len(judged.advice) == 1


def test_a_rate_that_fell_is_told_as_slower(record, samples, usual, case):
    """A budget on throughput gates it, and less of it is worse."""
    now = record(*samples(throughput_tps=10.0))
    judged = judge(now, case(now, usual(), {"throughput_tps": 1}), DEFAULT)
    assert by_metric(judged)["throughput_tps"] is Verdict.SLOWER
    assert judged.problems[0].startswith(
        "throughput_tps is slower than its baseline: 30.8 tokens/s → 10 tokens/s"
    )


def test_of_two_slower_prompts_the_larger_change_is_told(record, samples, case):
    """The sentence is about the worst stratum, whichever was asked first."""

    def both(level, first=1.0, second=1.0):
        return record(*samples(level * first, level), *samples(level * second, level, stratum="prompt 2"))

    now = both(1.0, first=1.5, second=4.0)
    judged = judge(now, case(now, [both(level) for level in (1.0, 1.01, 0.99, 1.02, 0.98)]), DEFAULT)
    assert "+300%" in judged.problems[0]


def test_an_accepted_slowdown_passes_and_is_stored(record, samples, usual, case):
    """With a reason, slower is no problem: it is stored as the start of a level."""
    now = record(*samples(slow=1.6))
    judged = judge(now, case(now, usual()), ACCEPTING)
    assert judged.verdict is Verdict.SLOWER
    assert (judged.problems, judged.accepted) == ((), "larger context")
    assert may_be_stored(judged)


def test_accepting_concerns_slower_tests_only(record, samples, usual, case):
    """A test that passed is not marked as accepted, so it starts no level."""
    now = record(*samples())
    assert judge(now, case(now, usual()), ACCEPTING).accepted is None


def test_accepting_does_not_keep_a_missed_budget(record, samples, usual, case):
    """A limit stays a limit."""
    now = record(*samples(slow=1.6))
    judged = judge(now, case(now, usual(), {"ttft_ms": 120}), ACCEPTING)
    assert len(judged.problems) == 1
    assert "above its budget" in judged.problems[0]
    assert not may_be_stored(judged)


def test_a_faster_test_passes_and_is_stored(record, samples, usual, case):
    """It fails nothing, under the strictest policy too."""
    now = record(*samples(slow=0.6))
    judged = judge(now, case(now, usual()), Policy(require_baseline=True, strict=True))
    assert (judged.verdict, judged.problems) == (Verdict.FASTER, ())
    assert judged.advice[0].startswith(
        "ttft_ms is faster: 100 ms → 60.2 ms; compared at the fastest 10%: 98.9 ms → 59.4 ms, -40%"
    )
    assert may_be_stored(judged)


def test_a_suspect_passes_with_advice_and_fails_if_strict(record, samples, usual, case):
    """A slowdown that shows but is not beyond chance among many comparisons."""
    now = record(*samples(slow=1.22))
    lenient, strict = (judge(now, case(now, usual(), comparisons=1000), p) for p in (DEFAULT, STRICT))
    assert lenient.verdict is strict.verdict is Verdict.SUSPECT
    assert lenient.problems == ()
    assert "may be slower" in lenient.advice[0]
    assert may_be_stored(lenient)
    assert strict.problems[0].startswith("ttft_ms may be slower")
    assert strict.problems[0].endswith("(the test fails because of --llmspeed-strict)")
    assert strict.advice == ()


def test_too_few_requests_pass_with_advice_and_fail_if_strict(record, one_sample, usual, case):
    """Inconclusive is never passed, and says what to do."""
    now = record(one_sample())
    lenient, strict = (judge(now, case(now, usual()), policy) for policy in (DEFAULT, STRICT))
    assert lenient.verdict is strict.verdict is Verdict.INCONCLUSIVE
    assert lenient.problems == ()
    assert "at least 5 are needed" in lenient.advice[0]
    assert strict.problems[0].startswith("ttft_ms is undecided: 1 request was measured")


def test_no_baseline_passes_with_advice_and_fails_if_required(record, samples, case):
    """One line that says how to store one."""
    now = record(*samples())
    lenient, required = (judge(now, case(now), policy) for policy in (DEFAULT, REQUIRED))
    assert lenient.verdict is required.verdict is Verdict.NO_BASELINE
    assert (lenient.problems, len(lenient.advice)) == ((), 1)
    assert "--llmspeed-update-baseline" in lenient.advice[0]
    assert may_be_stored(lenient)
    assert required.problems[0].endswith("(the test fails because of --llmspeed-require-baseline)")


def test_what_an_option_fails_a_test_over_is_what_it_names(record, one_sample, samples, usual, case):
    """A new prompt beside an undecided one: each option speaks of its own."""
    fresh = (one_sample(stratum="prompt 2", ttft_ms=100.0 * each) for each in (1.0, 1.01, 0.99, 1.02, 1.03))
    now = record(one_sample(), *fresh)
    against = case(now, usual())
    assert judge(now, against, DEFAULT).verdict is Verdict.INCONCLUSIVE
    required, strict = (judge(now, against, policy) for policy in (REQUIRED, STRICT))
    assert required.problems[0].startswith("no baseline yet")
    assert "is undecided" in required.advice[0]
    assert strict.problems[0].startswith("ttft_ms of measured prompt 1 is undecided: 1 request was measured")
    both = judge(now, against, Policy(require_baseline=True, strict=True)).problems
    assert both == (*required.problems, *strict.problems)


def test_a_run_that_stores_is_not_told_to_store(record, samples, usual, case):
    """What else there is to say is said."""
    now, storing = record(*samples()), Policy(storing=True)
    assert judge(now, case(now), storing).advice == ()
    (elsewhere,) = judge(now, case(now, elsewhere=("gpu-box",)), storing).advice
    other = record(*samples(), backend=Backend("tiny", precision="bf16"))
    (differs,) = judge(other, case(other, usual()), storing).advice
    quick = record(*samples(slow=0.5, slow_tokens=0.5))
    (faster,) = judge(quick, case(quick, usual()), storing).advice
    for said, told in ((elsewhere, "llmspeed_environment"), (differs, "precision"), (faster, "is faster")):
        assert told in said
        assert "--llmspeed-update-baseline" not in said


def test_no_baseline_is_no_matter_of_strictness(record, samples, case):
    """--llmspeed-strict is about what could not be decided."""
    now = record(*samples())
    assert judge(now, case(now), STRICT).problems == ()


def test_no_baseline_shows_what_was_measured(record, samples, case):
    """The medians stand there for want of a comparison."""
    now = record(*samples())
    shown = {found.metric: found.now for found in judge(now, case(now), DEFAULT).comparisons}
    assert shown == pytest.approx({"ttft_ms": 100.4, "tpot_ms": 10.04})


def test_a_baseline_of_another_environment_is_named(record, samples, case):
    """Where this environment has none, those that have are told."""
    now = record(*samples())
    judged = judge(now, case(now, elsewhere=("gpu-box",)), DEFAULT)
    assert "gpu-box" in judged.advice[0]


def test_another_key_is_incomparable_and_fails_if_required(record, samples, usual, case):
    """What differs is named; without the option it passes and may be stored."""
    now = record(*samples(slow=5.0), workload=("measure other",))
    lenient, required = (judge(now, case(now, usual()), policy) for policy in (DEFAULT, REQUIRED))
    assert lenient.verdict is required.verdict is Verdict.INCOMPARABLE
    assert lenient.problems == ()
    assert "workload: measure chat → measure other" in lenient.advice[0]
    assert may_be_stored(lenient)
    assert required.problems[0].startswith("the baseline does not match this test")


def test_a_missed_budget_fails(record, samples, case):
    """Its own sentence, without a baseline too, and nothing is stored."""
    now = record(*samples())
    judged = judge(now, case(now, budgets={"ttft_ms": 50}), DEFAULT)
    (problem,) = judged.problems
    assert problem.startswith("ttft_ms is 100 ms, above its budget of 50 ms")
    assert not may_be_stored(judged)


def test_a_failing_test_is_not_told_to_store_a_baseline(record, samples, case):
    """Advice on the missing baseline would be beside the point."""
    now = record(*samples())
    assert judge(now, case(now, budgets={"ttft_ms": 50}), DEFAULT).advice == ()


def test_a_kept_budget_is_no_problem(record, samples, usual, case):
    """The check is there, kept."""
    now = record(*samples())
    judged = judge(now, case(now, usual(), {"ttft_ms": 500, "throughput_tps": 1}), DEFAULT)
    assert [check.kept for check in judged.budgets] == [True, True]
    assert (judged.problems, judged.advice) == ((), ())


def test_a_close_call_is_said_and_does_not_fail(record, samples, usual, case):
    """A kept budget whose interval holds the limit."""
    now = record(*samples())
    judged = judge(now, case(now, usual(), {"ttft_ms": 101}), STRICT)
    assert judged.problems == ()
    assert judged.advice[0].startswith("ttft_ms is a close call: 100 ms, its budget is 101 ms")


def test_an_error_budget_of_nothing_that_is_kept_is_no_close_call(record, samples, usual, case):
    """With error_rate=0 no interval can exclude the limit, so each good run would be told as close."""
    now = record(*samples())
    judged = judge(now, case(now, usual(), {"error_rate": 0}), DEFAULT)
    assert (judged.problems, judged.advice) == ((), ())


def test_all_that_is_wrong_is_told(record, samples, usual, case):
    """Two missed budgets and a slowdown are three sentences."""
    now = record(*samples(slow=1.6))
    judged = judge(now, case(now, usual(), {"ttft_ms": 50, "tpot_ms": 1}), DEFAULT)
    assert [problem.split()[0] for problem in judged.problems] == ["ttft_ms", "tpot_ms", "ttft_ms"]


def test_a_budget_that_cannot_be_measured_fails(record, samples, case):
    """None is not zero: "not measured", with the reason."""
    now = record(*samples(tpot_ms=None, output_tokens=None))
    judged = judge(now, case(now, budgets={"tpot_ms": 50}), DEFAULT)
    assert judged.problems[0].startswith("tpot_ms not measured: the server gave no token counts")


def test_a_quantile_of_too_few_samples_fails(record, samples, case):
    """With the number that it needs."""
    now = record(*samples())
    judged = judge(now, case(now, budgets={"ttft_p95_ms": 500}), DEFAULT)
    assert judged.problems == ("ttft_p95_ms not measured: p95 needs at least 20 samples, there are 10",)


def test_a_budgeted_test_that_measured_nothing_fails(record, case):
    """And names the client that is not ours, where that is the cause."""
    now = record()
    assert "nothing was measured" in judge(now, case(now, budgets={"ttft_ms": 50}), DEFAULT).problems[0]
    overridden = case(now, budgets={"ttft_ms": 50}, overridden_in="conftest.py")
    assert "conftest.py" in judge(now, overridden, DEFAULT).problems[0]


def test_a_test_without_budgets_that_measured_nothing_passes(record, case):
    """It has no verdict, and nothing to be stored."""
    now = record()
    judged = judge(now, case(now), Policy(require_baseline=True, strict=True))
    assert (judged.problems, judged.verdict) == ((), None)
    assert not may_be_stored(judged)


def test_a_client_that_lagged_is_told(record, one_sample, case):
    """Times between tokens that are partly our own pass, with a word."""
    flags = [frozenset({"client_lag"} if lags else ()) for lags in (1, 1, 0, 0, 0, 0)]
    samples = tuple(one_sample(flags=each) for each in flags)
    now = record(*samples)
    judged = judge(now, case(now), DEFAULT)
    assert judged.problems == ()
    assert judged.advice[-1].startswith("client lag: in 2 of 6 requests")


def test_failed_requests_of_measure_make_a_run_invalid(record, samples, one_sample, usual, case):
    """Nine good ones do not make up for it: the speed says nothing, and nothing is compared."""
    now = record(*samples()[:9], one_sample(error="HTTP 500: oops"))
    judged = judge(now, case(now, usual()), DEFAULT)
    assert (judged.verdict, judged.comparisons) == (Verdict.INVALID, ())
    assert judged.problems[0].startswith("1 of 10 requests failed, the last with: HTTP 500: oops")
    assert not may_be_stored(judged)


def test_an_error_budget_allows_failed_requests(record, samples, one_sample, usual, case):
    """Within it the run is valid and compared; beyond it the budget is missed."""
    now = record(*samples()[:9], one_sample(error="HTTP 500: oops"))
    allowed = judge(now, case(now, usual(), {"error_rate": 0.2}), DEFAULT)
    assert (allowed.problems, allowed.verdict) == ((), Verdict.PASSED)
    exceeded = judge(now, case(now, usual(), {"error_rate": 0.05}), DEFAULT)
    assert exceeded.problems[0].startswith("error_rate is 0.1, above its budget of 0.05")


def test_a_failure_that_the_test_caught_is_expected(record, samples, one_sample, usual, case):
    """`generate` raises: a test that goes on has dealt with it."""
    now = record(*samples(), one_sample(error="HTTP 400", call="generate"))
    judged = judge(now, case(now, usual()), DEFAULT)
    assert (judged.problems, judged.verdict) == ((), Verdict.PASSED)


def test_a_test_of_failures_alone_has_no_verdict(record, one_sample, usual, case):
    """Expected failures have no speed; nothing is compared and nothing stored."""
    now = record(*[one_sample(error="HTTP 400", call="generate")] * 5)
    judged = judge(now, case(now, usual()), DEFAULT)
    assert (judged.problems, judged.verdict, judged.comparisons) == ((), None, ())
    assert not may_be_stored(judged)


@pytest.mark.parametrize(("tokens", "named"), [(119, False), (121, True), (84, False), (82, True)])
def test_free_prompts_of_another_length_are_named_beside_the_times(
    record, samples, usual, case, tokens, named
):
    """More than 20% apart in prompt tokens, either way; the times are judged all the same."""
    now = record(*samples(call="generate", prompt_tokens=tokens))
    judged = judge(now, case(now, usual(call="generate")), DEFAULT)
    assert judged.verdict is Verdict.PASSED
    assert {found.prompt_tokens is not None for found in judged.comparisons} == {named}


def test_a_slowdown_with_a_longer_prompt_names_the_prompt_first_and_can_be_accepted(
    record, samples, usual, case
):
    """A prompt that grows is the slowdown that application teams look for."""
    now = record(*samples(slow=2.6, call="sdk", stratum="call 1", prompt_tokens=236))
    against = case(now, usual(call="sdk", stratum="call 1", prompt_tokens=8))
    failed, accepted = (judge(now, against, policy) for policy in (DEFAULT, Policy(accept="tools")))
    assert failed.problems[0].startswith("the prompt of call 1 grew from 8 to 236 tokens; ttft_ms is slower")
    assert (accepted.problems, accepted.accepted) == ((), "tools")
    assert may_be_stored(accepted)


def test_a_speed_up_with_a_shorter_prompt_is_stored_only_with_a_reason(record, samples, usual, case):
    """Else a truncated prompt would become the norm in silence."""
    now = record(*samples(slow=0.5, call="sdk", prompt_tokens=8))
    against = case(now, usual(call="sdk", prompt_tokens=236))
    plain, accepted = (judge(now, against, policy) for policy in (DEFAULT, Policy(accept="leaner")))
    assert plain.verdict is Verdict.FASTER
    assert plain.problems == ()
    assert not may_be_stored(plain)
    assert may_be_stored(accepted)


def test_declared_prompts_are_held_by_the_key_not_by_their_length(record, samples, usual, case):
    """A new tokenizer counts the same prompt differently: that is what is being tested."""
    now = record(*samples(prompt_tokens=150))
    assert judge(now, case(now, usual()), DEFAULT).verdict is Verdict.PASSED


@pytest.mark.parametrize(
    ("tokens", "verdict"), [(109, Verdict.PASSED), (111, Verdict.INCOMPARABLE), (90, Verdict.INCOMPARABLE)]
)
def test_answers_of_another_length_cannot_be_compared_end_to_end(
    record, samples, usual, case, tokens, verdict
):
    """More than 10% apart: E2E is incomparable; TTFT and TPOT are judged as usual."""
    stored = usual(output_tokens=100, output_events=100)
    now = record(*samples(output_tokens=tokens, output_events=tokens))
    judged = judge(now, case(now, stored, {"e2e_ms": 5000}), DEFAULT)
    assert by_metric(judged) == {"ttft_ms": Verdict.PASSED, "tpot_ms": Verdict.PASSED, "e2e_ms": verdict}


def test_longer_answers_do_not_hide_slower_tokens(record, samples, usual, case):
    """What does not follow the length is judged all the same."""
    now = record(*samples(slow_tokens=1.6, output_tokens=8, output_events=8))
    judged = judge(now, case(now, usual(), {"e2e_ms": 5000}), DEFAULT)
    assert judged.verdict is Verdict.SLOWER


def test_each_stratum_is_judged_on_its_own_and_the_worst_speaks(record, samples, case):
    """One prompt of two is slower: the test is, and its label is told."""

    def both(slow=1.0, level=1.0):
        first = samples(level, level, stratum="a/prompt 1", label="a")
        return record(*first, *samples(level * slow, level, stratum="b/prompt 1", label="b"))

    now = both(slow=1.6)
    judged = judge(now, case(now, [both(level=level) for level in (1.0, 1.01, 0.99, 1.02, 0.98)]), DEFAULT)
    found = {(each.metric, each.label, each.stratum): each.verdict for each in judged.comparisons}
    assert found == {
        ("ttft_ms", "a", "a/prompt 1"): Verdict.PASSED,
        ("tpot_ms", "a", "a/prompt 1"): Verdict.PASSED,
        ("ttft_ms", "b", "b/prompt 1"): Verdict.SLOWER,
        ("tpot_ms", "b", "b/prompt 1"): Verdict.PASSED,
    }
    assert judged.problems[0].startswith("ttft_ms of 'b' is slower")


def test_a_stratum_that_was_never_stored_has_no_baseline(record, samples, usual, case):
    """A new prompt of an old test says so, and the old ones are judged as usual."""
    now = record(*samples(), *samples(stratum="prompt 2"))
    judged = judge(now, case(now, usual()), DEFAULT)
    found = {(each.metric, each.stratum): each.verdict for each in judged.comparisons}
    assert found["ttft_ms", "prompt 1"] is Verdict.PASSED
    assert found["ttft_ms", "prompt 2"] is Verdict.NO_BASELINE
    assert judged.verdict is Verdict.NO_BASELINE


def test_a_metric_that_is_no_longer_given_is_not_passed_over(record, samples, usual, case):
    """A baseline with TPOT and a run without is inconclusive, never passed."""
    now = record(*samples(tpot_ms=None, output_tokens=None))
    judged = judge(now, case(now, usual()), DEFAULT)
    assert by_metric(judged) == {"ttft_ms": Verdict.PASSED, "tpot_ms": Verdict.INCONCLUSIVE}


def test_answers_that_were_not_streamed_are_compared_by_their_only_time(record, samples, usual, case):
    """Without TTFT and TPOT it is the end-to-end time, and no other metric is named."""
    silent = {"ttft_ms": None, "ttfo_ms": None, "tpot_ms": None, "flags": frozenset({"non_streaming"})}
    now = record(*samples(slow=1.6, **silent))
    judged = judge(now, case(now, usual(**silent)), DEFAULT)
    assert by_metric(judged) == {"e2e_ms": Verdict.SLOWER}


def test_a_budget_on_e2e_gates_what_was_not_streamed(record, samples, usual, case):
    """It is compared once."""
    silent = {"ttft_ms": None, "ttfo_ms": None, "tpot_ms": None, "flags": frozenset({"non_streaming"})}
    now = record(*samples(slow=1.6, **silent))
    judged = judge(now, case(now, usual(**silent), {"e2e_ms": 5000}), DEFAULT)
    assert by_metric(judged) == {"e2e_ms": Verdict.SLOWER}


def test_an_earlier_slower_attempt_stands(record, samples, usual, case):
    """A re-run that passes by luck does not undo what was found."""
    now = record(*samples())
    judged = judge(now, case(now, usual(), earlier="ttft_ms is slower"), DEFAULT)
    assert judged.problems == (
        "an earlier attempt of this test was slower, and that result stands: ttft_ms is slower",
    )
    assert not may_be_stored(judged)


def test_more_comparisons_are_asked_of_the_gate_as_a_whole(record, samples, usual, case):
    """M reaches the rule: what is slower alone is suspect among a thousand."""
    now = record(*samples(slow=1.22))
    verdicts = [judge(now, case(now, usual(), comparisons=m), DEFAULT).verdict for m in (1, 1000)]
    assert verdicts == [Verdict.SLOWER, Verdict.SUSPECT]


def test_a_baseline_of_one_afternoon_leaves_more_open(record, samples, usual, case):
    """Whether the window spans a day reaches the rule."""
    now = record(*samples())
    of_days = case(now, usual())
    of_hours = replace(of_days, window=replace(of_days.window, spans_a_day=False))
    wide, narrow = (judge(now, each, DEFAULT).comparisons[0].ci for each in (of_hours, of_days))
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_what_was_measured_is_kept_by_the_judgement(record, samples, usual, case):
    """Judging adds to a record and takes nothing from it."""
    now = record(*samples(slow=1.6))
    judged = judge(now, case(now, usual()), DEFAULT)
    assert (judged.measurement, judged.key, judged.nodeid) == (now.measurement, now.key, now.nodeid)


def test_the_same_record_gets_the_same_verdict(record, samples, usual, case):
    """Judging is a function of its arguments."""
    now = record(*samples(slow=1.3))
    assert judge(now, case(now, usual()), DEFAULT) == judge(now, case(now, usual()), DEFAULT)


@pytest.mark.parametrize(
    ("limits", "gated"),
    [
        ({"ttft_ms": 1}, ("ttft_ms", "tpot_ms")),
        ({"e2e_ms": 1, "throughput_tps": 1}, ("ttft_ms", "tpot_ms", "e2e_ms", "throughput_tps")),
        ({"e2e_p95_ms": 1, "error_rate": 0}, ("ttft_ms", "tpot_ms")),
        ({"e2e_mean_ms": 1, "label": "chat"}, ("ttft_ms", "tpot_ms", "e2e_ms")),
    ],
)
def test_ttft_and_tpot_are_gated_and_what_a_budget_names(limits, gated):
    """A tail and an error rate are limits, not comparisons."""
    assert gated_metrics(parse_budgets(limits)) == gated


def test_of_a_load_throughput_is_compared_too(record, samples, case):
    """So its prior is among those that are looked up."""
    series = case(record(*samples())).now.series["prompt 1"]
    assert compared_metrics(series, ()) == ("ttft_ms", "tpot_ms")
    load = replace(series, of_load=True)
    assert compared_metrics(load, ()) == ("ttft_ms", "tpot_ms", "throughput_tps")
    assert compared_metrics(load, parse_budgets({"throughput_tps": 1})) == compared_metrics(load, ())


def test_creep_is_seen_against_the_beginning_of_the_level(record, samples, case):
    """1% slower each session hides from the last ten; the level's first sessions show it."""
    stored = [record(*samples(1.01**day, 1.01**day)) for day in range(14)]
    now = record(*samples(1.01**14, 1.01**14))
    judged = judge(now, case(now, stored), DEFAULT)
    assert judged.verdict is Verdict.SUSPECT
    assert "it crept up in small steps since 2026-03-01" in judged.advice[0]
    assert judge(now, case(now, stored), ACCEPTING).accepted == "larger context"


def test_a_suspect_that_is_meant_can_be_accepted(record, samples, usual, case):
    """Else it would wait for ever."""
    now = record(*samples(slow_tokens=1.09))
    assert judge(now, case(now, usual()), DEFAULT).verdict is Verdict.SUSPECT
    assert judge(now, case(now, usual()), ACCEPTING).accepted == "larger context"


@pytest.mark.parametrize(
    ("declared", "cached", "said"),
    [("unknown", 99, True), ("unknown", 10, False), ("warm", 99, False), ("cold", 99, False)],
)
def test_a_warm_cache_that_nobody_declared_is_reported(record, samples, case, declared, cached, said):
    """One line: the share of the prompt, what it means for TTFT, and what to declare."""
    from_cache = (replace(sample, prompt_tokens=100, cached_tokens=cached) for sample in samples())
    now = replace(record(*from_cache), backend=Backend("openai", prefix_cache=declared))
    advice = judge(now, case(now), DEFAULT).advice
    line = "99% of the prompt tokens came from the prefix cache, so TTFT is that of a warm cache"
    assert any(line in each for each in advice) is said


def test_a_busy_machine_hides_no_figure(record, one_sample, case):
    """One row for each metric that would be compared; of answers without tokens' times, end to end."""
    streamed = [one_sample(flags=frozenset({"disturbed"})) for _ in range(6)]
    judged = judge(record(*streamed), case(record(*streamed)), Policy())
    assert {found.metric: found.now for found in judged.comparisons} == {"ttft_ms": 100.0, "tpot_ms": 10.0}
    whole = [replace(each, ttft_ms=None, ttfo_ms=None, tpot_ms=None) for each in streamed]
    judged = judge(record(*whole), case(record(*whole)), Policy())
    assert {found.metric: found.now for found in judged.comparisons} == {"e2e_ms": 130.0}
    assert judged.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("times", "row"),
    [({}, ("ttft_ms", 100.0)), ({"ttft_ms": None, "ttfo_ms": None, "tpot_ms": None}, ("e2e_ms", 130.0))],
)
def test_requests_that_overlapped_are_shown_by_a_metric_they_have(record, one_sample, case, times, row):
    """Answers that were not streamed have no TTFT: a row of that name would be empty."""
    now = record(*(replace(one_sample(flags=frozenset({"overlapped"})), **times) for _ in range(6)))
    (undecided,) = judge(now, case(now), Policy()).comparisons
    assert (undecided.metric, undecided.now) == row
