"""Answers kept as bytes and stamps while a load runs, and read when it is over.

While they arrive, only two things have to be known of them: when each read came, and where the
answer ends. JSON, events and tokens are left to `KeptAnswer.exchange`.
"""

from __future__ import annotations

import asyncio
import os
from array import array
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_llmspeed.core.exchange import Exchange, Request
from pytest_llmspeed.edges import clock
from pytest_llmspeed.edges.wire.answer import AnswerBytes
from pytest_llmspeed.edges.wire.dialects import PROTOCOL_ONLY, Dialect
from pytest_llmspeed.edges.wire.framing import Framing, TransportError
from pytest_llmspeed.edges.wire.http import BaseURL, broke, request_message, tls_for
from pytest_llmspeed.edges.wire.protocol import PATHS, body_of
from pytest_llmspeed.edges.wire.stamps import StampedSocket, WallOffset, connect
from pytest_llmspeed.edges.wire.stream import DRAIN_S

let_others_run = getattr(os, "sched_yield", lambda: None)
"""A server on this machine is often woken on our core, and would wait there until a burst of ours ends."""
DONE = b"[DONE]"
BLANK_LINE = b"\r\n\r\n"
WHOLE_END = b"data: [DONE]\n\n\r\n0" + BLANK_LINE
"""The end of a stream as nearly every server sends it; no line of JSON can hold it."""
SHORT_READ = 32
"""A read of no more bytes may hold but the rest of an end that began in the one before."""


@dataclass(slots=True)
class KeptAnswer:
    """What came back for one request, until it was `over`.

    `late_s` is how long each read lay unread after its stamp. `unended`: it was whole, but its end was
    waited for in vain.
    """

    server: str
    started_s: float = 0.0
    over_s: float = 0.0
    is_new: bool = False
    reads: list[bytes] = field(default_factory=list)
    stamps_s: array[float] = field(default_factory=lambda: array("d"))
    late_s: array[float] = field(default_factory=lambda: array("f"))
    peer_closed: bool = False
    timed_out: bool = False
    broken: str | None = None
    cancelled: bool = False
    unended: bool = False

    @property
    def ended_s(self) -> float:
        """The stamp of the last read; of what was given up, or brought nothing, when it was over."""
        given_up = self.timed_out or self.cancelled or self.broken or self.unended
        return self.over_s if given_up or not self.stamps_s else self.stamps_s[-1]

    def exchange(self, request: Request) -> Exchange:
        """Read it."""
        answer, failure = AnswerBytes(), self._failure
        try:
            self.read_into(answer)
        except TransportError as error:
            failure = error
        if answer.finished:
            failure = None
        found = answer.exchange(request, self.started_s, failure, new_connection=self.is_new)
        return found if not self.cancelled else _cancelled(found)

    @property
    def _failure(self) -> TransportError | TimeoutError | None:
        if self.timed_out:
            return TimeoutError()
        return TransportError(self.broken) if self.broken else None

    def read_into(self, answer: AnswerBytes) -> None:
        """Feed what came to `answer`; raises `TransportError` where it is cut short."""
        framing, begun = Framing(self.server), False
        for chunk, stamp_s in zip(self.reads, self.stamps_s, strict=True):
            framing.feed(chunk)
            if framing.headers_complete and not begun:
                answer.begin(framing.status, framing.headers)
                begun = True
            if part := framing.take():
                answer.feed(part, stamp_s)
                if answer.finished:
                    return
        if self.peer_closed and not framing.complete:
            framing.feed(b"")
        if framing.complete:
            answer.close()


def _cancelled(found: Exchange) -> Exchange:
    return replace(found, error=None, notes=found.notes | {"cancelled"})


@dataclass(frozen=True, slots=True)
class Target:
    """A server, and how it is asked: headers, model, what it takes beyond the protocol, whether `cold`."""

    base: BaseURL
    headers: Mapping[str, str] = field(repr=False)
    model: str | None = None
    dialect: Dialect = PROTOCOL_ONLY
    cold: bool = False

    def further(self, request: Request) -> dict[str, Any]:
        """Return the fields of a request's body beyond the protocol."""
        return self.dialect.fields(request, cold=self.cold)


