"""Real `openai` clients against engines in this process: the protocol without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from helpers.scripted_engine import ScriptedEngine

from pytest_llmspeed import Engine, Exchange, Request
from pytest_llmspeed.client import LLMClient
from pytest_llmspeed.engines.base import EngineSpec
from pytest_llmspeed.engines.local._tiny import TinyEngine
from pytest_llmspeed.recording.recorder import Recorder
from pytest_llmspeed.system.event_loop import LoopThread

HELLO: dict[str, Any] = {"model": "gpt-9", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
STREAMED = {**HELLO, "stream": True}
ANSWER = "scripted answer w2 w3 "


@pytest.fixture(scope="module")
def loop() -> Iterator[LoopThread]:
    found = LoopThread()
    yield found
    found.close()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def of(loop: LoopThread, recorder: Recorder) -> Iterator[Callable[[Engine], LLMClient]]:
    """A client of an engine."""
    made = []

    def make(engine: Engine) -> LLMClient:
        made.append(LLMClient(engine, loop, recorder))
        return made[-1]

    yield make
    for client in made:
        client.close()


def scripted(**options: Any) -> ScriptedEngine:
    return ScriptedEngine(EngineSpec.of("scripted", "script-1", None, options))


@pytest.fixture(scope="module")
def tiny() -> TinyEngine:
    return TinyEngine.start(EngineSpec.of("tiny", None, None, {"token_delay_ms": 2}))


def text_of(chunks: list[Any]) -> str:
    return "".join(each.choices[0].delta.content or "" for each in chunks)


def test_a_stream_is_the_engines_answer(of: Callable[[Engine], LLMClient], recorder: Recorder) -> None:
    """In chunks, with a role first, a finish reason last, and no counts that nobody asked for."""
    chunks = list(of(scripted()).openai.chat.completions.create(**STREAMED))
    assert text_of(chunks) == ANSWER
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * 4 + ["length"]
    assert chunks[0].choices[0].delta.role == "assistant"
    (sample,) = recorder.measurement.samples
    assert (sample.call, sample.output_tokens, sample.token_source) == ("sdk", 4, "engine")
    assert sample.ttft_ms == pytest.approx(100, rel=0.3)
    assert sample.flags == frozenset()


def test_the_same_in_a_coroutine(of: Callable[[Engine], LLMClient], recorder: Recorder) -> None:
    """The engine answers on its own loop, the caller waits in its own."""
    client = of(scripted())

    async def application() -> list[Any]:
        asking = {**STREAMED, "stream_options": {"include_usage": True}}
        return [chunk async for chunk in await client.async_openai.chat.completions.create(**asking)]

    *chunks, counts = asyncio.run(application())
    assert text_of(chunks) == ANSWER
    assert (counts.choices, counts.usage.completion_tokens, counts.usage.prompt_tokens) == ([], 4, 12)
    assert recorder.count == 1


def test_an_answer_in_one_piece(of: Callable[[Engine], LLMClient], recorder: Recorder) -> None:
    """It has an end-to-end time only, as from a server."""
    answer = of(scripted()).openai.chat.completions.create(**HELLO)
    assert answer.choices[0].message.content == ANSWER
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 4
    (sample,) = recorder.measurement.samples
    assert sample.ttft_ms is None
    assert sample.e2e_ms is not None


def test_completions_are_answered_too(of: Callable[[Engine], LLMClient]) -> None:
    """Streamed and in one piece."""
    client = of(scripted()).openai
    asking: dict[str, Any] = {"model": "x", "prompt": "hi", "max_tokens": 4}
    assert client.completions.create(**asking).choices[0].text == ANSWER
    chunks = client.completions.create(**asking, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == ANSWER


def test_any_model_name_is_answered_by_the_engines_own(of: Callable[[Engine], LLMClient]) -> None:
    """An application keeps the name that it has written down."""
    client = of(scripted()).openai
    assert client.chat.completions.create(**HELLO).model == "script-1"
    assert [model.id for model in client.models.list()] == ["script-1"]


def test_what_an_engine_cannot_serve_is_told(of: Callable[[Engine], LLMClient], recorder: Recorder) -> None:
    """By an error of the protocol that names what it can."""
    client = of(scripted()).openai
    with pytest.raises(openai.NotFoundError, match=r"POST /embeddings: .* serves POST /chat/completions"):
        client.embeddings.create(model="x", input="hi")
    with pytest.raises(openai.NotFoundError, match="POST /responses"):
        client.responses.create(model="x", input="hi")
    assert recorder.count == 0


def test_an_engines_failure_is_an_error_of_the_sdk(
    of: Callable[[Engine], LLMClient], recorder: Recorder
) -> None:
    """And is recorded."""
    client = of(scripted(fail_every=1)).openai
    with pytest.raises(openai.InternalServerError, match="scripted failure"):
        client.chat.completions.create(**STREAMED)
    assert [sample.error for sample in recorder.measurement.samples] == ["scripted failure"]


class BreaksOff(ScriptedEngine):
    """Fails when half of its answer is told."""

    async def exchange(self, request: Request, on_event: Any = None) -> Exchange:
        return (await super().exchange(request, on_event)).failed("out of memory")


def test_a_failure_in_the_middle_of_a_stream_reaches_its_caller(of: Callable[[Engine], LLMClient]) -> None:
    """After the chunks that came."""
    seen: list[Any] = []
    client = of(BreaksOff(EngineSpec.of("x", None, None, {}))).openai
    stream = client.chat.completions.create(**STREAMED)
    with pytest.raises(openai.APIError, match="out of memory"):
        seen.extend(stream)
    assert text_of(seen) == ANSWER


class Silent(ScriptedEngine):
    """An engine that never calls `on_event`."""

    async def exchange(self, request: Request, on_event: Any = None) -> Exchange:
        return await super().exchange(request)


def test_an_engine_that_does_not_tell_its_events_is_replayed(of: Callable[[Engine], LLMClient]) -> None:
    """Its answers come whole, in the same chunks."""
    silent = Silent(EngineSpec.of("x", None, None, {}))
    assert text_of(list(of(silent).openai.chat.completions.create(**STREAMED))) == ANSWER


def test_what_an_engine_does_not_take_is_told(of: Callable[[Engine], LLMClient], tiny: TinyEngine) -> None:
    """By the engine's own sentence; what frameworks write out though it is the default does not hurt."""
    client = of(tiny).openai
    with pytest.raises(openai.InternalServerError, match="not \\['stop'\\]"):
        client.chat.completions.create(**HELLO, stop=["x"])
    defaults: dict[str, Any] = {"n": 1, "frequency_penalty": 0, "tool_choice": "auto", "user": "me"}
    assert client.chat.completions.create(**HELLO, **defaults).choices[0].message.content


