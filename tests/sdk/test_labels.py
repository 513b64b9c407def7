"""Labels of calls: by `with llm_client.label(…)`, by a header, by a field of the body."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from helpers.scripted_engine import ScriptedEngine
from helpers.servers import Play, ReplayServer, tokens

from pytest_llmspeed.client import LLMClient
from pytest_llmspeed.engines.base import EngineSpec
from pytest_llmspeed.engines.servers._openai import OpenAIEngine
from pytest_llmspeed.errors import SettingsError
from pytest_llmspeed.recording.recorder import Recorder
from pytest_llmspeed.system.event_loop import LoopThread

HELLO: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
STREAMED = {**HELLO, "stream": True}


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def client(loop: LoopThread, recorder: Recorder) -> Iterator[LLMClient]:
    """A client of an engine in this process."""
    made = LLMClient(ScriptedEngine(EngineSpec.of("scripted", "script-1", None, {})), loop, recorder)
    yield made
    made.close()


@pytest.fixture
def server() -> Iterator[ReplayServer]:
    with ReplayServer(lambda _: Play(tokens(4, first_ms=1, gap_ms=1))) as found:
        yield found


@pytest.fixture
def of_server(
    server: ReplayServer, loop: LoopThread, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LLMClient]:
    """A client of a server."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    engine = OpenAIEngine.start(EngineSpec.of("openai", "m", None, {"url": server.url}))
    made = LLMClient(engine, loop, recorder)
    yield made
    made.close()
    loop.run(engine.close())


def call(client: openai.OpenAI, **more: Any) -> None:
    client.chat.completions.create(**HELLO, **more)


def labels(recorder: Recorder) -> list[str | None]:
    return [sample.label for sample in recorder.measurement.samples]


def test_calls_in_a_block_have_its_label(client: LLMClient, recorder: Recorder) -> None:
    """SDK calls and the client's own; the innermost block wins, and nothing is left behind."""
    with client.label("outer"):
        call(client.openai)
        with client.label("inner"):
            client.generate("hi", warmup=False)
            client.measure("hi", rounds=1, warmup=0)
        call(client.openai)
    call(client.openai)
    assert labels(recorder) == ["outer", "inner", "inner", "outer", None]


def test_a_label_ends_with_its_block_when_that_raises(client: LLMClient, recorder: Recorder) -> None:
    """An application's error does not label what follows."""
    with pytest.raises(ZeroDivisionError), client.label("plan"):
        raise ZeroDivisionError
    call(client.openai)
    assert labels(recorder) == [None]


def test_a_label_of_the_call_wins_over_the_block(client: LLMClient, recorder: Recorder) -> None:
    """As an argument, a field, a header; of these the field before the header."""
    header, field = {"X-LLMSpeed-Label": "header"}, {"llmspeed_label": "field"}
    with client.label("block"):
        client.generate("hi", warmup=False, label="argument")
        call(client.openai, extra_headers=header)
        call(client.openai, extra_body=field)
        call(client.openai, extra_headers=header, extra_body=field)
    assert labels(recorder) == ["argument", "header", "field", "field"]


def test_a_load_in_a_block_has_its_label(client: LLMClient, recorder: Recorder) -> None:
    """Of a load all requests, and the load itself."""
    with client.label("rush"):
        result = client.load("hi", concurrency=1, requests=10, max_tokens=4)
    assert result.label == "rush"
    assert set(labels(recorder)) == {"rush"}


def test_tasks_and_threads_do_not_mix_their_labels(client: LLMClient, recorder: Recorder) -> None:
    """Each task has its own block, in an order that interleaves; a plain thread begins without one."""

    async def step(name: str, mine: asyncio.Event, other: asyncio.Event) -> None:
        with client.label(name):
            mine.set()
            await other.wait()
            await client.async_openai.chat.completions.create(**HELLO, user=name)

    async def both() -> None:
        one, two = asyncio.Event(), asyncio.Event()
        await asyncio.gather(step("plan", one, two), step("act", two, one))

    asyncio.run(both())
    assert sorted(map(str, labels(recorder))) == ["act", "plan"]
    with client.label("plan"):
        thread = threading.Thread(target=call, args=(client.openai,))
        thread.start()
        thread.join()
    assert labels(recorder)[-1] in (None, "plan")  # newer Pythons may hand the block on to threads


def test_a_generator_closed_by_another_task_is_no_error(client: LLMClient) -> None:
    """Where streams are given up, event loops finish generators elsewhere."""

    async def stream() -> Any:
        with client.label("plan"):
            yield 1
            yield 2

    async def abandon() -> None:
        generator = stream()
        await generator.__anext__()
        await asyncio.create_task(generator.aclose())

    asyncio.run(abandon())


@pytest.mark.parametrize("streamed", [False, True])
def test_header_and_field_do_not_reach_the_server(
    of_server: LLMClient, server: ReplayServer, recorder: Recorder, streamed: bool
) -> None:
    """A strict server refuses what it does not know; the rest of the request is as it was."""
    fields = STREAMED if streamed else HELLO
    if not streamed:
        body = b'{"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}]}'
        server.script = lambda _: Play([(1, body)], content_type="application/json")
    answer = of_server.openai.chat.completions.create(
        **fields,
        extra_headers={"X-LLMSpeed-Label": "plan", "X-Mine": "1"},
        extra_body={"llmspeed_label": "plan", "seed": 1},
    )
    if streamed:
        list(answer)
    ((headers, body_sent),) = server.requests
    assert "x-llmspeed-label" not in {name.lower() for name in headers}
    assert {name.lower(): value for name, value in headers.items()}["x-mine"] == "1"
    assert "llmspeed_label" not in body_sent
    assert (body_sent["seed"], body_sent["messages"]) == (1, HELLO["messages"])
    assert labels(recorder) == ["plan"]


def test_a_prompt_that_mentions_the_field_is_sent_as_it_is(
    of_server: LLMClient, server: ReplayServer, recorder: Recorder
) -> None:
    """Only a field at the top of the body is one."""
    messages = [{"role": "user", "content": 'what is "llmspeed_label"?'}]
    list(of_server.openai.chat.completions.create(**{**STREAMED, "messages": messages}))
    assert server.requests[0][1]["messages"] == messages
    assert labels(recorder) == [None]


def test_a_field_that_is_no_text_is_refused(client: LLMClient, recorder: Recorder) -> None:
    """As a bad request that names it; nothing is measured."""
    with pytest.raises(openai.BadRequestError, match="llmspeed_label=3: a label must be a string"):
        call(client.openai, extra_body={"llmspeed_label": 3})
    assert labels(recorder) == []


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda client: client.label(""), r"label\(''\): a label must be a string that is not empty"),
        (lambda client: client.label(None), r"label\(None\): a label must be a string"),
        (lambda client: client.generate("hi", extra_body={"llmspeed_label": "x"}), "label="),
    ],
)
def test_what_is_no_label_is_refused(
    client: LLMClient, use: Callable[[LLMClient], object], message: str
) -> None:
    """Before anything is sent."""
    with pytest.raises(SettingsError, match=message):
        use(client)
