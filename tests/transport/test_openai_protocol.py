"""OpenAI's JSON, in all the shapes that servers send, to events, usage, finish reason and error."""

import json

import pytest

from pytest_llmspeed.metrics.exchange import Request
from pytest_llmspeed.metrics.sample import sample_of
from pytest_llmspeed.transport.openai_protocol import AnswerReader, body_of, error_text
from pytest_llmspeed.transport.sse import ServerSentEvent

STOP = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def delta(index=0, finish_reason=None, **fields):
    """A chunk of a chat stream with one choice."""
    return {"choices": [{"index": index, "delta": fields, "finish_reason": finish_reason}]}


def counted(tokens, chunk, **details):
    """A chunk that carries the running count of output tokens."""
    usage = {"prompt_tokens": 9, "completion_tokens": tokens}
    if details:
        usage["completion_tokens_details"] = details
    return {**chunk, "usage": usage}


def read(*chunks, done=True):
    """A reader that was fed these chunks, the n-th stamped n, and [DONE]."""
    reader = AnswerReader()
    for at, chunk in enumerate(chunks):
        content = chunk if isinstance(chunk, bytes) else json.dumps(chunk).encode()
        reader.feed(ServerSentEvent(content, "message", float(at)))
    if done:
        reader.feed(ServerSentEvent(b"[DONE]", "message", float(len(chunks))))
    return reader


def read_body(body, stamp_s=5.0):
    reader = AnswerReader()
    reader.feed_body(json.dumps(body).encode(), stamp_s)
    return reader


def sample(reader, **facts):
    return sample_of(reader.exchange(Request("x"), -1.0, **facts))


def test_a_plain_stream_gives_its_events_and_its_end():
    """Content chunks are events with their stamps; the finish reason and the usage are none."""
    usage = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}
    reader = read(
        delta(role="assistant", content=""), delta(content="Hi"), delta(content=" you"), STOP, usage
    )
    assert [(e.stamp_s, e.text) for e in reader.events] == [(1.0, "Hi"), (2.0, " you")]
    assert (reader.finish_reason, reader.done, reader.error) == ("stop", True, None)
    assert (reader.usage.prompt_tokens, reader.usage.output_tokens) == (9, 2)


@pytest.mark.parametrize(
    "chunk",
    [
        delta(role="assistant"),
        delta(role="assistant", content=None),
        delta(role="assistant", content=""),
        delta(content=None, reasoning=None, reasoning_content="", refusal=None, tool_calls=None),
        delta(tool_calls=[]),
        delta(tool_calls=[{"index": 0, "id": "call_1", "function": {"name": None, "arguments": ""}}]),
        delta(content=[]),
        delta(content=[{"type": "text", "text": ""}]),
        STOP,
        {"choices": []},
        {"choices": None},
        {"choices": [], "usage": {"completion_tokens": 3}},
        {"choices": [{"index": 0, "delta": None}]},
        {"choices": [{"index": 0}]},
        {},
    ],
)
def test_a_chunk_without_output_is_no_event(chunk):
    """A role, an empty or null delta, a finish reason or a usage object would make TTFT too short."""
    reader = read(chunk)
    assert reader.events == []
    assert reader.error is None


