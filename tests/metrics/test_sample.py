"""From an exchange to its sample: every formula, every flag, and None where nothing is defined."""

from dataclasses import replace

import numpy as np
import pytest

from pytest_llmspeed.metrics.exchange import Event, Exchange, Request, Usage
from pytest_llmspeed.metrics.sample import METRICS, sample_of

T0 = 100.0
LATENCIES = ("ttft_ms", "ttfo_ms", "tpot_ms", "e2e_ms", "throughput_tps")


def streamed(*events, output_tokens=None, **fields):
    """An exchange that began at T0 and ended well."""
    usage = None if output_tokens is None else Usage(prompt_tokens=7, output_tokens=output_tokens)
    known = {
        "request": Request("hello"),
        "started_s": T0,
        "events": events,
        "usage": usage,
        "token_source": usage and "usage",
        "finish_reason": "stop",
    }
    return Exchange(**{**known, **fields})


def token(after_ms, text="x", **fields):
    return Event(T0 + after_ms / 1000, text=text, **{"tokens": 1, **fields})


def four_tokens(**fields):
    return streamed(token(20), token(25), token(32), token(35), output_tokens=4, **fields)


def test_ttft_is_the_time_to_the_first_output_event():
    """The first event's stamp less t0, in ms."""
    assert sample_of(four_tokens()).ttft_ms == pytest.approx(20)


def test_e2e_is_the_time_to_the_last_output_event():
    """The last event's stamp less t0."""
    assert sample_of(four_tokens()).e2e_ms == pytest.approx(35)


def test_tpot_is_the_time_after_the_first_event_by_the_tokens_after_it():
    """(last - first) / (N - k) with one token in the first event."""
    assert sample_of(four_tokens()).tpot_ms == pytest.approx(15 / 3)


def test_tpot_takes_off_all_tokens_of_the_first_event():
    """With k = 3 of N = 9 tokens in the first event, six tokens share the time."""
    exchange = streamed(token(20, tokens=3), token(50, tokens=6), output_tokens=9)
    assert sample_of(exchange).tpot_ms == pytest.approx(30 / 6)


def test_itl_is_the_gaps_between_output_events():
    """Consecutive stamps, in order."""
    assert sample_of(four_tokens()).itl_ms == pytest.approx((5, 7, 3))


def test_throughput_is_the_tokens_by_the_whole_time():
    """N / E2E, in tokens per second."""
    assert sample_of(four_tokens()).throughput_tps == pytest.approx(4 / 0.035)


def test_ttfo_is_the_time_to_the_first_answer_after_reasoning():
    """Reasoning counts for TTFT and not for TTFO."""
    sample = sample_of(streamed(token(20, "", reasoning="hm"), token(60), output_tokens=2))
    assert (sample.ttft_ms, sample.ttfo_ms) == pytest.approx((20, 60))


@pytest.mark.parametrize("part", ["refusal", "tool_call"])
def test_refusals_and_tool_calls_are_answers(part):
    """TTFO is given by any output that is not reasoning."""
    sample = sample_of(
        streamed(token(20, "", reasoning="hm"), token(40, "", **{part: "no"}), output_tokens=2)
    )
    assert sample.ttfo_ms == pytest.approx(40)
    assert "no_answer" not in sample.flags


def test_reasoning_alone_has_no_time_to_an_answer():
    """An answer that is all reasoning has a TTFT, no TTFO, and is flagged."""
    sample = sample_of(
        streamed(token(20, "", reasoning="hm"), token(30, "", reasoning="so"), output_tokens=2)
    )
    assert sample.ok
    assert sample.ttft_ms == pytest.approx(20)
    assert sample.ttfo_ms is None
    assert "no_answer" in sample.flags


def test_a_good_exchange_has_no_flags():
    """Flags are for what is unusual."""
    assert sample_of(four_tokens()).flags == frozenset()


@pytest.mark.parametrize("tokens", [1, 0])
def test_tpot_is_undefined_without_a_token_after_the_first_event(tokens):
    """N - k < 1 is None, never zero or infinite."""
    exchange = streamed(token(20, tokens=1), token(30, tokens=None), output_tokens=tokens)
    assert sample_of(exchange).tpot_ms is None


def test_tpot_is_undefined_with_a_single_output_event():
    """One event has no time after it, however many tokens it carries."""
    sample = sample_of(streamed(token(20, tokens=8), output_tokens=8))
    assert sample.tpot_ms is None
    assert sample.itl_ms == ()
    assert sample.e2e_ms == pytest.approx(20)


