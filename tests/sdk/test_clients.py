"""Real `openai` clients on our transport, against a server that plays timed bytes."""

from __future__ import annotations

import asyncio
import gc
import json
import ssl
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import openai
import pytest
import trustme
from helpers.servers import Play, ReplayServer, chunk, event, tokens, usage

from pytest_llmspeed import Backend, Exchange, Usage
from pytest_llmspeed.client import LLMClient
from pytest_llmspeed.engines.base import EngineSpec
from pytest_llmspeed.engines.servers._openai import OpenAIEngine
from pytest_llmspeed.metrics.sample import Sample
from pytest_llmspeed.recording.recorder import Recorder
from pytest_llmspeed.sdk.clients import httpx_of_the_sdk
from pytest_llmspeed.system.event_loop import LoopThread
from pytest_llmspeed.transport.client import BaseURL
from pytest_llmspeed.transport.vendor_fields import VendorFields

HELLO: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
STREAMED = {**HELLO, "stream": True}
PIECES = tokens(4, first_ms=10, gap_ms=10)
UPGRADE = Play(raw=b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n")
ENDLESS = Play([(5.0, chunk({"content": "a"}))], ending="hang")


def whole(text: str, **fields: Any) -> Play:
    """An answer that is not streamed."""
    message = {"role": "assistant", "content": text, **fields}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return json_play({**body, "usage": usage(3)})


def json_play(body: dict[str, Any], status: int = 200) -> Play:
    return Play([(5, json.dumps(body).encode())], status=status, content_type="application/json")


@pytest.fixture
def server() -> Iterator[ReplayServer]:
    """Answers with a stream or in one piece, as it is asked."""
    answer = whole("hello you there")
    with ReplayServer(lambda body: Play(PIECES) if body.get("stream") else answer) as found:
        yield found


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    found = LoopThread()
    yield found
    found.close()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def connect(
    loop: LoopThread, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], LLMClient]]:
    """A client of the server at a URL."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    made = []

    def of(url: str) -> LLMClient:
        engine = OpenAIEngine.start(EngineSpec.of("openai", "m", None, {"url": url}))
        made.append((engine, LLMClient(engine, loop, recorder)))
        return made[-1][1]

    yield of
    for engine, client in made:
        client.close()
        loop.run(engine.close())


@pytest.fixture
def client(server: ReplayServer, connect: Callable[[str], LLMClient]) -> LLMClient:
    return connect(server.url)


def text_of(chunks: list[Any]) -> str:
    return "".join(each.choices[0].delta.content or "" for each in chunks)


def until(holds: Callable[[], bool]) -> None:
    """Wait for what another thread brings about."""
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.001)


def only(recorder: Recorder) -> Sample:
    (sample,) = recorder.measurement.samples
    return sample


def test_a_stream_is_recorded_as_its_bytes_arrive(client: LLMClient, recorder: Recorder) -> None:
    """The caller reads what it would read without us; the record has the figures."""
    chunks = list(client.openai.chat.completions.create(**STREAMED))
    assert text_of(chunks) == "w0 w1 w2 w3 "
    sample = only(recorder)
    assert (sample.call, sample.text, sample.output_tokens) == ("sdk", "w0 w1 w2 w3 ", 4)
    assert sample.ttft_ms is not None
    assert sample.tpot_ms is not None
    assert 10 <= sample.ttft_ms < 100
    assert 1 < sample.tpot_ms < 100
    assert sample.flags == {"new_connection", "k_assumed"}


def test_the_same_in_a_coroutine(client: LLMClient, recorder: Recorder) -> None:
    """Over connections of the running loop."""

    async def application() -> list[Any]:
        stream = await client.async_openai.chat.completions.create(**STREAMED)
        return [chunk async for chunk in stream]

    assert text_of(asyncio.run(application())) == "w0 w1 w2 w3 "
    assert only(recorder).output_tokens == 4


def test_usage_is_asked_for_and_not_shown(
    client: LLMClient, server: ReplayServer, recorder: Recorder
) -> None:
    """A caller that loops over `chunk.choices[0]` does not fall over a chunk without choices."""
    chunks = list(client.openai.chat.completions.create(**STREAMED))
    assert server.requests[0][1]["stream_options"] == {"include_usage": True}
    assert all(chunk.choices for chunk in chunks)
    assert only(recorder).token_source == "usage"


def test_a_caller_that_asks_for_usage_gets_it(client: LLMClient) -> None:
    """The stream is the server's, to the last byte."""
    asking = {**STREAMED, "stream_options": {"include_usage": True}}
    *_, last = client.openai.chat.completions.create(**asking)
    assert (last.choices, last.usage.completion_tokens) == ([], 4)


