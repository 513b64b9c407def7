"""Bodies of every form, as they come → what came back, or why it is no answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest
from helpers.servers import Play, ReplayServer, chunk, event, usage

from pytest_llmspeed import EngineSpec, Exchange, Request
from pytest_llmspeed.engines.servers._openai import OpenAIEngine
from pytest_llmspeed.metrics.sample import sample_of
from pytest_llmspeed.transport import send
from pytest_llmspeed.transport.parser import TransportError
from pytest_llmspeed.transport.response_reader import AnswerBytes

BODY = {"choices": [{"index": 0, "message": {"content": "five"}, "finish_reason": "stop"}], "usage": usage(1)}


def read(
    parts: Sequence[bytes],
    status: int = 200,
    failure: TransportError | TimeoutError | None = None,
    **headers: str,
) -> Exchange:
    """The answer of a server that sends these parts."""
    answer = AnswerBytes()
    answer.begin(status, {name.replace("_", "-"): value for name, value in headers.items()})
    for place, part in enumerate(parts):
        answer.feed(part, float(place))
    if failure is None:
        answer.close()
    return answer.exchange(Request("hello", timeout_s=5), 0.0, failure)


@pytest.mark.parametrize("sign", [b" ", b"\n", b"\r\n  "])
def test_signs_of_life_before_a_body_are_no_part_of_it(sign: bytes) -> None:
    """Spaces that keep a connection open, before JSON or a stream."""
    assert read([sign, sign, json.dumps(BODY).encode()]).joined("text") == "five"
    streamed = read([sign, chunk({"content": "five"}), chunk(finish="stop"), b"data: [DONE]\n\n"])
    assert (streamed.joined("text"), streamed.error, streamed.streamed) == ("five", None, True)


@pytest.mark.parametrize(
    ("parts", "headers", "told"),
    [
        ([b"\x1f\x8b\x08xyz"], {"content_encoding": "gzip"}, "it is encoded (gzip)"),
        ([b"<html>log in</html>\n"], {"content_type": "text/html; charset=utf-8"}, "type is text/html"),
    ],
)
def test_a_body_of_another_form_is_named(parts: list[bytes], headers: dict[str, str], told: str) -> None:
    """It would else be an answer without any output."""
    error = read(parts, **headers).error
    assert error is not None
    assert error.startswith("the answer is not an event stream: ")
    assert told in error


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ([], "the connection was closed in the middle of the answer"),
        ([b'{"error": {"message": "overloaded"}}'], "overloaded"),
    ],
)
def test_the_status_of_an_error_that_is_cut_is_told(parts: list[bytes], told: str) -> None:
    """With what came of its body, else how it was cut."""
    cut = TransportError("the connection was closed in the middle of the answer")
    assert read(parts, 503, cut).error == f"HTTP 503: {told}"


def test_the_first_choice_is_told_whatever_the_order() -> None:
    """Each choice of a chunk is an event of its own; the answer is that of the first one."""
    both = [
        {"index": 1, "delta": {"content": "other"}, "finish_reason": "stop"},
        {"index": 0, "delta": {"content": "five"}, "finish_reason": "length"},
    ]
    found = read([event({"choices": both}), b"data: [DONE]\n\n"])
    assert (found.joined("text"), found.finish_reason, len(found.events)) == ("five", "length", 2)


def test_an_answer_that_was_whole_in_time_is_no_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the server still owed at the limit was the end of the connection."""
    monkeypatch.setattr(send, "DRAIN_S", 60)
    script = [(10, chunk({"content": "five"}) + chunk(finish="stop")), (20, b"data: [DONE]\n\n")]
    with ReplayServer(lambda _: Play(script, ending="hang")) as server:
        engine = OpenAIEngine.start(EngineSpec.of("openai", "m", None, {"url": server.url}))
        found = asyncio.run(engine.exchange(Request("hello", timeout_s=1)))
    assert sample_of(found).error is None
