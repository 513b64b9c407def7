"""Servers for tests: one that plays timed bytes, and the real `transformers serve`."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True)
class Play:
    """An answer: pieces of a body with their times in ms, and how the connection ends after them.

    `raw`, if given, is sent instead of all that, as it is.
    """

    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    status: int = 200
    content_type: str = "text/event-stream"
    ending: Literal["clean", "reset", "hang", "close"] = "clean"
    raw: bytes = b""


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **fields: Any) -> bytes:
    """One chat completion chunk as a server-sent event."""
    choices = [{"index": 0, "delta": delta or {}, "finish_reason": finish}]
    return event({"object": "chat.completion.chunk", "choices": choices, **fields})


def event(body: dict[str, Any]) -> bytes:
    """A JSON body as a server-sent event."""
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def usage(tokens: int, prompt: int = 12) -> dict[str, Any]:
    """A usage object."""
    return {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}


def tokens(count: int, first_ms: float, gap_ms: float) -> list[tuple[float, bytes]]:
    """A whole answer of one-token chunks, with its finish reason, usage and [DONE]."""
    pieces = [(first_ms + gap_ms * place, chunk({"content": f"w{place} "})) for place in range(count)]
    end = pieces[-1][0]
    tail = chunk(finish="length") + event({"choices": [], "usage": usage(count)}) + b"data: [DONE]\n\n"
    return [*pieces, (end, tail)]


class ReplayServer:
    """Plays to each POST what `script` makes of its JSON body; lists one model.

    `sends` has of each piece that was sent the request's body, its time in ms, and when that was, in
    seconds of `time.perf_counter`: a busy machine makes it later.
    """

    def __init__(
        self,
        script: Callable[[dict[str, Any]], Play],
        models: tuple[str, ...] = ("m",),
        tls: ssl.SSLContext | None = None,
        owned_by: str = "somebody",
        below: str = "/",
    ) -> None:
        self.below, self.asked = below, list[str]()
        self.script, self.models, self._tls, self.owned_by = script, models, tls, owned_by
        self.requests: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.sends: list[tuple[dict[str, Any], float, float]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []

    @property
    def url(self) -> str:
        scheme = "https" if self._tls else "http"
        return f"{scheme}://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> ReplayServer:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for connection in self._open:
            with suppress(OSError):
                connection.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError, ValueError):
            if self._tls:
                connection = self._tls.wrap_socket(connection, server_side=True)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open.append(connection)
            with connection.makefile("rb") as incoming:
                while self._answer(connection, incoming):
                    pass

    def _answer(self, connection: socket.socket, incoming: Any) -> bool:
        """Answer one request; False once the connection is over."""
        request_line = incoming.readline()
        if not request_line:
            return False
        headers: dict[str, str] = {}
        while (line := incoming.readline().strip()) and b":" in line:
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        body = incoming.read(int(headers.get("content-length", 0)))
        method, path, _ = request_line.decode().split(" ")
        self.asked.append(f"{method} {path}")
        if not path.startswith(self.below):
            self._send_whole(connection, 404, b'{"detail": "Not Found"}')
            return True
        if request_line.startswith(b"GET"):
            listed = {"object": "list", "data": [self._listed(model) for model in self.models]}
            self._send_whole(connection, 200, json.dumps(listed).encode())
            return True
        self.requests.append((headers, json.loads(body)))
        return self._play(connection, self.script(json.loads(body)), json.loads(body))

    def _listed(self, model: str) -> dict[str, str]:
        return {"id": model, "owned_by": self.owned_by}

    def _send_whole(self, connection: socket.socket, status: int, body: bytes) -> None:
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)

    def _play(self, connection: socket.socket, play: Play, body: dict[str, Any]) -> bool:
        start = time.perf_counter()
        if play.raw:
            connection.sendall(play.raw)
            return True
        if play.status != 200:
            self._send_whole(connection, play.status, b"".join(part for _, part in play.pieces))
            return True
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {play.content_type}\r\ntransfer-encoding: chunked\r\n\r\n"
        connection.sendall(head.encode())
        for at_ms, part in play.pieces:
            time.sleep(max(0.0, start + at_ms / 1000 - time.perf_counter()))
            connection.sendall(b"%x\r\n%s\r\n" % (len(part), part))
            self.sends.append((body, at_ms, time.perf_counter()))
        if play.ending in ("clean", "close"):
            connection.sendall(b"0\r\n\r\n")
            if play.ending == "close":  # as servers close idle connections, without a word before
                connection.shutdown(socket.SHUT_RDWR)
            return play.ending == "clean"
        if play.ending == "hang":
            connection.recv(1)  # until the client goes away
        else:
            linger = (1).to_bytes(4, sys.byteorder) + (0).to_bytes(4, sys.byteorder)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        connection.close()
        return False


@contextmanager
def transformers_serve(model: Path, log: Path) -> Iterator[str]:
    """The URL of a `transformers serve` of a model folder, ended with its process group."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [str(Path(sys.executable).parent / "transformers"), "serve", str(model)]
    with log.open("wb") as output:
        server = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
        )
    try:
        _wait_until_it_answers(f"http://127.0.0.1:{port}/health", server, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _wait_until_it_answers(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and server.poll() is None:
        with suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return
        time.sleep(0.2)
    raise RuntimeError(f"transformers serve did not come up:\n{log.read_text()[-2000:]}")