def test_the_rest_of_the_stream_is_the_servers_to_the_byte(client: LLMClient) -> None:
    """Without the usage chunk."""
    url = f"{client.openai.base_url}chat/completions"
    raw = client.http_client.post(url, json=STREAMED).content
    played = b"".join(part for _, part in PIECES)
    assert raw == played.replace(event({"choices": [], "usage": usage(4)}), b"")


def test_an_answer_in_one_piece_has_its_end_to_end_time_only(client: LLMClient, recorder: Recorder) -> None:
    """There is no first token to be seen."""
    answer = client.openai.chat.completions.create(**HELLO)
    assert answer.choices[0].message.content == "hello you there"
    sample = only(recorder)
    assert (sample.ttft_ms, sample.output_tokens) == (None, 3)
    assert sample.e2e_ms is not None
    assert "non_streaming" in sample.flags


def test_tool_calls_are_output(connect: Callable[[str], LLMClient], recorder: Recorder) -> None:
    """They reach the caller whole, and the clock stops at the first piece of one."""
    calls = [
        {"index": 0, "id": "1", "type": "function", "function": {"name": "weather", "arguments": ""}},
        {"index": 0, "function": {"arguments": "{}"}},
    ]
    pieces = [(10.0 * place, chunk({"tool_calls": [call]})) for place, call in enumerate(calls, 1)]
    pieces.append((20.0, chunk(finish="tool_calls") + b"data: [DONE]\n\n"))
    with ReplayServer(lambda _: Play(pieces)) as server:
        chunks = list(connect(server.url).openai.chat.completions.create(**STREAMED))
    assert chunks[0].choices[0].delta.tool_calls[0].function.name == "weather"
    sample = only(recorder)
    assert (sample.output_events, sample.finish_reason, sample.error) == (2, "tool_calls", None)


def test_completions_are_measured(connect: Callable[[str], LLMClient], recorder: Recorder) -> None:
    """A text that is continued."""
    choice = {"index": 0, "text": "b c", "finish_reason": "stop"}
    body = {"id": "x", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]}
    with ReplayServer(lambda _: json_play({**body, "usage": usage(2)})) as server:
        answer = connect(server.url).openai.completions.create(model="m", prompt="a")
    assert answer.choices[0].text == "b c"
    assert (only(recorder).text, only(recorder).output_tokens) == ("b c", 2)


def test_responses_are_measured(connect: Callable[[str], LLMClient], recorder: Recorder) -> None:
    """The newer API, where the server has it."""
    deltas = [
        {"type": "response.output_text.delta", "delta": text, "item_id": "1", "output_index": 0}
        for text in ("a", "b")
    ]
    counts = {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}
    response = {"id": "r", "object": "response", "status": "completed", "output": [], "usage": counts}
    events = [*deltas, {"type": "response.completed", "response": response}]
    pieces = [
        (10.0 * place, f"event: {body['type']}\n".encode() + event(body))
        for place, body in enumerate(events, 1)
    ]
    with ReplayServer(lambda _: Play(pieces)) as server:
        stream = connect(server.url).openai.responses.create(model="m", input="hi", stream=True)
        assert [each.type for each in stream][-1] == "response.completed"
    sample = only(recorder)
    assert (sample.text, sample.output_tokens, sample.error) == ("ab", 2, None)