def test_without_token_counts_what_needs_them_is_undefined():
    """TPOT and throughput are None where nobody counted; times and gaps stand."""
    sample = sample_of(streamed(token(20), token(30)))
    assert (sample.tpot_ms, sample.throughput_tps, sample.output_tokens) == (None, None, None)
    assert sample.token_source is None
    assert sample.e2e_ms == pytest.approx(30)
    assert sample.itl_ms == pytest.approx((10,))


def test_a_token_source_is_named_only_with_a_count():
    """A usage object without output tokens is no source of them."""
    exchange = streamed(token(20), usage=Usage(prompt_tokens=3), token_source="usage")
    assert sample_of(exchange).token_source is None
    assert sample_of(exchange).prompt_tokens == 3


def test_an_answer_in_one_body_has_an_end_to_end_time_only():
    """A non-streaming answer is flagged and has neither TTFT nor TPOT."""
    sample = sample_of(streamed(token(80, "all of it", tokens=None), output_tokens=9, streamed=False))
    assert (sample.ttft_ms, sample.ttfo_ms, sample.tpot_ms, sample.itl_ms) == (None, None, None, ())
    assert sample.e2e_ms == pytest.approx(80)
    assert sample.throughput_tps == pytest.approx(9 / 0.080)
    assert sample.flags == {"non_streaming"}


def test_all_text_in_one_read_is_buffered():
    """Several events with one stamp have no time between tokens; TTFT and E2E stand."""
    sample = sample_of(streamed(token(50), token(50), token(50), output_tokens=3))
    assert "buffered" in sample.flags
    assert sample.tpot_ms is None
    assert sample.itl_ms == ()
    assert (sample.ttft_ms, sample.e2e_ms) == pytest.approx((50, 50))


def test_many_tokens_in_one_event_are_buffered():
    """A single event that holds the whole answer of eight tokens came in one read."""
    assert "buffered" in sample_of(streamed(token(50, tokens=8), output_tokens=8)).flags


def test_an_answer_of_one_token_is_not_buffered():
    """One token cannot come in more than one read."""
    assert "buffered" not in sample_of(streamed(token(50), output_tokens=1)).flags


def test_reasoning_that_was_not_streamed_is_taken_off_the_count():
    """N is what could be seen: 12 output tokens less 8 of hidden reasoning, flagged."""
    usage = Usage(output_tokens=12, reasoning_tokens=8)
    sample = sample_of(streamed(token(20), token(50), usage=usage, token_source="usage"))
    assert sample.output_tokens == 4
    assert sample.tpot_ms == pytest.approx(30 / 3)
    assert "hidden_reasoning" in sample.flags


def test_reasoning_that_was_streamed_counts():
    """Reasoning tokens that could be seen stay in N."""
    usage = Usage(output_tokens=12, reasoning_tokens=8)
    sample = sample_of(streamed(token(20, "", reasoning="hm"), token(50), usage=usage, token_source="usage"))
    assert sample.output_tokens == 12
    assert "hidden_reasoning" not in sample.flags


def test_more_hidden_reasoning_than_output_is_no_count():
    """A server whose numbers contradict each other gives None, not a negative count."""
    usage = Usage(output_tokens=3, reasoning_tokens=8)
    sample = sample_of(streamed(token(20), token(50), usage=usage, token_source="usage"))
    assert sample.output_tokens is None
    assert sample.throughput_tps is None


def test_an_unknown_number_of_first_tokens_is_taken_as_one_and_flagged():
    """Where nothing says how many tokens the first event carries, k = 1 is assumed."""
    sample = sample_of(streamed(token(20, tokens=None), token(50, tokens=None), output_tokens=4))
    assert sample.tpot_ms == pytest.approx(30 / 3)
    assert "k_assumed" in sample.flags


def test_a_known_number_of_first_tokens_is_not_flagged():
    """Later events may be of unknown size."""
    assert sample_of(streamed(token(20), token(50, tokens=None), output_tokens=4)).flags == frozenset()


def test_an_answer_shorter_than_forced_is_flagged():
    """With ignore_eos and max_tokens=8, four tokens are short."""
    request = Request("hello", max_tokens=8, extra_body={"ignore_eos": True})
    assert "short" in sample_of(four_tokens(request=request)).flags
    assert "short" not in sample_of(four_tokens(request=replace(request, max_tokens=4))).flags
    assert "short" not in sample_of(four_tokens(request=Request("hello", max_tokens=8))).flags


def test_a_request_that_had_to_connect_is_flagged():
    """The cost of a connection is in its TTFT, so it is said."""
    assert sample_of(four_tokens(new_connection=True)).flags == {"new_connection"}


def test_notes_of_the_edge_become_flags():
    """What only the transport can know is passed on."""
    assert "retried" in sample_of(four_tokens(notes=frozenset({"retried"}))).flags