@pytest.mark.parametrize(
    ("fields", "part", "expected"),
    [
        ({"content": "Hi"}, "text", "Hi"),
        ({"content": " "}, "text", " "),
        ({"content": [{"type": "text", "text": "Hi"}, {"type": "text", "text": " you"}]}, "text", "Hi you"),
        ({"refusal": "No."}, "refusal", "No."),
        ({"reasoning": "hm"}, "reasoning", "hm"),
        ({"reasoning_content": "hm"}, "reasoning", "hm"),
        ({"reasoning": "hm", "reasoning_content": "hm"}, "reasoning", "hm"),
        ({"reasoning": "hm", "reasoning_content": ""}, "reasoning", "hm"),
        ({"tool_calls": [{"index": 0, "function": {"name": "add", "arguments": ""}}]}, "tool_call", "add"),
        ({"tool_calls": [{"index": 0, "function": {"arguments": '{"a"'}}]}, "tool_call", '{"a"'),
        (
            {"tool_calls": [{"function": {"name": "a"}}, {"function": {"name": "b", "arguments": "{}"}}]},
            "tool_call",
            "ab{}",
        ),
        ({"function_call": {"name": "add", "arguments": "{}"}}, "tool_call", "add{}"),
    ],
)
def test_every_kind_of_output_is_an_event(fields, part, expected):
    """Content, content parts, refusals, reasoning under either name (once), tool and function calls."""
    (event,) = read(delta(**fields)).events
    parts = {name: getattr(event, name) for name in ("text", "reasoning", "refusal", "tool_call")}
    assert parts == {"text": "", "reasoning": "", "refusal": "", "tool_call": "", part: expected}


def test_one_chunk_may_hold_reasoning_and_answer():
    """Both are kept, in one event."""
    (event,) = read(delta(content="4", reasoning="2+2")).events
    assert (event.text, event.reasoning, event.is_answer) == ("4", "2+2", True)


def test_a_stream_of_completions_is_read_alike():
    """The text of a completion stands beside its index, not in a delta."""
    chunks = [
        {"choices": [{"index": 0, "text": t, "finish_reason": f}]} for t, f in (("Hi", None), ("", "length"))
    ]
    reader = read(*chunks)
    assert [event.text for event in reader.events] == ["Hi"]
    assert reader.finish_reason == "length"


def test_output_beside_a_finish_reason_is_an_event():
    """The last token may come with the finish reason in one chunk."""
    reader = read(delta(content="Hi"), delta(content="!", finish_reason="stop"))
    assert [event.text for event in reader.events] == ["Hi", "!"]
    assert reader.finish_reason == "stop"


def test_a_running_count_gives_the_tokens_of_each_event():
    """A usage object in every chunk says how many tokens each one added."""
    reader = read(
        counted(0, delta(role="assistant")),
        counted(2, delta(content="Hi you")),
        counted(3, delta(content="!")),
        counted(3, STOP),
    )
    assert [event.tokens for event in reader.events] == [2, 1]
    assert "k_assumed" not in sample(reader).flags


def test_a_usage_at_the_end_says_nothing_of_single_events():
    """Only the total is known then, and the first event's size is assumed."""
    reader = read(delta(content="Hi"), delta(content="!"), counted(2, STOP))
    assert [event.tokens for event in reader.events] == [None, None]
    assert "k_assumed" in sample(reader).flags


def test_a_usage_that_comes_with_the_last_text_is_not_the_size_of_that_event():
    """The total of the answer is not the tokens of its last chunk."""
    reader = read(delta(content="Hi"), counted(9, delta(content="!", finish_reason="stop")))
    assert [event.tokens for event in reader.events] == [None, None]


def test_a_count_that_stands_still_is_no_count():
    """An event that adds no token by the server's count has an unknown number, not zero."""
    reader = read(counted(1, delta(content="a")), counted(1, delta(content="b")))
    assert [event.tokens for event in reader.events] == [1, None]


def test_hidden_reasoning_is_not_part_of_the_first_event():
    """Forty hidden reasoning tokens before the first text are no tokens that could be seen."""
    reader = read(
        counted(41, delta(content="a"), reasoning_tokens=40),
        counted(42, delta(content="b"), reasoning_tokens=40),
    )
    assert [event.tokens for event in reader.events] == [1, 1]


def test_the_last_usage_object_counts():
    """Servers that send one in every chunk end with the total."""
    reader = read(counted(1, delta(content="a")), counted(2, delta(content="b")), {**STOP, "usage": None})
    assert reader.usage.output_tokens == 2


