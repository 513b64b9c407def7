"""The responses API: what the model wrote is output, of whatever kind, and each piece counts once."""

import json
from typing import Any

import pytest

from pytest_llmspeed.metrics.exchange import Exchange, Request
from pytest_llmspeed.transport.response_reader import AnswerBytes
from pytest_llmspeed.transport.responses_api import ResponsesReader

USAGE = {"input_tokens": 5, "output_tokens": 4, "total_tokens": 9}


def completed(*items: dict[str, Any], **counts: Any) -> dict[str, Any]:
    response = {"status": "completed", "output": list(items), "usage": {**USAGE, **counts}}
    return {"type": "response.completed", "response": response}


def streamed(*events: dict[str, Any]) -> Exchange:
    """The exchange of a stream whose n-th event came at n."""
    answer = AnswerBytes(reader=ResponsesReader())
    answer.begin(200, {})
    for at, body in enumerate(events):
        answer.feed(f"event: {body['type']}\ndata: {json.dumps(body)}\n\n".encode(), float(at))
    answer.close()
    return answer.exchange(Request("x", endpoint="responses"), 0.0)


def whole(*items: dict[str, Any]) -> Exchange:
    answer = AnswerBytes(reader=ResponsesReader())
    answer.begin(200, {})
    answer.feed(json.dumps(completed(*items)["response"]).encode(), 1.0)
    answer.close()
    return answer.exchange(Request("x", endpoint="responses"), 0.0)


@pytest.mark.parametrize(
    "kind",
    [
        "custom_tool_call_input",
        "mcp_call_arguments",
        "mcp_call.arguments",
        "code_interpreter_call_code",
        "function_call_arguments",
        "some_later_tool_call",
    ],
)
def test_what_is_written_of_any_tool_call_is_output(kind: str) -> None:
    """Also of tools that did not exist when this was written."""
    delta = {"type": f"response.{kind}.delta", "output_index": 0, "delta": "ls"}
    found = streamed(delta, delta, completed())
    assert (found.failure, found.joined("tool_call")) == (None, "lsls")


@pytest.mark.parametrize(
    ("kind", "part", "text"),
    [
        ("audio.transcript", "text", "hi"),
        ("output_audio_transcript", "text", "hi"),
        ("audio", "media", "audio"),
        ("reasoning_summary_text", "reasoning", "hi"),
    ],
)
def test_sound_and_thoughts_are_output(kind: str, part: str, text: str) -> None:
    """A transcript is the text of the answer; of sound itself nothing is kept."""
    found = streamed({"type": f"response.{kind}.delta", "delta": "hi"}, completed())
    assert [getattr(event, part) for event in found.events] == [text]


ITEMS = [
    ({"type": "custom_tool_call", "call_id": "c", "name": "shell", "input": "ls"}, "shellls"),
    ({"type": "mcp_call", "server_label": "s", "name": "f", "arguments": "{}", "output": "long"}, "f{}"),
    ({"type": "code_interpreter_call", "code": "1+1", "outputs": [{"logs": "2"}]}, "1+1"),
    ({"type": "web_search_call", "status": "completed", "action": {"query": "q"}}, '{"query": "q"}'),
    ({"type": "file_search_call", "queries": ["q"], "results": [{"text": "long"}]}, '["q"]'),
]


@pytest.mark.parametrize(("item", "text"), ITEMS)
def test_an_item_that_came_without_deltas_is_output_at_its_end(item: dict[str, Any], text: str) -> None:
    """What the model wrote of it, not what the tool answered; in a stream and in one body."""
    done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    for found in (streamed(done, completed(item)), streamed(completed(item)), whole(item)):
        assert (found.failure, found.joined("tool_call"), len(found.events)) == (None, text, 1)


def test_an_item_that_came_in_deltas_counts_once() -> None:
    """Its end repeats it."""
    item = {"type": "message", "content": [{"type": "output_text", "text": "hi"}]}
    delta = {"type": "response.output_text.delta", "output_index": 0, "delta": "hi"}
    done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    assert streamed(delta, done, completed(item)).joined("text") == "hi"


def test_the_counts_are_read_as_those_of_a_chat() -> None:
    """Reasoning in addition to the output, floats, and a count that the stream contradicts."""
    delta = {"type": "response.output_text.delta", "delta": "hi "}
    thoughts = {"output_tokens_details": {"reasoning_tokens": 30}}
    found = streamed(*[delta] * 4, completed(**thoughts, output_tokens=4.0, total_tokens=39))
    assert (found.usage.output_tokens, found.usage.reasoning_tokens) == (34, 30)
    found = streamed(*[delta] * 40, completed())
    assert (found.usage.output_tokens, found.token_source) == (None, None)
    assert "count_doubted" in found.notes
