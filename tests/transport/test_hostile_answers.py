"""Answers that nobody should send: each is the failure of its own request, bounded in size and time."""

from __future__ import annotations

import asyncio
import json
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from pytest_llmspeed import Request
from pytest_llmspeed.metrics.exchange import Exchange
from pytest_llmspeed.metrics.sample import sample_of
from pytest_llmspeed.sdk.usage_filter import UsageFilter
from pytest_llmspeed.transport import parser, recording_client, response_reader
from pytest_llmspeed.transport.address import BaseURL
from pytest_llmspeed.transport.client import HTTPClient
from pytest_llmspeed.transport.openai_protocol import MOST_CHOICES, AnswerReader
from pytest_llmspeed.transport.parser import ResponseParser, TransportError
from pytest_llmspeed.transport.recording_client import RecordingClient
from pytest_llmspeed.transport.response_reader import AnswerBytes
from pytest_llmspeed.transport.responses_api import ResponsesReader
from pytest_llmspeed.transport.send import ask
from pytest_llmspeed.transport.sse import EventParser
from pytest_llmspeed.transport.target import Target
from pytest_llmspeed.transport.timestamps import KERNEL_STAMPS

CHOICE = {"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}
EVENTS = b"data: " + json.dumps({"choices": [CHOICE]}).encode() + b"\n\ndata: [DONE]\n\n"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
WHOLE = HEAD + b"content-length: %d\r\n\r\n" % len(EVENTS) + EVENTS
DEEP = b"[" * 100_000
HOSTILE = {
    "deep JSON": b'{"choices": ' + DEEP,
    "a deep error": b'{"error": ' + DEEP,
    "a deep delta": b'{"choices": [{"delta": {"content": ' + b"[" * 900 + b"]" * 900 + b"}}]}",
    "a count of 400 digits": b'{"choices": [], "usage": {"completion_tokens": ' + b"9" * 400 + b"}}",
    "an infinite index": b'{"choices": [{"index": Infinity, "delta": {"content": "a"}}]}',
    "an index of 1e999": b'{"choices": [{"index": 1e999, "delta": {"content": "a"}}]}',
    "a finish reason that is an object": b'{"choices": [{"index": 0, "finish_reason": {"a": [1]}}]}',
    "a finish reason of half a character": b'{"choices": [{"index": 0, "finish_reason": "\\ud800"}]}',
    "token ids of 400 digits": b'{"choices": [{"index": 0, "token_ids": [' + b"9" * 400 + b"]}]}",
    "token ids that are an object": b'{"choices": [{"index": 0, "token_ids": {"a": 1}}]}',
    "many choices": json.dumps({"choices": [{"index": n} for n in range(MOST_CHOICES + 5)]}).encode(),
    "a type that is a list": b'{"type": ["response.completed"], "response": 3}',
    "an end without a response": b'{"type": "response.completed", "response": [1]}',
    "an item that is a word": b'{"type": "response.output_item.done", "item": "word"}',
    "a delta that is deep": b'{"type": "response.output_text.delta", "delta": '
    + b'{"a":' * 900
    + b"1"
    + b"}" * 901,
    "not UTF-8": b"\xff\xfe\xfd",
}


@pytest.mark.parametrize("reader", [AnswerReader, ResponsesReader])
@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("shape", ["event", "body", "error"])
def test_whatever_an_answer_holds_it_raises_nothing(
    content: bytes, shape: str, reader: Callable[[], AnswerReader]
) -> None:
    """In a stream, in one body and in the body of an error, for chats and for responses."""
    response_reader = AnswerBytes(reader=reader())
    response_reader.begin(500 if shape == "error" else 200, {})
    response_reader.feed(b"data: " + content + b"\n\n" if shape == "event" else content, 1.0)
    response_reader.close()
    sample = sample_of(response_reader.exchange(Request("x"), 0.0))
    json.dumps([sample.error, sample.finish_reason], ensure_ascii=False).encode()


@contextmanager
def playing(*scripts: list[bytes | Callable[[socket.socket], None]]) -> Iterator[BaseURL]:
    """A server that plays to each connection its script, bytes after each request, and then closes it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def play(connection: socket.socket, script: list[bytes | Callable[[socket.socket], None]]) -> None:
        with suppress(OSError), connection:
            for step in script:
                if callable(step):
                    step(connection)
                    continue
                if not connection.recv(1 << 20):
                    return
                connection.sendall(step)

    def accept() -> None:
        with suppress(OSError):
            for script in scripts:
                connection, _ = listener.accept()
                threading.Thread(target=play, args=(connection, script), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield BaseURL.parse(f"http://127.0.0.1:{listener.getsockname()[1]}/v1")
    finally:
        listener.close()


def generated(base: BaseURL, *prompts: str) -> list[Exchange]:
    """The answers to some requests, one after the other, as `generate` asks them."""

    async def asked() -> list[Exchange]:
        client = HTTPClient(base)
        found = [await ask(client, Request(prompt, timeout_s=5), {}, "m") for prompt in prompts]
        client.close()
        return found

    return asyncio.run(asked())


def loaded(base: BaseURL, *prompts: str) -> list[Exchange]:
    """The same as a load asks them."""

    async def asked() -> list[Exchange]:
        client, found = RecordingClient(Target(base, {}, "m")), []
        for prompt in prompts:
            prepared = client.prepare(Request(prompt, timeout_s=5))
            await prepared.send()
            found.append(prepared.answer.exchange(prepared.request))
        client.close()
        return found

    return asyncio.run(asked())


WAYS = pytest.mark.parametrize("asked", [generated, loaded])


@WAYS
def test_another_protocol_is_the_failure_of_one_request(asked: Callable[..., list[Exchange]]) -> None:
    """An answer 101 ends its request at once; the next one is answered."""
    switch = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"
    with playing([switch], [WHOLE]) as base:
        first, second = asked(base, "one", "two")
    assert "HTTP 101" in (first.failure or "")
    assert second.failure is None


@WAYS
def test_headers_may_hold_any_byte(asked: Callable[..., list[Exchange]]) -> None:
    """They are not text of any encoding that is known."""
    with playing([WHOLE.replace(b"\r\n", b"\r\nx-odd: \xe9\xff\xf0\r\n", 1)]) as base:
        (found,) = asked(base, "one")
    assert found.failure is None


@WAYS
@pytest.mark.parametrize(
    ("first", "words"),
    [
        (b"HTTP/1.1 500 X\r\ntransfer-encoding: chunked\r\n\r\n", "HTTP 500"),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n", "the answer is larger than"),
        (HEAD + b"x-endless: ", "the head of the answer is larger than"),
    ],
)
def test_an_endless_answer_is_given_up(
    asked: Callable[..., list[Exchange]], first: bytes, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure names the limit. Here the limits are lower than anywhere else."""
    for module, name in ((parser, "MOST_ANSWER"), (recording_client, "MOST_ANSWER")):
        monkeypatch.setattr(module, name, 4 << 20)
    monkeypatch.setattr(recording_client, "MOST_HANDED_OVER", 1 << 20)

    def endless(connection: socket.socket) -> None:
        piece = b"x" * 65536 if first.endswith(b": ") else b"10000\r\n" + b": xxxxx\n" * 8192 + b"\r\n"
        while True:
            connection.sendall(piece)

    with playing([first, endless]) as base:
        (found,) = asked(base, "one")
    assert words in (found.failure or "")
    assert "MiB" in (found.failure or "")


def test_an_endless_event_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that does not end, or one event of many lines."""
    monkeypatch.setattr(response_reader, "MOST_EVENT", 1 << 20)
    for piece in (b"x" * 65536, b"data: x\n" * 8192):
        read = AnswerBytes()
        read.begin(200, {})
        read.feed(b"data: ", 0.0)
        for _ in range(40):
            read.feed(piece, 0.0)
        assert "one event of the answer is larger than 1 MiB" in (
            read.exchange(Request("x"), 0.0).error or ""
        )


def test_a_long_line_is_copied_once() -> None:
    """16 MiB in small pieces: each is looked at once, or this takes minutes."""
    parser, usage_filter, size = EventParser(), UsageFilter(), 0
    parser.feed(b"data: ", 0.0)
    usage_filter.feed(b"data: ")
    for _ in range(16_384):
        parser.feed(b"x" * 1024, 0.0)
        usage_filter.feed(b"x" * 1024)
    size = len(usage_filter.feed(b"\n\n"))
    assert (len(parser.feed(b"\n\n", 0.0)[0].data), size) == (1 << 24, (1 << 24) + 8)


def test_any_beginning_of_a_second_answer_spoils_the_connection() -> None:
    """Be it its first letter."""
    for extra in (b"H", b"HTTP/1.1 200 OK\r\n", WHOLE, b"\x00"):
        read = ResponseParser("server")
        read.feed(WHOLE + extra)
        assert (read.complete, read.reusable) == (True, False)
        assert read.take() == EVENTS


@WAYS
def test_a_second_answer_is_not_taken_for_that_of_the_next_request(
    asked: Callable[..., list[Exchange]],
) -> None:
    """The next request has a connection of its own."""
    wrong = WHOLE.replace(b"hi", b"no")
    with playing([WHOLE + wrong], [WHOLE]) as base:
        first, second = asked(base, "one", "two")
    assert (first.joined("text"), second.joined("text"), second.new_connection) == ("hi", "hi", True)


@WAYS
def test_an_early_answer_to_a_long_request_is_read(asked: Callable[..., list[Exchange]]) -> None:
    """A server that wants no more of it says so, and may close or not."""
    refusal = b"HTTP/1.1 413 Too Large\r\ncontent-length: 8\r\n\r\ntoo much"
    for ending in ([], [lambda _: time.sleep(0.5)]):
        with playing([refusal, *ending]) as base:
            (found,) = asked(base, "long " * 4_000_000)
        assert found.failure == "HTTP 413: too much"


@pytest.mark.skipif(not KERNEL_STAMPS or sys.platform != "linux", reason="needs the kernel's word")
@WAYS
def test_a_request_that_a_closed_connection_never_read_is_sent_again(
    asked: Callable[..., list[Exchange]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server closed after its answer, and the client did not see it yet: nothing has read the request."""
    monkeypatch.setattr("pytest_llmspeed.transport.timestamps._KernelStamped.is_stale", _overlooked)
    monkeypatch.setattr("pytest_llmspeed.transport.recording_client._Connection.ended", _late_end)
    with playing([WHOLE], [WHOLE]) as base:
        first, second = asked(base, "one", "two")
    assert (first.failure, second.failure) == (None, None)
    assert ("resent" in first.notes, "resent" in second.notes, second.new_connection) == (False, True, True)


def _overlooked(connection: Any) -> bool:
    """The peer has closed the connection, and nobody noticed."""
    closed = select.poll()
    closed.register(connection._socket, select.POLLRDHUP)
    closed.poll(2000)
    return False


def _late_end(connection: recording_client._Connection, failure: OSError | None) -> None:
    """The end of a connection as it is noted while an answer is awaited, and not before."""
    if connection._answer is None:
        return
    connection.is_open = False
    connection._answer.peer_closed = failure is None
    connection._end()


@WAYS
def test_a_request_that_was_read_is_not_sent_again(asked: Callable[..., list[Exchange]]) -> None:
    """A server that reads it and then closes or resets has failed it."""

    def read_and_close(connection: socket.socket) -> None:
        connection.recv(1 << 20)

    with playing([WHOLE, read_and_close], [WHOLE]) as base:
        first, second = asked(base, "one", "two")
    assert first.failure is None
    assert "without an answer" in (second.failure or "")


def test_an_unreadable_stream_raises_only_transport_errors() -> None:
    """Whatever bytes come."""
    for content in (b"\x00" * 100, b"HTTP/9.9 999 X\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"):
        with pytest.raises(TransportError):
            ResponseParser("server").feed(content)