@pytest.mark.parametrize("usage", [None, "none", []])
def test_a_usage_that_is_no_object_is_no_usage(usage):
    """null comes in every chunk but the last, of servers that keep to the standard."""
    reader = read({**delta(content="a", finish_reason="stop"), "usage": usage})
    assert reader.usage is None
    assert reader.exchange(Request("x"), 0.0).token_source is None


def test_usage_details_are_read():
    """Cached prompt tokens and reasoning tokens; null details are none."""
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 8},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    found = read({**STOP, "usage": usage}).usage
    assert (found.cached_tokens, found.reasoning_tokens) == (8, 3)
    bare = read(
        {**STOP, "usage": {**usage, "prompt_tokens_details": None, "completion_tokens_details": None}}
    ).usage
    assert (bare.cached_tokens, bare.reasoning_tokens) == (None, None)


def test_the_token_source_is_the_usage_where_it_counts_output():
    """A usage of prompt tokens only is no source of output tokens."""
    assert read(counted(2, STOP)).exchange(Request("x"), 0.0).token_source == "usage"
    assert read({**STOP, "usage": {"prompt_tokens": 3}}).exchange(Request("x"), 0.0).token_source is None


def test_token_ids_of_the_first_choice_are_gathered():
    """vLLM sends them where it is asked to, the one that ended the answer with the finish reason."""

    def chunk(*tokens, index=0):
        return {"choices": [{"index": index, "delta": {"content": "w"}, "token_ids": list(tokens)}]}

    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "token_ids": [2]}]}
    found = read(chunk(5, 6), chunk(9, index=1), chunk(7), end).exchange(Request("x"), 0.0)
    assert found.token_ids == (5, 6, 7, 2)
    assert read(delta(content="w"), STOP).exchange(Request("x"), 0.0).token_ids is None


def test_two_choices_of_which_one_has_no_finish_reason_are_cut():
    """Every choice has to end; [DONE] does not make up for one that did not."""
    reader = read(delta(content="a"), delta(1, content="b"), delta(0, finish_reason="stop"))
    assert reader.done
    assert reader.finish_reason is None
    assert not sample(reader).ok


def test_two_choices_that_both_end_are_whole():
    """The first choice's finish reason stands for the answer."""
    reader = read(
        delta(content="a"),
        delta(1, content="b"),
        delta(1, finish_reason="length"),
        delta(0, finish_reason="stop"),
    )
    assert reader.finish_reason == "stop"
    assert sample(reader).text == "a"


def test_a_stream_without_a_finish_reason_has_failed():
    """[DONE] or not: the answer was cut."""
    for done in (True, False):
        found = sample(read(delta(content="Hi"), done=done))
        assert "finish reason" in found.error
        assert found.ttft_ms is None


def test_a_finish_reason_without_done_is_enough():
    """Not every server sends [DONE]."""
    assert sample(read(delta(content="Hi"), STOP, done=False)).ok


def test_a_finish_reason_is_not_forgotten_by_later_chunks():
    """A null one after it, as beside the usage, changes nothing."""
    assert read(delta(content="Hi"), STOP, delta()).finish_reason == "stop"


def test_the_finish_reason_error_is_a_failure():
    """Some servers end a broken answer with the finish reason "error"."""
    reader = read(delta(content="Hi"), delta(finish_reason="error"))
    assert "error" in reader.error
    assert not sample(reader).ok


@pytest.mark.parametrize(
    ("chunk", "words"),
    [
        ({"error": {"message": "out of memory", "code": 500}}, "out of memory"),
        ({"error": "out of memory"}, "out of memory"),
        ({"object": "error", "message": "out of memory", "code": 400}, "out of memory"),
        ({"error": {"message": "out of memory"}, "choices": []}, "out of memory"),
        (b"null", "null"),
        (b'["out of memory"]', "out of memory"),
        (b"{broken", "invalid JSON: {broken"),
    ],
)
def test_an_error_inside_the_stream_is_a_failure(chunk, words):
    """An error object in any of its shapes, or what is no JSON object."""
    reader = read(delta(content="Hi"), chunk, STOP)
    assert words in reader.error
    found = sample(reader)
    assert (found.ok, found.ttft_ms) == (False, None)


