"""SDK calls to a server: passed on over our own wire, and recorded as their bytes arrive."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from math import inf

from pytest_llmspeed.errors import hides_our_frames
from pytest_llmspeed.metrics.exchange import Exchange
from pytest_llmspeed.sdk.call import Call, Emit, Head, OnSend, SentCall
from pytest_llmspeed.sdk.sdk_request import SDKRequest
from pytest_llmspeed.sdk.usage_filter import UsageFilter
from pytest_llmspeed.system import clock
from pytest_llmspeed.transport.client import HTTPClient, Response
from pytest_llmspeed.transport.openai_protocol import AnswerReader
from pytest_llmspeed.transport.parser import TransportError
from pytest_llmspeed.transport.response_reader import AnswerBytes
from pytest_llmspeed.transport.responses_api import ResponsesReader
from pytest_llmspeed.transport.target import Target
from pytest_llmspeed.transport.timestamps import KERNEL_STAMPS

__tracebackhide__ = hides_our_frames

NO_KEY = "no-key"
"""The key given to SDK clients, which insist on one, if the server has none. It is not sent."""
DRAIN_S = 0.25
"""How long a stream may take to end by itself after its caller stopped reading."""
PAUSE_S = 0.01
SLACK = 0.1
"""By this share a time-out may be late: timers are not set anew for each chunk."""
OUR_OWN = frozenset({"host", "content-length", "transfer-encoding", "connection", "accept-encoding"})
OF_THE_BODY = frozenset({"accept", "content-type", "user-agent"})
OF_THE_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


class Proxy:
    """Answers from a server. Each event loop has connections of its own."""

    def __init__(
        self, target: Target, on_send: OnSend, complete: Callable[[Exchange], Exchange], timeout_s: float
    ) -> None:
        self._target, self._on_send, self._timeout_s = target, on_send, timeout_s
        self._complete = complete
        self._authorization = target.headers.get("authorization", "")
        self._configured = {name: value for name, value in target.headers.items() if name not in OF_THE_BODY}
        self._clients: dict[asyncio.AbstractEventLoop, HTTPClient] = {}

    @property
    def base_url(self) -> str:
        """The server's address, without the query: that is added to each call."""
        return self._target.base.address

    @property
    def api_key(self) -> str:
        """The server's key, or a word where it has none."""
        scheme, _, key = self._authorization.partition(" ")
        return key if scheme == "Bearer" else NO_KEY

    @property
    def lives_anywhere(self) -> bool:
        """True where connections may belong to the caller's loop.

        With stamps of the kernel they lose nothing by a busy loop, and outlive one that was closed.
        """
        return KERNEL_STAMPS and self._target.base.scheme == "http"

    async def serve(self, call: Call, emit: Emit) -> None:
        """Answer one call from the server."""
        reply = await self.open(call)
        emit(reply.head)
        await reply.pump(emit)

    async def open(self, call: Call) -> ProxiedReply:
        """Send a call; return its reply once the head is there. It must be pumped or dropped."""
        asked = self._asked(call)
        record = Record(asked, self._on_send, self._complete) if asked else None
        body = self._body(call, asked)
        try:
            async with asyncio.timeout(call.timeout_s):
                response = await self._client.request(call.method, call.path, self._headers(call), body)
        except BaseException as error:
            if record:
                record.end(error)
            raise
        if record:
            record.begin(response)
        return ProxiedReply(call, response, record)

    def _asked(self, call: Call) -> SDKRequest | None:
        """Return the call's request; None if it cannot be read, since the server will say what is wrong."""
        try:
            return SDKRequest.of(call, self._timeout_s)
        except (TypeError, ValueError):
            return None

    def _body(self, call: Call, asked: SDKRequest | None) -> bytes:
        """The caller's body to the byte, unless something must be added."""
        added = asked.added(self._target.further(asked.request)) if asked else {}
        return json.dumps({**asked.body, **added}).encode() if asked and added else call.body

    @property
    def _client(self) -> HTTPClient:
        """The client of the running loop. Those of loops that are over are closed by the next."""
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            for known in [known for known in self._clients if known.is_closed()]:
                self._clients.pop(known).close()
            self._clients[loop] = HTTPClient(self._target.base.below(""))
        return self._clients[loop]

    def _headers(self, call: Call) -> dict[str, str]:
        """The caller's headers, but for those of the connection, with those of the backend that it lacks."""
        headers = {name: value for name, value in call.headers.items() if name not in OUR_OWN}
        no_login = [name for name, value in headers.items() if value.removeprefix("Bearer ") == NO_KEY]
        for name in no_login:
            del headers[name]
        configured = dict(self._configured)
        if not no_login:
            configured.pop("authorization", None)  # the caller has a login of its own, in whatever header
        return {**configured, **headers, "accept-encoding": "identity"}

    async def close(self) -> None:
        """Close the idle connections."""
        for client in self._clients.values():
            client.close()


