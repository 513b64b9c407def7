"""What lies beneath the SDK clients, alone: what is asked, the usage chunk, the responses API, the writer."""

import json

import pytest
from helpers.servers import chunk, event, usage

from pytest_llmspeed.metrics.exchange import Event, Exchange, Request, Usage
from pytest_llmspeed.metrics.sample import sample_of
from pytest_llmspeed.sdk.call import Call, Head
from pytest_llmspeed.sdk.encode import AnswerWriter
from pytest_llmspeed.sdk.httpx_transport import Mailbox
from pytest_llmspeed.sdk.sdk_request import SDKRequest
from pytest_llmspeed.sdk.usage_filter import UsageFilter
from pytest_llmspeed.transport.openai_protocol import AnswerReader
from pytest_llmspeed.transport.responses_api import ResponsesReader
from pytest_llmspeed.transport.sse import EventParser

MESSAGES = [{"role": "user", "content": "hi"}]


def asked(path="/chat/completions", *, method="POST", headers=None, **body):
    call = Call(method, path, headers or {}, json.dumps(body).encode(), timeout_s=7.0)
    return SDKRequest.of(call, default_timeout_s=120.0)


def test_a_chat_is_read_as_what_it_asks():
    """Messages, limit, temperature and model are those of the body; the rest shapes the answer."""
    request = asked(model="m", messages=MESSAGES, max_tokens=5, temperature=0.5, top_p=0.9).request
    assert request == Request(
        tuple(MESSAGES),
        model="m",
        max_tokens=5,
        temperature=0.5,
        timeout_s=7.0,
        extra_body={"top_p": 0.9},
    )


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_each_name_of_the_limit_is_known(name):
    """Old and new callers declare the same limit."""
    assert asked(messages=MESSAGES, **{name: 5}).request.max_tokens == 5


def test_a_temperature_that_is_not_given_is_the_protocols():
    """1, not the 0 of our own calls."""
    assert asked(messages=MESSAGES).request.temperature == 1.0


def test_what_says_who_asks_and_what_says_nothing_is_left_out():
    """Else a user's id of each run would make each run incomparable with the last."""
    body = {"user": "id-81", "metadata": {"run": "9"}, "n": 1, "tool_choice": "auto", "stop": None}
    assert asked(messages=MESSAGES, seed=3, **body).request.extra_body == {"seed": 3}


@pytest.mark.parametrize(
    ("prompt", "read"),
    [("a", "a"), (["a"], "a"), (["a", "b"], ("a", "b")), ([1, 2], (1, 2))],
)
def test_prompts_of_completions_come_in_several_shapes(prompt, read):
    """A text, one text in a list, several, or token ids."""
    request = asked("/completions", prompt=prompt).request
    assert (request.endpoint, request.prompt) == ("completions", read)


def test_a_response_has_its_input_and_limit_under_other_names():
    """The responses API spells both differently."""
    request = asked("/responses", input="hi", max_output_tokens=4).request
    assert (request.endpoint, request.prompt, request.max_tokens) == ("responses", "hi", 4)


@pytest.mark.parametrize(("method", "path"), [("POST", "/embeddings"), ("GET", "/models")])
def test_other_calls_are_not_measured(method, path):
    """They pass without a record."""
    assert asked(path, method=method) is None


@pytest.mark.parametrize(("count", "notes"), [("0", set()), ("1", {"retry"})])
def test_a_retry_is_flagged(count, notes):
    """The SDK says in a header which attempt it is."""
    assert asked(messages=MESSAGES, headers={"x-stainless-retry-count": count}).notes == notes


@pytest.mark.parametrize(
    ("body", "lacks"),
    [
        ({}, False),
        ({"stream": True}, True),
        ({"stream": True, "stream_options": {"include_usage": False}}, True),
        ({"stream": True, "stream_options": {"include_usage": True}}, False),
    ],
)
def test_usage_is_asked_for_where_a_stream_would_come_without(body, lacks):
    """A caller that asked gets it anyway, and an answer in one piece has it."""
    assert asked(messages=MESSAGES, **body).lacks_usage is lacks