def test_content_in_parts_is_joined(of: Callable[[Engine], LLMClient], recorder: Recorder) -> None:
    """Chat templates expect a text."""
    asked: list[Request] = []

    class Noting(ScriptedEngine):
        async def exchange(self, request: Request, on_event: Any = None) -> Exchange:
            asked.append(request)
            return await super().exchange(request, on_event)

    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    client = of(Noting(EngineSpec.of("x", None, None, {}))).openai
    messages: Any = [{"role": "user", "content": parts}]
    client.chat.completions.create(model="m", messages=messages)
    assert asked[0].messages == [{"role": "user", "content": "ab"}]


def test_tokens_of_a_real_engine_reach_the_caller_while_the_answer_is_made(
    of: Callable[[Engine], LLMClient], tiny: TinyEngine, recorder: Recorder
) -> None:
    """The first is here long before the last is."""
    stream = of(tiny).openai.chat.completions.create(**{**STREAMED, "max_tokens": 200, "temperature": 0})
    next(stream)
    assert recorder.count == 0
    assert len(list(stream)) == 200
    assert recorder.measurement.samples[0].output_tokens == 200


def test_closing_a_stream_ends_the_generation(
    of: Callable[[Engine], LLMClient], tiny: TinyEngine, recorder: Recorder
) -> None:
    """At once, and the request is recorded before the caller goes on."""
    client = of(tiny)
    with client.openai.chat.completions.create(**{**STREAMED, "max_tokens": 8000}) as stream:
        next(stream)
    (sample,) = recorder.measurement.samples
    assert "cancelled" in sample.flags
    assert 0 < sample.output_events < 4000

    async def application() -> None:
        asking = {**STREAMED, "max_tokens": 8000}
        async with await client.async_openai.chat.completions.create(**asking) as stream:
            await anext(aiter(stream))

    asyncio.run(application())
    _, sample = recorder.measurement.samples
    assert sample.flags == {"cancelled"}


def test_a_time_limit_is_the_callers(
    of: Callable[[Engine], LLMClient], tiny: TinyEngine, recorder: Recorder
) -> None:
    """A generation that takes longer is a time-out of the SDK."""
    client = of(tiny).openai
    with pytest.raises(openai.APITimeoutError):
        client.chat.completions.create(**{**HELLO, "max_tokens": 8000}, timeout=0.3)
    assert "timed out after 0.3 s" in str(recorder.measurement.samples[0].error)


def test_calls_at_once_wait_their_turn_and_are_flagged(
    of: Callable[[Engine], LLMClient], tiny: TinyEngine, recorder: Recorder
) -> None:
    """The wait counts: it is what the application would see."""
    client = of(tiny)

    async def application() -> None:
        await asyncio.gather(*(client.async_openai.chat.completions.create(**HELLO) for _ in range(3)))

    asyncio.run(application())
    samples = recorder.measurement.samples
    assert all("overlapped" in sample.flags for sample in samples)
    slowest = sorted(sample.e2e_ms or 0 for sample in samples)
    assert slowest[2] > 2 * slowest[0]


def test_the_end_of_the_client_ends_what_is_under_way(loop: LoopThread, tiny: TinyEngine) -> None:
    """No generation goes on into the next test."""
    recorder = Recorder()
    client = LLMClient(tiny, loop, recorder)
    stream = client.openai.chat.completions.create(**{**STREAMED, "max_tokens": 8000})
    next(stream)
    client.close()
    assert "cancelled" in recorder.measurement.samples[0].flags