class ProxiedReply:
    """A reply whose body is still to come. `head` is for the caller."""

    def __init__(self, call: Call, response: Response, record: Record | None) -> None:
        self._call, self._response, self._record = call, response, record
        self._filter = UsageFilter() if record and record.lacks_usage and response.status == 200 else None
        kept = ((name, value) for name, value in response.headers.items() if name not in OF_THE_HOP)
        self.head = Head(response.status, tuple(kept))

    async def pump(self, emit: Emit) -> None:
        """Read the body to its end, whatever the caller does meanwhile, and hand it on."""
        try:
            await self._read(emit)
        except BaseException as error:
            await self._end(error)
            raise
        if self._filter and (rest := self._filter.close()):
            emit(rest)
        await self._end(None)

    async def _read(self, emit: Emit | None) -> None:
        """Read on; a caller that is far behind is waited for, and its time limit with it."""
        now_s, patience_s = asyncio.get_running_loop().time, self._call.timeout_s
        renewed_s = now_s()
        async with asyncio.timeout(None if patience_s is None else (1 + SLACK) * patience_s) as limit:
            async for chunk, stamp_s in self._response.chunks():
                self._take(chunk, stamp_s, emit)
                if emit is not None and emit.is_full:
                    limit.reschedule(None)
                    while emit.is_full:
                        await asyncio.sleep(PAUSE_S)
                    renewed_s = -inf
                if patience_s is not None and now_s() > renewed_s + SLACK * patience_s:
                    renewed_s = now_s()
                    limit.reschedule(renewed_s + (1 + SLACK) * patience_s)

    def _take(self, chunk: bytes, stamp_s: float, emit: Emit | None) -> None:
        if self._record:
            self._record.pieces.append((chunk, stamp_s))
        if self._filter:
            chunk = self._filter.feed(chunk)
        if chunk and emit is not None:
            emit(chunk)

    async def _end(self, error: BaseException | None) -> None:
        try:
            if isinstance(error, asyncio.CancelledError) and self._record and self._record.is_finished:
                with suppress(TransportError, TimeoutError):
                    async with asyncio.timeout(DRAIN_S):
                        await self._read(None)
        finally:
            self.drop(error)

    def drop(self, error: BaseException | None) -> None:
        """Let go of the connection and record what came, ended by `error`; twice is fine."""
        self._response.abandon()
        if self._record:
            self._record.end(error)


class Record:
    """What is known of one measured call, from its sending on."""

    def __init__(self, asked: SDKRequest, on_send: OnSend, complete: Callable[[Exchange], Exchange]) -> None:
        self.pieces: list[tuple[bytes, float]] = []
        self._asked, self._complete = asked, complete
        self._started_s, self._is_new = clock.now_s(), True
        self._status, self._headers = 200, dict[str, str]()
        self._notes = asked.notes
        self._sent: SentCall = on_send(
            asked.request, asked.label, lambda: self._exchange(asyncio.CancelledError())
        )

    def begin(self, response: Response) -> None:
        """Take in the head of the reply."""
        self._started_s, self._is_new = response.started_s, response.is_new
        self._notes |= response.notes
        self._status, self._headers = response.status, dict(response.headers)

    @property
    def lacks_usage(self) -> bool:
        """True if the caller did not ask for the token counts that we asked for."""
        return self._asked.lacks_usage

    @property
    def is_finished(self) -> bool:
        """True once the answer has its finish reason."""
        return self._read(asyncio.CancelledError()).finish_reason is not None

    def end(self, error: BaseException | None) -> None:
        """Record that the exchange has ended, by `error` if by any. It is read when somebody looks."""
        self._sent.finish_later(lambda: self._exchange(error))

    def _exchange(self, error: BaseException | None) -> Exchange:
        found = self._read(error)
        try:
            return self._complete(found)
        except Exception as failure:  # noqa: BLE001  (what cannot be counted must not lose the other calls)
            return found.failed(found.error or f"{type(failure).__name__}: {failure}")

    def _read(self, error: BaseException | None) -> Exchange:
        """Return what the bytes so far say, and how they ended."""
        reader = ResponsesReader() if self._asked.request.endpoint == "responses" else AnswerReader()
        answer = AnswerBytes(reader=reader)
        answer.begin(self._status, self._headers)
        for chunk, stamp_s in [*self.pieces]:
            answer.feed(chunk, stamp_s)
        cancelled = isinstance(error, asyncio.CancelledError)
        if error is None:
            answer.close()
        found = answer.exchange(
            self._asked.request,
            self._started_s,
            None if cancelled or answer.finished else _failure(error),
            new_connection=self._is_new,
            notes=self._notes,
        )
        cut = cancelled and found.error is None and found.finish_reason is None
        return replace(found, notes=found.notes | {"cancelled"}) if cut else found


def _failure(error: BaseException | None) -> TransportError | TimeoutError | None:
    """Return what ended an exchange, in the words of the wire."""
    if error is None or isinstance(error, TransportError | TimeoutError):
        return error
    return TransportError(f"{type(error).__name__}: {error}")