def test_asking_for_usage_leaves_other_options_of_the_stream():
    """Only what is asked for is added."""
    body = {"messages": MESSAGES, "stream": True, "stream_options": {"x": 1}, "model": "m"}
    assert asked(**body).added({}) == {"stream_options": {"x": 1, "include_usage": True}}


def test_fields_of_the_engine_are_added_where_the_caller_says_nothing():
    """Those of the stream are the caller's."""
    fields = {"cache_prompt": False, "top_k": 1, "stream_options": {"continuous_usage_stats": True}}
    assert asked(messages=MESSAGES, top_k=5).added(fields) == {"cache_prompt": False}
    assert asked("/responses", input="hi", stream=True).added(fields) == {}


def test_a_body_that_is_no_object_is_an_error():
    """It says so, rather than failing on a missing field."""
    call = Call("POST", "/chat/completions", {}, b"[]", None)
    with pytest.raises(ValueError, match="not a JSON object"):
        SDKRequest.of(call, 120.0)


def filtered(*chunks):
    found = UsageFilter()
    return b"".join([*map(found.feed, chunks), found.close()])


HELLO, FINISH = chunk({"content": "hello"}, usage=None), chunk(finish="stop", usage=None)
COUNTS, DONE = event({"choices": [], "usage": usage(3)}), b"data: [DONE]\n\n"


def test_the_usage_chunk_is_taken_out_and_nothing_else_changes():
    """Byte for byte."""
    assert filtered(HELLO + FINISH + COUNTS + DONE) == HELLO + FINISH + DONE


def test_the_cut_of_the_stream_does_not_matter():
    """Wherever the network cuts it, the same bytes are left."""
    stream = HELLO + COUNTS + DONE
    for cut in range(len(stream)):
        assert filtered(stream[:cut], stream[cut:]) == HELLO + DONE


def test_whole_events_are_not_held_back():
    """The caller sees each as soon as it is there."""
    assert UsageFilter().feed(HELLO) == HELLO


@pytest.mark.parametrize("ending", [b"\r\n", b"\r", b"\n"])
def test_all_line_ends_are_known(ending):
    """CR, LF and both."""
    stream = (HELLO + COUNTS + DONE).replace(b"\n", ending)
    assert filtered(stream) == (HELLO + DONE).replace(b"\n", ending)


@pytest.mark.parametrize(
    "kept",
    [
        event({"choices": [], "prompt_filter_results": []}),
        event({"choices": [], "usage": None}),
        chunk({"content": 'see "choices": []'}),
        b": a comment\n\n",
        b'data: {"choices": [] broken\n\n',
    ],
)
def test_what_only_looks_like_it_stays(kept):
    """An event without choices is no usage chunk if it has no usage."""
    assert filtered(kept + DONE) == kept + DONE


def test_a_usage_chunk_that_ends_the_stream_goes_too():
    """Also without its blank line."""
    assert filtered(HELLO + COUNTS.rstrip()) == HELLO


def read(reader, *events, gap_s=0.1):
    """What a reader makes of typed events, one each `gap_s`."""
    parser = EventParser()
    for place, body in enumerate(events):
        sent = f"event: {body['type']}\n".encode() + event(body)
        for found in parser.feed(sent, 1.0 + place * gap_s):
            reader.feed(found)
    return sample_of(reader.exchange(Request("hi", endpoint="responses"), 1.0))


