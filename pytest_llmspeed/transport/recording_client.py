"""Requests whose answers are kept as bytes and stamps.

While they arrive, only two things have to be known of them: when each read came, and where the
answer ends. JSON, events and tokens are left to `RecordedResponse.exchange`.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count

from pytest_llmspeed.metrics.exchange import Request
from pytest_llmspeed.system import clock
from pytest_llmspeed.transport.client import SENT_AT_ONCE, broke, request_message, tls_for
from pytest_llmspeed.transport.openai_protocol import PATHS, body_of
from pytest_llmspeed.transport.parser import MIB, MOST_ANSWER, ResponseParser, TransportError, too_large
from pytest_llmspeed.transport.read_pacing import ReadPacing
from pytest_llmspeed.transport.recorded_response import Part, RecordedResponse
from pytest_llmspeed.transport.send import DRAIN_S
from pytest_llmspeed.transport.target import Target
from pytest_llmspeed.transport.timestamps import PUSHED_SIZE, TimestampedSocket, WallOffset, connect

let_others_run = getattr(os, "sched_yield", lambda: None)
"""A server on this machine is often woken on our core, and would wait there until a burst of ours ends."""
DONE = b"[DONE]"
BLANK_LINE = b"\r\n\r\n"
WHOLE_END = b"data: [DONE]\n\n\r\n0" + BLANK_LINE
"""The end of a stream as nearly every server sends it; no line of JSON can hold it."""
DONE_LINE = re.compile(rb"[\r\n]data: ?\[DONE\]")
SHORT_READ = 32
"""A read of no more bytes may hold but the rest of an end that began in the one before."""
HELD_BACK = 4
"""An end is looked for in so many of the last reads."""
LEAST_PART, MOST_HELD = 16, 8192
"""So many reads are worth being taken out of an answer; so many of all answers together are not."""
MOST_HANDED_OVER = 8 * MIB
"""The size beyond which an answer is no longer handed over in parts: it may be endless."""
MOST_EXCESS = MOST_ANSWER - MOST_HANDED_OVER
"""What the answers on their way may hold beyond that, all together: a single one grows to its own limit."""


@dataclass(slots=True)
class Excess:
    """How many bytes the answers on their way hold beyond what is handed over of each."""

    size: int = 0


class RecordingClient:
    """Keep-alive connections to one server, for one event loop, whose answers are kept unread.

    `pacing`, if there is one, learns from each.
    """

    pacing: ReadPacing | None = None

    def __init__(self, target: Target) -> None:
        self._target, self._base = target, target.base
        self._tls, self._wall = tls_for(target.base), WallOffset()
        self._room = bytearray(PUSHED_SIZE)
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()
        self._numbers, self._excess = count(), Excess()

    def prepare(self, request: Request) -> PreparedRequest:
        """Return a request whose bytes are ready to be sent."""
        body = body_of(request, self._target.model, self._target.further(request))
        message = request_message(self._base, "POST", PATHS[request.endpoint], self._target.headers, body)
        return PreparedRequest(self, request, message, RecordedResponse(str(self._base), next(self._numbers)))

    async def send(self, message: bytes, answer: RecordedResponse) -> None:
        """Send a request and wait for the end of its answer; raises OSError or `TransportError`."""
        answer.started_s = clock.now_s()
        kept = self._reusable()
        if kept is not None and await self._ask(kept, message, answer):
            return
        answer.is_new, answer.resent = True, kept is not None
        await self._ask(await self._connect(), message, answer)

    async def _ask(self, connection: _Connection, message: bytes, answer: RecordedResponse) -> bool:
        """Ask over a connection; False if it was kept, and closed before the server read the request."""
        self._busy.add(connection)
        try:
            return await connection.ask(message, answer)
        finally:
            self._busy.discard(connection)

    def _reusable(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable():
                return connection
            connection.close()
        return None

    async def _connect(self) -> _Connection:
        try:
            stamped = await connect(self._base.host, self._base.port, self._tls, self._wall, self._room)
        except OSError as error:
            raise TransportError(self._base.unreachable(error)) from error
        return _Connection(stamped, self._idle, self._excess)

    def parts(self) -> list[Callable[[], Part | None]]:
        """Return what takes the bytes so far out of each answer in flight; empty if all hold little."""
        held = sum(connection.held for connection in self._busy)
        return [connection.part for connection in self._busy] if held > MOST_HELD else []

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()


class PreparedRequest:
    """A request about to be sent, and what has come of it."""

    def __init__(
        self, client: RecordingClient, request: Request, message: bytes, answer: RecordedResponse
    ) -> None:
        self._client, self.request, self._message = client, request, message
        self.answer = answer
        self.foreign_cpu: float | None = None  # of a load over HTTP only the total is known

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
        except Exception as error:  # noqa: BLE001  (one request's failure must not end the load)
            self.answer.broken = f"{type(error).__name__}: {error}"
        finally:
            self.answer.over_s = clock.now_s()
            if self._client.pacing is not None:
                self._client.pacing.learn(self.answer.stamps_s)


class _Connection:
    """One connection: the answer that is on its way, and whether it has ended."""

    def __init__(self, stamped: TimestampedSocket, idle: list[_Connection], excess: Excess) -> None:
        self._stamped, self._idle, self._excess = stamped, idle, excess
        self._answer: RecordedResponse | None = None
        self.is_open = True
        stamped.push_to(self)

    async def ask(self, message: bytes, answer: RecordedResponse) -> bool:
        """Send a request and wait until its answer has ended; the connection is then idle or closed.

        False if the server had closed the connection, which was a kept one, before it read the request.
        """
        loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = loop.create_future()
        self._parser, self._fed, self._lazy = ResponseParser(answer.server), 0, False
        self._size, self._is_cut = 0, False
        self._answer = answer
        try:
            if not answer.is_new:
                answer.started_s = clock.now_s()
            await self._send(message)
            let_others_run()
            await self._over
            return not await self._is_unread(answer)
        finally:
            self._answer = None
            self._excess.size -= max(0, self._size - MOST_HANDED_OVER)
            is_whole = self._over.done() and not self._is_cut
            if self.is_open and self._parser.reusable and is_whole:
                self._idle.append(self)
            else:
                self.close()

    async def _send(self, message: bytes) -> None:
        """Send a request, or as much of it as the server reads before it answers."""
        if len(message) <= SENT_AT_ONCE:
            sending: Awaitable[None] = self._stamped.send(message)
        else:
            sending = asyncio.ensure_future(self._stamped.send(message))
            await asyncio.wait({sending, self._over}, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                self._is_cut = sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
                return
        try:
            await sending
        except OSError:
            self._is_cut = True
            await asyncio.wait({self._over}, timeout=DRAIN_S)  # what came before it broke is read first
            if not self._over.done():
                raise

    async def _is_unread(self, answer: RecordedResponse) -> bool:
        """True if the server cannot have read the request; the answer is then as if it had not been sent."""
        if answer.reads or answer.is_new or self.is_open or answer.timed_out:
            return False
        if not await self._stamped.was_closed_first():
            return False
        answer.peer_closed, answer.broken = False, None
        return True

    def arrived(self, chunk: bytes, stamp_s: float, late_s: float) -> None:
        """Take in bytes: of the answer that is on its way, else of a connection that is spoilt."""
        answer = self._answer
        if answer is None:
            self.close()
            return
        answer.reads.append(chunk)
        answer.stamps_s.append(stamp_s)
        answer.late_s.append(late_s)
        self._size += len(chunk)
        if self._size > MOST_HANDED_OVER and self._is_too_much(len(chunk)):
            self._refuse(answer)
            return
        is_short = len(chunk) <= SHORT_READ
        if not self._lazy or is_short or chunk[-4:] == BLANK_LINE:
            self._look_for_end(answer, chunk)
        if DONE in (b"".join(answer.reads[-HELD_BACK:]) if is_short else chunk):
            self._expect_end(answer)

    def _look_for_end(self, answer: RecordedResponse, chunk: bytes) -> None:
        """End the answer if it is complete; of a stream in chunks only what may end it is looked at."""
        if self._lazy and self._ends_whole(answer, chunk):
            self._parser.reusable = self._parser.headers.get("connection", "").lower() != "close"
            self._end()
            return
        self._feed(answer, len(answer.reads))
        is_chunked = self._parser.headers.get("transfer-encoding", "").lower() == "chunked"
        self._lazy = is_chunked and self._parser.status == 200

    def _is_too_much(self, size: int) -> bool:
        """Count more bytes of a large answer; True if it, or all large ones together, exceed their limit."""
        self._excess.size += min(size, self._size - MOST_HANDED_OVER)
        return self._size > MOST_ANSWER or self._excess.size > MOST_EXCESS

    def _refuse(self, answer: RecordedResponse) -> None:
        """End an answer that is too large, and let go of most of it."""
        what = "the answer" if self._size > MOST_ANSWER else "the answer, with other large ones under way,"
        answer.broken = answer.broken or too_large(what, MOST_ANSWER)
        self._is_cut = True
        answer.drop_after(HELD_BACK)
        self._end()

    def _feed(self, answer: RecordedResponse, size: int) -> None:
        """Look for the end in the first `size` reads."""
        try:
            for read in answer.reads[self._fed : size]:
                self._parser.feed(read)
        except TransportError as error:
            answer.broken = str(error)
            self._end()
            return
        self._fed = max(self._fed, size)
        self._parser.take()
        if self._parser.complete:
            self._end()

    @property
    def held(self) -> int:
        """The number of reads of the current answer that are held here."""
        return len(self._answer.reads) if self._answer else 0

    def part(self) -> Part | None:
        """Take out what has come of an answer that is still on its way, if that is worth it."""
        answer = self._answer
        if answer is None or (size := len(answer.reads) - HELD_BACK) < LEAST_PART:
            return None
        if self._size > MOST_HANDED_OVER:
            return None
        self._feed(answer, size)
        if self._over.done():
            return None
        self._fed -= size
        return answer.take_out(size)

    @staticmethod
    def _ends_whole(answer: RecordedResponse, chunk: bytes) -> bool:
        if len(chunk) < len(WHOLE_END) and len(answer.reads) > 1:
            chunk = answer.reads[-2][-len(WHOLE_END) :] + chunk
        return chunk.endswith(WHOLE_END)

    def _expect_end(self, answer: RecordedResponse) -> None:
        """[DONE] was seen: it is to end soon, unless that is a part of the text."""
        if not self._over.done() and DONE_LINE.search(b"".join(answer.reads[-HELD_BACK:])):
            asyncio.get_running_loop().call_later(DRAIN_S, self._give_up, answer)

    def _give_up(self, answer: RecordedResponse) -> None:
        """No end has followed: the answer is over without it."""
        if self._answer is answer and not self._over.done():
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

    def is_usable(self) -> bool:
        """True if the server has neither closed it nor sent what nobody asked for, read or unread."""
        return self.is_open and not self._stamped.is_stale()

    def close(self) -> None:
        """Close it. Closing twice is fine."""
        self.is_open = False
        self._stamped.close()