def test_other_calls_pass_unmeasured(connect: Callable[[str], LLMClient], recorder: Recorder) -> None:
    """Embeddings, lists of models."""
    vectors = [{"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}]
    body = {"object": "list", "model": "m", "data": vectors, "usage": usage(1)}
    with ReplayServer(lambda _: json_play(body)) as server:
        client = connect(server.url).openai
        made = client.embeddings.create(model="m", input="hi", encoding_format="float")
        listed = [model.id for model in client.models.list()]
    assert (made.data[0].embedding, listed) == ([0.5, 0.25], ["m"])
    assert recorder.count == 0


def test_an_http_error_is_the_sdks_own_and_is_recorded(
    connect: Callable[[str], LLMClient], recorder: Recorder
) -> None:
    """Nothing is retried."""
    with ReplayServer(lambda _: json_play({"error": {"message": "slow down"}}, status=429)) as server:
        client = connect(server.url).openai
        with pytest.raises(openai.RateLimitError, match="slow down"):
            client.chat.completions.create(**HELLO)
        assert len(server.requests) == 1
    assert only(recorder).error == "HTTP 429: slow down"


def test_an_error_inside_a_stream_is_the_sdks_own_and_is_recorded(
    connect: Callable[[str], LLMClient], recorder: Recorder
) -> None:
    """What came before it is no answer."""
    pieces = [(5.0, chunk({"content": "a"})), (10.0, event({"error": {"message": "out of memory"}}))]
    with ReplayServer(lambda _: Play(pieces)) as server:
        client = connect(server.url).openai
        with pytest.raises(openai.APIError, match="out of memory"):
            list(client.chat.completions.create(**STREAMED))
    until(lambda: recorder.count == 1)  # older SDKs do not read on to the end
    assert only(recorder).error == "out of memory"


@pytest.fixture
def broken() -> tuple[type[Exception], ...]:
    """How the SDK tells that a stream broke: later ones by an error of their own, older ones by httpx's."""
    return openai.APIConnectionError, httpx_of_the_sdk().TransportError


def test_a_connection_that_breaks_is_the_sdks_own_error_and_is_recorded(
    connect: Callable[[str], LLMClient], recorder: Recorder, broken: Any
) -> None:
    """In the middle of a stream."""
    with ReplayServer(lambda _: Play([(5.0, chunk({"content": "a"}))], ending="reset")) as server:
        client = connect(server.url).openai
        with pytest.raises(broken):
            list(client.chat.completions.create(**STREAMED))
    assert "the connection" in str(only(recorder).error)


def test_a_server_that_is_gone_is_a_connection_error(loop: LoopThread, recorder: Recorder) -> None:
    """In a thread and in a coroutine."""
    nobody = BaseURL.parse("http://127.0.0.1:1/v1")
    client = LLMClient(OpenAIEngine(nobody, Backend("openai"), {}, None), loop, recorder)

    async def application() -> None:
        await client.async_openai.chat.completions.create(**HELLO)

    with pytest.raises(openai.APIConnectionError):
        asyncio.run(application())
    assert "cannot connect" in str(only(recorder).error)
    with pytest.raises(openai.APIConnectionError):
        client.openai.chat.completions.create(**HELLO)
    client.close()


def test_a_time_out_is_the_sdks_own_and_is_recorded(
    connect: Callable[[str], LLMClient], recorder: Recorder, broken: Any
) -> None:
    """The limit is that of the call, for anything to arrive."""
    with ReplayServer(lambda _: Play([(1.0, chunk({"content": "a"}))], ending="hang")) as server:
        client = connect(server.url).openai
        with pytest.raises(broken, match="time"):
            list(client.chat.completions.create(**STREAMED, timeout=0.2))
    assert only(recorder).error == "timed out after 0.2 s with 1 output events"


def test_a_stream_that_its_caller_closes_is_cancelled_and_no_failure(
    connect: Callable[[str], LLMClient], recorder: Recorder
) -> None:
    """Its first token counts; how long it would have been, nobody knows."""
    with (
        ReplayServer(lambda _: ENDLESS) as server,
        connect(server.url).openai.chat.completions.create(**STREAMED) as stream,
    ):
        next(stream)
    sample = only(recorder)
    assert (sample.error, sample.e2e_ms) == (None, None)
    assert sample.ttft_ms is not None
    assert "cancelled" in sample.flags


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("way", ["closed at once", "never read", "left by an error", "loop closed"])
def test_a_stream_that_a_coroutine_leaves_early_keeps_no_connection_open(
    connect: Callable[[str], LLMClient], recorder: Recorder, way: str
) -> None:
    """Its request is recorded as cancelled, and overlaps with no later one."""

    async def leave(client: LLMClient) -> None:
        stream = await client.async_openai.chat.completions.create(**STREAMED)
        if way == "closed at once":
            await stream.close()
        if way == "left by an error":
            raise ZeroDivisionError

    with ReplayServer(lambda body: ENDLESS if "max_tokens" not in body else Play(PIECES)) as server:
        client = connect(server.url)
        if way == "loop closed":
            loop = asyncio.new_event_loop()
            loop.run_until_complete(leave(client))
            loop.close()
            client.close()
        else:
            with suppress(ZeroDivisionError):
                asyncio.run(leave(client))
        client.generate("x", max_tokens=4, warmup=False)
    gc.collect()
    left, later = recorder.measurement.samples
    assert ("cancelled" in left.flags, "overlapped" in later.flags) == (True, False)


def test_a_coroutine_that_is_cancelled_leaves_a_cancelled_request(
    connect: Callable[[str], LLMClient], recorder: Recorder
) -> None:
    """As when the application's own time limit is over."""

    async def application(client: LLMClient) -> None:
        async with asyncio.timeout(0.2):
            stream = await client.async_openai.chat.completions.create(**STREAMED)
            async for _ in stream:
                pass

    with ReplayServer(lambda _: ENDLESS) as server, pytest.raises(TimeoutError):
        asyncio.run(application(connect(server.url)))
    assert "cancelled" in only(recorder).flags


def test_a_caller_that_stops_at_the_finish_reason_has_read_a_whole_answer(
    client: LLMClient, recorder: Recorder
) -> None:
    """Its token counts are taken in all the same, and the connection serves again."""
    for _ in range(2):
        with client.openai.chat.completions.create(**STREAMED) as stream:
            for found in stream:
                if found.choices[0].finish_reason:
                    break
    first, second = recorder.measurement.samples
    assert (first.output_tokens, first.flags) == (4, {"new_connection", "k_assumed"})
    assert "new_connection" not in second.flags


def apart(sample: Sample) -> int:
    """How many gaps there are between stamps: none where all was read at once, late."""
    return sum(gap > 1 for gap in sample.itl_ms)


@pytest.fixture
def slow(connect: Callable[[str], LLMClient]) -> Iterator[LLMClient]:
    """A client of a server that writes a token each 40 ms."""
    with ReplayServer(lambda _: Play(tokens(4, 10, 40))) as server:
        yield connect(server.url)


def test_a_caller_that_dawdles_does_not_make_the_server_slow(slow: LLMClient, recorder: Recorder) -> None:
    """The stream is read and stamped while the caller does something else."""
    with slow.openai.chat.completions.create(**STREAMED) as stream:
        next(stream)
        until(lambda: recorder.count == 1)
        assert len(list(stream)) == 4
    assert apart(only(recorder)) > 1


def test_a_coroutine_that_dawdles_does_not_make_the_server_slow(slow: LLMClient, recorder: Recorder) -> None:
    """The loop reads on while the application waits for something else."""

    async def application() -> None:
        stream = await slow.async_openai.chat.completions.create(**STREAMED)
        while not recorder.count:
            await asyncio.sleep(0.001)
        assert len([chunk async for chunk in stream]) == 5

    asyncio.run(application())
    assert apart(only(recorder)) > 1


def test_a_retry_is_a_request_of_its_own(client: LLMClient, recorder: Recorder) -> None:
    """Flagged, for it came after a failure."""
    again = {"x-stainless-retry-count": "1"}
    client.openai.chat.completions.create(**HELLO, extra_headers=again)
    assert "retry" in only(recorder).flags


def test_calls_from_threads_are_all_recorded_and_flagged(client: LLMClient, recorder: Recorder) -> None:
    """One client serves them all."""

    def call(_: int) -> str:
        return text_of(list(client.openai.chat.completions.create(**STREAMED)))

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(call, range(8))) == {"w0 w1 w2 w3 "}
    assert recorder.count == 8
    assert all("overlapped" in sample.flags for sample in recorder.measurement.samples)


def test_each_loop_has_connections_of_its_own(client: LLMClient, recorder: Recorder) -> None:
    """The same client works in one loop after the other, and many calls in each."""

    async def call() -> None:
        async for _ in await client.async_openai.chat.completions.create(**STREAMED):
            pass

    async def application() -> None:
        await asyncio.gather(*(call() for _ in range(4)))
        await call()

    for _ in range(2):
        asyncio.run(application())
    flags = [sample.flags for sample in recorder.measurement.samples]
    assert sum("new_connection" in each for each in flags) == 8
    assert all(sample.ok for sample in recorder.measurement.samples)


def test_a_server_over_tls_is_reached_from_each_loop(
    connect: Callable[[str], LLMClient],
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """By connections that outlive the loops, and leave no warning behind when those are closed."""
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))

    async def application(client: LLMClient) -> list[Any]:
        return [chunk async for chunk in await client.async_openai.chat.completions.create(**STREAMED)]

    with ReplayServer(lambda _: Play(PIECES), tls=context) as server:
        client = connect(server.url)
        for _ in range(2):
            assert text_of(asyncio.run(application(client))) == "w0 w1 w2 w3 "
        gc.collect()
    assert ["new_connection" in sample.flags for sample in recorder.measurement.samples] == [True, False]