COMPLETED = {
    "type": "response.completed",
    "response": {
        "status": "completed",
        "usage": {
            "input_tokens": 5,
            "output_tokens": 3,
            "input_tokens_details": {"cached_tokens": 2},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    },
}


def test_a_streamed_response_is_timed_by_its_deltas():
    """What is said around them is no output."""
    sample = read(
        ResponsesReader(),
        {"type": "response.created", "response": {"status": "in_progress"}},
        {"type": "response.output_text.delta", "delta": "a"},
        {"type": "response.output_text.delta", "delta": "b"},
        {"type": "response.output_text.delta", "delta": "c"},
        {"type": "response.output_text.done", "text": "abc"},
        COMPLETED,
    )
    assert (sample.ttft_ms, sample.tpot_ms) == pytest.approx((100.0, 100.0))
    assert (sample.text, sample.finish_reason, sample.error) == ("abc", "stop", None)
    assert (sample.prompt_tokens, sample.output_tokens, sample.cached_tokens) == (5, 3, 2)


def test_reasoning_and_tool_calls_of_a_response_are_output():
    """TTFT is the first of either, TTFO the first that is an answer."""
    sample = read(
        ResponsesReader(),
        {"type": "response.reasoning_summary_text.delta", "delta": "hm"},
        {"type": "response.function_call_arguments.delta", "delta": "{}"},
        COMPLETED,
    )
    assert (sample.ttft_ms, sample.ttfo_ms) == pytest.approx((0.0, 100.0))


@pytest.mark.parametrize(
    ("end", "error"),
    [
        ({"type": "error", "message": "too busy"}, "too busy"),
        (
            {"type": "response.failed", "response": {"status": "failed", "error": {"message": "no luck"}}},
            "no luck",
        ),
    ],
)
def test_a_response_that_fails_says_why(end, error):
    """In either way that the API has."""
    sample = read(ResponsesReader(), {"type": "response.output_text.delta", "delta": "a"}, end)
    assert sample.error == error


def test_a_response_that_reached_its_limit_says_so():
    """In the word that the other endpoints have for it."""
    response = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    sample = read(
        ResponsesReader(),
        {"type": "response.output_text.delta", "delta": "a"},
        {"type": "response.incomplete", "response": response},
    )
    assert (sample.finish_reason, sample.error) == ("length", None)


def test_a_response_in_one_piece_is_read():
    """Text, refusals, reasoning and calls, wherever they stand."""
    reader = ResponsesReader()
    output = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "message", "content": [{"type": "output_text", "text": "yes"}]},
        {"type": "function_call", "name": "f", "arguments": "{}"},
    ]
    reader.feed_body(json.dumps({"status": "completed", "output": output, "error": None}).encode(), 2.0)
    found = reader.exchange(Request("hi"), 1.0)
    assert (found.joined("reasoning"), found.joined("text"), found.joined("tool_call")) == (
        "hm",
        "yes",
        "f{}",
    )
    assert found.finish_reason == "stop"


ANSWER = Exchange(
    Request("hi"),
    1.0,
    (Event(1.1, text="a", tokens=1), Event(1.2, reasoning="b", tokens=1), Event(1.3, text="c", tokens=1)),
    usage=Usage(7, 3, 2),
    finish_reason="length",
)


def read_back(exchange, *, streamed, endpoint="chat"):
    """What our own reader makes of an answer as our writer puts it."""
    writer, reader = AnswerWriter(endpoint, id=1, model="m", created_s=0), AnswerReader()
    if not streamed:
        reader.feed_body(json.dumps(writer.whole(exchange)).encode(), 2.0)
    else:
        chunks = [writer.chunk(each, is_first=False) for each in exchange.events]
        for found in EventParser().feed(b"".join(chunks) + writer.tail(exchange, with_usage=True), 2.0):
            reader.feed(found)
    return reader.exchange(exchange.request, 1.0)


@pytest.mark.parametrize("streamed", [True, False])
def test_what_is_written_for_a_caller_reads_as_the_answer_it_was(streamed):
    """Text, reasoning, finish reason and token counts, in one piece or many."""
    found = read_back(ANSWER, streamed=streamed)
    assert (found.joined("text"), found.joined("reasoning")) == ("ac", "b")
    assert (found.finish_reason, found.usage) == ("length", Usage(7, 3, 2))


@pytest.mark.parametrize("streamed", [True, False])
def test_a_completion_is_written_as_text(streamed):
    """It has no messages."""
    assert read_back(ANSWER, streamed=streamed, endpoint="completions").joined("text") == "ac"


def test_counts_that_nobody_knows_are_null():
    """Not 0."""
    writer = AnswerWriter("chat", id=1, model="m", created_s=0)
    assert writer.whole(Exchange(Request("hi"), 1.0))["usage"] is None


def test_a_reply_waits_for_a_caller_that_is_far_behind():
    """An endless answer does not fill the memory while its caller reads slowly."""
    delivered = []
    mailbox = Mailbox(delivered.append)
    mailbox(Head(200, ()))
    for _ in range(9):
        mailbox(b"x" * 2**20)
    assert mailbox.is_full
    for item in delivered[:4]:
        mailbox.taken(item)
    assert not mailbox.is_full