def test_an_error_of_null_is_none():
    """Some servers send the key in every chunk."""
    assert sample(read({**delta(content="Hi"), "error": None}, STOP)).ok


def test_an_error_event_is_a_failure():
    """`event: error` fails the request, whatever its data look like."""
    reader = AnswerReader()
    reader.feed(ServerSentEvent(b'{"message": "overloaded"}', "error", 1.0))
    assert reader.error == "overloaded"
    reader.feed(ServerSentEvent(b"", "error", 1.0))
    assert reader.error


@pytest.mark.parametrize(
    "chunk",
    [
        pytest.param({"choices": ["a"]}, id="choice is a text"),
        pytest.param({"choices": [None]}, id="choice is null"),
        pytest.param({"choices": {"index": 0}}, id="choices are an object"),
        pytest.param({"choices": 3}, id="choices are a number"),
        pytest.param({"choices": [{"delta": "Hi"}]}, id="delta is a text"),
        pytest.param({"choices": [{"delta": {"tool_calls": ["a"]}}]}, id="tool call is a text"),
        pytest.param({"choices": [{"delta": {"function_call": "a"}}]}, id="function call is a text"),
        pytest.param({"choices": [{"index": [0], "delta": {"content": "Hi"}}]}, id="index is a list"),
        pytest.param({**STOP, "usage": {"prompt_tokens_details": [3]}}, id="details are a list"),
        pytest.param({"choices": [{"token_ids": 7}]}, id="token ids are a number"),
        pytest.param(counted("3", delta(content="Hi")), id="count is a text"),
    ],
)
def test_json_of_another_shape_raises_nothing(chunk):
    """A server that speaks another dialect makes a failed or an odd answer, never a traceback of ours."""
    sample(read(chunk, STOP))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"error": {"message": "no such model", "type": "x"}}', "no such model"),
        (b'{"error": "no such model"}', "no such model"),
        (b'{"object": "error", "message": "no such model"}', "no such model"),
        (b'{"detail": "Not Found"}', "Not Found"),
        (b"<html>Bad Gateway</html>", "<html>Bad Gateway</html>"),
        (b"", "an error without a message"),
        (b"  \n", "an error without a message"),
    ],
)
def test_the_message_of_an_error_body_is_found(body, expected):
    """OpenAI's shape, vLLM's, FastAPI's, a proxy's page, nothing at all."""
    assert error_text(body) == expected


def test_fastapis_list_of_details_is_shown():
    """A validation error names the field that was wrong."""
    body = json.dumps({"detail": [{"loc": ["body", "max_tokens"], "msg": "must be positive"}]}).encode()
    assert "max_tokens" in error_text(body)
    assert "must be positive" in error_text(body)


@pytest.mark.parametrize("body", [b'""', b"{}", b'{"error": {}}', b'{"error": {"message": ""}}', b"[]", b"0"])
def test_an_error_is_never_without_a_message(body):
    """An empty text would pass for no error at all."""
    assert error_text(body)


def test_a_long_error_is_cut():
    """A page of HTML does not fill the report."""
    assert len(error_text(b"x" * 5000)) < 300
    assert len(error_text(json.dumps({"code": ["x"] * 5000}).encode())) < 300


def test_an_error_that_is_no_utf8_is_shown():
    """Bytes in another encoding are replaced, not raised."""
    assert "Fehler" in error_text(b"Fehler \xe4")