def test_an_engine_adds_its_own_fields_and_counts(
    loop: LoopThread, recorder: Recorder, server: ReplayServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it does for our own requests: those for a cold prefix cache, and tokens that nobody told."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    class Counting(OpenAIEngine):
        async def completed(self, found: Exchange) -> Exchange:
            return replace(found, usage=Usage(output_tokens=7), token_source="tokenizer")

    engine = Counting.start(EngineSpec.of("openai", "m", None, {"url": server.url}))
    engine._target = replace(engine.target, vendor_fields=VendorFields("x", plain={"cache_prompt": False}))
    client = LLMClient(engine, loop, recorder)
    client.openai.chat.completions.create(**HELLO)

    async def application() -> None:
        await client.async_openai.chat.completions.create(**HELLO)

    asyncio.run(application())
    client.close()
    assert [body["cache_prompt"] for _, body in server.requests] == [False, False]
    assert [sample.output_tokens for sample in recorder.measurement.samples] == [7, 7]


def test_a_key_of_the_backend_is_sent_and_a_missing_one_is_not(
    server: ReplayServer, connect: Callable[[str], LLMClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK insists on a key: the word that it is given for none stays here."""
    connect(server.url).openai.chat.completions.create(**HELLO)
    connect(server.url.replace("//", "//ann:secret@")).openai.chat.completions.create(**HELLO)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    connect(server.url).openai.chat.completions.create(**HELLO)
    sent = [headers.get("authorization") for headers, _ in server.requests]
    assert sent == [None, "Basic YW5uOnNlY3JldA==", "Bearer sk-1"]


def test_a_client_of_a_framework_reaches_the_backend_through_ours(
    client: LLMClient, recorder: Recorder
) -> None:
    """With the HTTP client, the address and the key."""
    ours = client.openai
    theirs = openai.OpenAI(
        base_url=ours.base_url, api_key=ours.api_key, http_client=client.http_client, max_retries=2
    )
    theirs.chat.completions.create(**HELLO)
    assert recorder.count == 1


def test_a_call_to_somebody_else_is_refused_with_the_fix(client: LLMClient) -> None:
    """It is neither sent there, nor here."""
    elsewhere = "http://elsewhere.invalid/v1"
    theirs = openai.OpenAI(base_url=elsewhere, api_key="x", http_client=client.http_client)
    with pytest.raises(openai.NotFoundError, match="not the backend of this test: give your client base_url"):
        theirs.chat.completions.create(**HELLO)


def test_a_client_that_was_closed_is_made_again(client: LLMClient, recorder: Recorder) -> None:
    """`with llm_client.openai as client:` may stand in a loop."""
    for _ in range(2):
        with client.openai as ours:
            ours.chat.completions.create(**HELLO)
    assert recorder.count == 2


def test_what_is_under_way_at_the_end_of_the_test_is_cut_off(
    connect: Callable[[str], LLMClient], recorder: Recorder
) -> None:
    """It is recorded as far as it came, once."""
    with ReplayServer(lambda _: ENDLESS) as server:
        client = connect(server.url)
        stream = client.openai.chat.completions.create(**STREAMED)
        next(iter(stream))
        recorder.cut_off()
        client.close()
    sample = only(recorder)
    assert (sample.text, sample.error) == ("a", None)
    assert "cancelled" in sample.flags


@pytest.mark.parametrize("mode", ["blocking", "coroutine"])
def test_an_upgrade_that_nobody_asked_for_fails_its_own_call(
    connect: Callable[[str], LLMClient], recorder: Recorder, mode: str
) -> None:
    """HTTP 101 is one sentence about that call; the next ones are answered."""
    numbers = count(1)
    with ReplayServer(lambda _: UPGRADE if next(numbers) == 2 else Play(PIECES)) as server:
        client = connect(server.url)
        errors = [_error_of(client, mode) for _ in range(3)]
    assert [type(error) for error in errors] == [type(None), openai.APIConnectionError, type(None)]
    first, upgraded, third = recorder.measurement.samples
    assert (first.error, third.error, third.text) == (None, None, "w0 w1 w2 w3 ")
    assert upgraded.error is not None
    assert "101" in upgraded.error
    assert "\n" not in upgraded.error


def _error_of(client: LLMClient, mode: str) -> Exception | None:
    """Make one streamed call, and return what it raised."""

    async def ask() -> None:
        async for _ in await client.async_openai.chat.completions.create(**STREAMED):
            pass

    try:
        if mode == "coroutine":
            asyncio.run(ask())
        else:
            list(client.openai.chat.completions.create(**STREAMED))
    except openai.APIError as error:
        return error
    return None
