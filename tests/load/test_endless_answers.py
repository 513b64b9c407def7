"""Answers without end in a load: each is a failed request, bounded in time and memory."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from helpers.servers import chunk

from pytest_llmspeed import EngineSpec, LLMClient
from pytest_llmspeed.engines.servers._openai import OpenAIEngine
from pytest_llmspeed.load import worker_pool
from pytest_llmspeed.recording.recorder import Recorder
from pytest_llmspeed.system.event_loop import LoopThread

MODELS = b'HTTP/1.1 200 OK\r\ncontent-length: 24\r\nconnection: close\r\n\r\n{"data": [{"id": "m"}]} '
ENDLESS_ANSWERS = {
    "an endless answer": (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n",
        chunk({"content": "a"}) * 300,
    ),
    "an endless error": (b"HTTP/1.1 500 X\r\ncontent-type: application/json\r\n", b"x" * 65_536),
    "an endless head": (b"HTTP/1.1 200 OK\r\n", None),
}


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    loop = LoopThread()
    yield loop
    loop.close()


@contextmanager
def pouring(head: bytes, piece: bytes | None) -> Iterator[str]:
    """The address of a server that answers each request without end, as fast as it is read."""
    listener = socket.create_server(("127.0.0.1", 0))
    more = b"x-more: " + b"y" * 4096 + b"\r\n" if piece is None else b"%x\r\n%s\r\n" % (len(piece), piece)

    def pour(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            if connection.recv(1 << 16).startswith(b"GET"):
                connection.sendall(MODELS)
                return
            connection.sendall(head + (b"" if piece is None else b"transfer-encoding: chunked\r\n\r\n"))
            while True:
                connection.sendall(more)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=pour, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        listener.close()


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory from /proc")
@pytest.mark.parametrize("kind", ENDLESS_ANSWERS)
def test_answers_without_end_cost_a_load_neither_its_time_nor_the_memory(
    loop: LoopThread, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """Each is a failed request; the worker stays below 256 MiB, also with several at once."""
    status = tmp_path / "status"
    kept = f"open({str(status)!r}, 'w').write(open('/proc/self/status').read())"
    paths, begin = worker_pool._program().rsplit("; ", 1)
    program = f"{paths}; import atexit; atexit.register(lambda: {kept}); {begin}"
    monkeypatch.setattr(worker_pool, "_program", lambda: program)
    with pouring(*ENDLESS_ANSWERS[kind]) as url:
        engine = OpenAIEngine.start(EngineSpec.of("openai", "m", None, {"url": url}))
        client = LLMClient(engine, loop, Recorder())
        started_s = time.monotonic()
        found = client.load("hello", concurrency=4, requests=8, warmup=0, timeout_s=3)
        took_s = time.monotonic() - started_s
    assert len(found.failures) == len(found.samples) == 8
    errors = {str(sample.error) for sample in found.failures}
    assert all("larger than" in error or "timed out" in error for error in errors), errors
    (peak,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    assert int(peak.split()[1]) < 256 * 1024, peak
    assert took_s < 60  # two rounds of 3 s, on a busy machine