class KeepingClient:
    """Keep-alive connections to one server, for one event loop, whose answers are kept unread."""

    def __init__(self, target: Target) -> None:
        self._target, self._base = target, target.base
        self._tls, self._wall = tls_for(target.base), WallOffset()
        self._idle: list[_Connection] = []

    def prepare(self, request: Request) -> PreparedRequest:
        """Return a request whose bytes are ready to be sent."""
        body = body_of(request, self._target.model, self._target.further(request))
        message = request_message(self._base, "POST", PATHS[request.endpoint], self._target.headers, body)
        return PreparedRequest(self, request, message, str(self._base))

    async def send(self, message: bytes, answer: KeptAnswer) -> None:
        """Send a request and wait for the end of its answer; raises OSError or `TransportError`."""
        answer.started_s = clock.now_s()
        connection = self._reusable()
        if connection is None:
            answer.is_new = True
            connection = await self._connect()
        await connection.ask(message, answer)

    def _reusable(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
        return None

    async def _connect(self) -> _Connection:
        try:
            stamped = await connect(self._base.host, self._base.port, self._tls, self._wall)
        except OSError as error:
            raise TransportError(f"cannot connect to {self._base}: {error.strerror or error}") from error
        return _Connection(stamped, self._idle)

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()


class PreparedRequest:
    """A request about to be sent, and what has come of it."""

    def __init__(self, client: KeepingClient, request: Request, message: bytes, server: str) -> None:
        self._client, self.request, self._message = client, request, message
        self.answer = KeptAnswer(server)

    @property
    def size(self) -> int:
        """Its bytes."""
        return len(self._message)

    async def send(self) -> None:
        """Send it and wait for the end of the answer. How it went is in `answer`, never raised."""
        try:
            async with asyncio.timeout(self.request.timeout_s):
                await self._client.send(self._message, self.answer)
        except TimeoutError:
            self.answer.timed_out = True
        except TransportError as error:
            self.answer.broken = str(error)
        except OSError as error:
            self.answer.broken = broke(error)
        except asyncio.CancelledError:
            self.answer.cancelled = True
            raise
        finally:
            self.answer.over_s = clock.now_s()


class _Connection:
    """One connection: the answer that is on its way, and whether it has ended."""

    def __init__(self, stamped: StampedSocket, idle: list[_Connection]) -> None:
        self._stamped, self._idle = stamped, idle
        self._answer: KeptAnswer | None = None
        self.is_open = True
        stamped.push_to(self)

    async def ask(self, message: bytes, answer: KeptAnswer) -> None:
        """Send a request and wait until its answer has ended; the connection is then idle or closed."""
        loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = loop.create_future()
        self._framing, self._fed, self._lazy = Framing(answer.server), 0, False
        self._answer = answer
        try:
            if not answer.is_new:
                answer.started_s = clock.now_s()
            await self._stamped.send(message)
            let_others_run()
            await self._over
        finally:
            self._answer = None
            if self.is_open and self._framing.reusable and self._over.done():
                self._idle.append(self)
            else:
                self.close()

    def arrived(self, chunk: bytes, stamp_s: float, late_s: float) -> None:
        """Take in bytes: of the answer that is on its way, else of a connection that is spoilt."""
        answer = self._answer
        if answer is None:
            self.close()
            return
        answer.reads.append(chunk)
        answer.stamps_s.append(stamp_s)
        answer.late_s.append(late_s)
        is_short = len(chunk) <= SHORT_READ
        if not self._lazy or is_short or chunk[-4:] == BLANK_LINE:
            self._look_for_end(answer, chunk)
        if DONE in (b"".join(answer.reads[-4:]) if is_short else chunk) and not self._over.done():
            asyncio.get_running_loop().call_later(DRAIN_S, self._give_up, answer)

    def _look_for_end(self, answer: KeptAnswer, chunk: bytes) -> None:
        """End the answer if it is complete; of a stream in chunks only what may end it is looked at."""
        if self._lazy and self._ends_whole(answer, chunk):
            self._framing.reusable = self._framing.headers.get("connection", "").lower() != "close"
            self._end()
            return
        try:
            for read in answer.reads[self._fed :]:
                self._framing.feed(read)
        except TransportError as error:
            answer.broken = str(error)
            self._end()
            return
        self._fed = len(answer.reads)
        self._framing.take()
        self._lazy = self._framing.headers.get("transfer-encoding", "").lower() == "chunked"
        if self._framing.complete:
            self._end()

    @staticmethod
    def _ends_whole(answer: KeptAnswer, chunk: bytes) -> bool:
        if len(chunk) < len(WHOLE_END) and len(answer.reads) > 1:
            chunk = answer.reads[-2][-len(WHOLE_END) :] + chunk
        return chunk.endswith(WHOLE_END)

    def _give_up(self, answer: KeptAnswer) -> None:
        """[DONE] was seen, but no end since: it is one, unless it was a part of the text."""
        if self._answer is answer and not self._over.done():
            found = AnswerBytes()
            with suppress(TransportError):
                answer.read_into(found)
            if found.finished:
                answer.unended = True
                self._end()

    def ended(self, failure: OSError | None) -> None:
        """Note the end of the connection, and of the answer on its way."""
        self.is_open = False
        if self._answer is None:
            self.close()
            return
        self._answer.peer_closed = failure is None
        self._answer.broken = self._answer.broken or (broke(failure) if failure else None)
        self._end()

    def _end(self) -> None:
        if not self._over.done():
            self._over.set_result(None)

    def close(self) -> None:
        """Close it."""
        self.is_open = False
        self._stamped.close()