@pytest.mark.parametrize(
    "exchange",
    [
        four_tokens(error="HTTP 500: oops"),
        streamed(output_tokens=0),
        four_tokens(finish_reason=None),
        streamed(token(80, "cut"), output_tokens=9, streamed=False, finish_reason=None),
    ],
    ids=["error", "no output", "no finish reason", "body without a finish reason"],
)
def test_a_failed_request_has_no_latency(exchange):
    """An error, no output, or no finish reason: no figure, so that a dead server never looks fast."""
    sample = sample_of(exchange)
    assert not sample.ok
    assert sample.error
    assert [getattr(sample, name) for name in LATENCIES] == [None] * len(LATENCIES)
    assert sample.itl_ms == ()


def test_the_error_of_the_edge_is_kept_word_for_word():
    """What the server said is what the user reads."""
    assert sample_of(four_tokens(error="HTTP 500: oops")).error == "HTTP 500: oops"


def test_a_cancelled_stream_is_no_failure():
    """A stream that the caller closed has its times up to there."""
    sample = sample_of(four_tokens(finish_reason=None, notes=frozenset({"cancelled"})))
    assert sample.ok
    assert sample.ttft_ms == pytest.approx(20)
    assert "cancelled" in sample.flags


def test_a_stream_cancelled_before_any_output_has_no_latency():
    """Nothing came, nothing failed, nothing is measured."""
    sample = sample_of(streamed(finish_reason=None, notes=frozenset({"cancelled"})))
    assert sample.ok
    assert [getattr(sample, name) for name in LATENCIES] == [None] * len(LATENCIES)


def test_figures_are_builtins_whatever_the_engine_counts_with():
    """Counts and stamps from NumPy: a figure that keeps its type reaches neither JSON nor the controller."""
    usage = Usage(np.int64(12), np.int64(4), np.int32(4), np.int64(1))
    events = [token(np.float64(after_ms), tokens=np.int64(1)) for after_ms in (20, 25, 32)]
    sample = sample_of(streamed(*events, usage=usage), origin_s=np.float64(T0))
    counts = (sample.prompt_tokens, sample.output_tokens, sample.cached_tokens)
    assert [type(count) for count in counts] == [int] * 3
    times = [getattr(sample, name) for name in (*LATENCIES, "started_ms")]
    assert {type(figure) for figure in (*times, *sample.itl_ms)} == {float}


def test_started_counts_from_the_origin():
    """`started_ms` is t0 less the origin; without one it is zero."""
    assert sample_of(four_tokens(), origin_s=99.5).started_ms == pytest.approx(500)
    assert sample_of(four_tokens()).started_ms == 0


def test_the_text_is_that_of_the_first_choice():
    """Choices are not mixed into one text."""
    exchange = streamed(token(20, "one"), token(25, "other", choice=1), token(30, " two"), output_tokens=3)
    assert sample_of(exchange).text == "one two"


def test_label_stratum_and_call_are_passed_on():
    """What names the sample comes from the caller."""
    sample = sample_of(four_tokens(), label="chat", stratum="chat/prompt 1", call="measure")
    assert (sample.label, sample.stratum, sample.call) == ("chat", "chat/prompt 1", "measure")


def test_the_itl_of_a_request_is_its_median_gap():
    """As one figure of the request, ITL is the middle of its gaps."""
    assert sample_of(four_tokens()).value("itl_ms") == pytest.approx(5)
    five = streamed(*(token(at) for at in (20, 25, 32, 35, 45)), output_tokens=5)
    assert sample_of(five).value("itl_ms") == pytest.approx((5 + 7) / 2)


@pytest.mark.parametrize(("tokens", "given"), [(4, True), (5, False)])
def test_itl_is_given_only_where_events_carry_about_one_token(tokens, given):
    """Gaps between events of several tokens each are no gaps between tokens."""
    exchange = streamed(token(20), token(25), token(32), token(35), output_tokens=tokens)
    assert (sample_of(exchange).value("itl_ms") is not None) is given


def test_every_metric_of_a_request_is_a_field_of_its_sample():
    """Keys of metrics and fields of samples cannot drift apart."""
    sample = sample_of(four_tokens(), due_s=0.0)
    per_request = [metric.key for metric in METRICS.values() if metric.per == "request"]
    assert all(sample.value(key) is not None for key in per_request)


def test_more_is_worse_of_times_and_better_of_rates():
    """Each metric knows its bad side, and a value at the limit is not beyond it."""
    assert METRICS["ttft"].worse(301, 300)
    assert not METRICS["ttft"].worse(300, 300)
    assert METRICS["throughput"].worse(24, 25)
    assert not METRICS["throughput"].worse(25, 25)
