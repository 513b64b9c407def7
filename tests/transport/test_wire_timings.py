"""Timed answers over a real socket, and how they are read. Tolerances are those of a busy machine."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from helpers.servers import Play, ReplayServer, event, tokens, usage
from helpers.wire_cases import CASES, check

from pytest_llmspeed import Request, Sample
from pytest_llmspeed.engines.base import EngineSpec
from pytest_llmspeed.engines.servers._openai import OpenAIEngine
from pytest_llmspeed.metrics.sample import sample_of


def ask(server: ReplayServer, count: int = 1, **request: Any) -> list[Sample]:
    """Send some requests over one engine and read them."""

    async def exchanges() -> list[Sample]:
        spec = EngineSpec.of("openai", "m", None, {"url": server.url})
        engine = OpenAIEngine.start(spec)
        found = [sample_of(await engine.exchange(Request("hello", **request))) for _ in range(count)]
        await engine.close()
        return found

    return asyncio.run(exchanges())


@pytest.mark.parametrize("name", CASES)
def test_an_answer_is_read_rightly(name: str) -> None:
    """Each answer of the table gives its figures, flags and error."""
    case = CASES[name]
    with ReplayServer(lambda _: case.play) as server:
        (sample,) = ask(server, **{"max_tokens": 64, "timeout_s": 10, **case.request})
    check(case, sample)


def test_the_second_request_reuses_the_connection() -> None:
    """Only a request that had to open its connection is flagged."""
    with ReplayServer(lambda _: Play(tokens(2, 1, 1))) as server:
        samples = ask(server, count=3)
    assert ["new_connection" in sample.flags for sample in samples] == [True, False, False]


def test_the_request_asks_for_usage_and_keeps_what_the_user_adds() -> None:
    """The body is a streamed chat completion with include_usage, extra fields at the top."""
    with ReplayServer(lambda _: Play(tokens(2, 1, 1))) as server:
        ask(server, max_tokens=7, extra_body={"top_p": 0.5})
        _, body = server.requests[0]
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 7,
        "temperature": 0.0,
        "top_p": 0.5,
    }


def test_bare_completions() -> None:
    """endpoint="completions" sends the text as it stands and reads `text`."""
    parts = [event({"choices": [{"index": 0, "text": " Paris", "finish_reason": None}]})]
    parts.append(event({"choices": [{"index": 0, "text": "", "finish_reason": "stop"}], "usage": usage(1)}))
    with ReplayServer(lambda _: Play([(5, b"".join(parts))])) as server:
        (sample,) = ask(server, endpoint="completions")
        _, body = server.requests[0]
    assert sample.text == " Paris"
    assert body["prompt"] == "hello"