def test_a_body_in_one_piece_is_one_event():
    """A non-streaming chat answer is read from its message, complete at its last byte."""
    reader = read_body(
        {
            "choices": [
                {"index": 0, "message": {"role": "assistant", "content": "Hi you"}, "finish_reason": "stop"}
            ],
            "usage": {"prompt_tokens": 9, "completion_tokens": 2},
        }
    )
    assert [(event.stamp_s, event.text) for event in reader.events] == [(5.0, "Hi you")]
    assert reader.done
    found = sample(reader, streamed=False)
    assert (found.ok, found.e2e_ms, found.ttft_ms, found.output_tokens) == (True, 6000.0, None, 2)
    assert "non_streaming" in found.flags


def test_a_completion_in_one_piece_is_one_event():
    """Its text stands beside the index."""
    reader = read_body({"choices": [{"index": 0, "text": "Hi", "finish_reason": "length"}]})
    assert [event.text for event in reader.events] == ["Hi"]
    assert reader.finish_reason == "length"


@pytest.mark.parametrize(
    "body", [{"error": {"message": "oops"}}, {"object": "error", "message": "oops"}, [{"error": "oops"}]]
)
def test_an_error_as_a_body_of_status_200_is_a_failure(body):
    """Some servers answer an error with status 200."""
    reader = read_body(body)
    assert "oops" in reader.error
    assert not sample(reader, streamed=False).ok


def asked(request, model=None):
    return json.loads(body_of(request, model))


def test_a_chat_is_asked_for_as_a_stream_with_its_usage():
    """Messages, stream, include_usage, temperature; no limit where none was given."""
    assert asked(Request("Hello"), "m") == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.0,
    }


def test_a_completion_is_asked_for_with_its_prompt():
    """The text as it stands, no messages."""
    found = asked(Request("Once", endpoint="completions", max_tokens=8), "m")
    assert (found["prompt"], found["max_tokens"]) == ("Once", 8)
    assert "messages" not in found


def test_a_requests_own_model_comes_before_the_engines():
    """One server may serve several models."""
    assert asked(Request("x", model="mine"), "m")["model"] == "mine"


def test_further_fields_of_a_request_come_last():
    """What the user writes wins over what we write."""
    extra = {"top_p": 0.5, "temperature": 0.7, "stream_options": {"include_usage": False}}
    found = asked(Request("x", extra_body=extra), "m")
    assert {name: found[name] for name in extra} == extra


def test_the_newer_name_of_the_limit_replaces_the_older():
    """Servers that want max_completion_tokens refuse max_tokens beside it."""
    found = asked(Request("x", max_tokens=128, extra_body={"max_completion_tokens": 9}), "m")
    assert found["max_completion_tokens"] == 9
    assert "max_tokens" not in found


def test_text_of_any_language_is_sent_unharmed():
    """Umlauts, emoji and quotes arrive as they were."""
    text = 'Grüße "日本" 🚀'
    assert asked(Request(text), "m")["messages"][0]["content"] == text


@pytest.mark.parametrize(
    ("request_", "sent"),
    [
        (Request("hi", max_tokens=9), {"max_tokens": 9, "temperature": 0.0}),
        (Request("hi", max_tokens=9, temperature=None), {"max_tokens": 9}),
        (Request("hi", temperature=None), {}),
        (
            Request("hi", max_tokens=9, temperature=None, limit_field="max_completion_tokens"),
            {"max_completion_tokens": 9},
        ),
        (
            Request("hi", max_tokens=9, temperature=None, extra_body={"max_completion_tokens": 7}),
            {"max_completion_tokens": 7},
        ),
        (
            Request(
                "hi",
                max_tokens=9,
                temperature=None,
                limit_field="max_completion_tokens",
                extra_body={"max_tokens": 7},
            ),
            {"max_tokens": 7},
        ),
    ],
)
def test_a_limit_and_a_temperature_are_sent_as_they_are_asked(request_, sent):
    """Under the name that the model takes, once, and not at all where there is none."""
    body = json.loads(body_of(request_, "m"))
    names = ("max_tokens", "max_completion_tokens", "temperature")
    assert {name: body[name] for name in names if name in body} == sent
