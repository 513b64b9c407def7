"""One streamed HTTP/1.1 exchange on our own socket.

A request that failed is not sent again. The one exception is a request that the server cannot have read:
if a kept connection was closed by the server before the request arrived, it is sent on a fresh one, and
flagged `resent`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import cached_property

from pytest_llmspeed.errors import hides_our_frames
from pytest_llmspeed.system import clock
from pytest_llmspeed.text.secret import Unshown
from pytest_llmspeed.transport.address import BaseURL
from pytest_llmspeed.transport.parser import ResponseParser, TransportError
from pytest_llmspeed.transport.timestamps import TimestampedSocket, connect
from pytest_llmspeed.transport.tls import CERTIFICATE_WANTED, wants_a_certificate

__tracebackhide__ = hides_our_frames


def request_message(base: BaseURL, method: str, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """Return the bytes of a request to what follows the base address."""
    head = [f"{method} {base.target(path)} HTTP/1.1", f"host: {base.netloc}"]
    head += [f"{name}: {value}" for name, value in headers.items()]
    if body or method == "POST":
        head.append(f"content-length: {len(body)}")
    return Unshown("\r\n".join([*head, "", ""]).encode("latin-1") + body)


SENT_AT_ONCE = 65536
"""Messages up to this size are taken by the kernel whole, so that an answer cannot come before their end."""


def tls_for(base: BaseURL) -> ssl.SSLContext | None:
    """Return what an https address is reached with, None for http."""
    return base.tls.context() if base.scheme == "https" else None


def broke(error: OSError) -> str:
    """Return the sentence on a connection that broke."""
    if isinstance(error, ssl.SSLError) and CERTIFICATE_WANTED in (error.reason or ""):
        return wants_a_certificate()
    return f"the connection broke: {error.strerror or error}"


class _UnreadError(Exception):
    """The server had closed a kept connection before it could read the request."""


class HTTPClient:
    """Keep-alive connections to one server, for one event loop."""

    def __init__(self, base: BaseURL) -> None:
        self.base = base
        self._idle: list[TimestampedSocket] = []

    @cached_property
    def _tls(self) -> ssl.SSLContext | None:
        return tls_for(self.base)

    async def post(self, path: str, headers: Mapping[str, str], body: bytes) -> Response:
        """Send a POST to what follows the base address; otherwise as `request`."""
        return await self.request("POST", path, headers, body)

    async def request(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Response:
        """Send a request and return its response once the headers are there.

        Raises `TransportError`. The caller reads `Response.chunks()` to their end or calls `abandon`.
        """
        message = request_message(self.base, method, path, headers, body)
        started_s = clock.now_s()
        kept = self._reusable()
        if kept is not None:
            response = Response(self, kept, started_s)
            with suppress(_UnreadError):
                await response.ask(message)
                return response
        try:
            connection = await connect(self.base.host, self.base.port, self._tls)
        except OSError as error:
            raise TransportError(self.base.unreachable(error)) from error
        response = Response(self, connection, started_s, is_new=True, resent=kept is not None)
        await response.ask(message)
        return response

    def _reusable(self) -> TimestampedSocket | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_stale():
                return connection
            connection.close()
        return None

    def give_back(self, connection: TimestampedSocket) -> None:
        """Keep a connection whose response was read to its end."""
        self._idle.append(connection)

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()


class Response:
    """A response whose body is being read.

    `started_s` is t0; `is_new` says if it had to connect, `resent` if a kept connection turned out to be
    closed.
    """

    def __init__(
        self,
        client: HTTPClient,
        connection: TimestampedSocket,
        started_s: float,
        *,
        is_new: bool = False,
        resent: bool = False,
    ) -> None:
        self.started_s, self.is_new, self.resent = started_s, is_new, resent
        self._client, self._connection = client, connection
        self._framing = ResponseParser(client.base)
        self._stamp_s = started_s
        self._released = self._is_cut = False

    @property
    def status(self) -> int:
        """The status code."""
        return self._framing.status

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, their names in lower case."""
        return self._framing.headers

    @property
    def notes(self) -> frozenset[str]:
        """The flags of the request that only its connection knows."""
        return frozenset({"resent"} if self.resent else ())

    async def ask(self, message: bytes) -> None:
        """Send the request and read until the headers are there; the connection is closed where that fails.

        A server may answer before it has read all: that it does not want so much, for instance.
        """
        try:
            if len(message) > SENT_AT_ONCE:
                await self._send_until_answered(message)
            else:
                await self._send_and_read(message)
        except BaseException as error:
            unread = isinstance(error, TransportError) and not self.is_new and await self._is_unread(error)
            self.abandon()
            if unread:
                raise _UnreadError from error
            raise

    async def _is_unread(self, error: TransportError) -> bool:
        if self._framing.begun:
            return False
        return isinstance(error.__cause__, BrokenPipeError) or await self._connection.was_closed_first()

    async def _send_and_read(self, message: bytes) -> None:
        try:
            await self._connection.send(message)
        except OSError as error:
            self._is_cut = True
            try:
                await self._read_headers()
            except TransportError:
                raise TransportError(broke(error)) from error
            return
        await self._read_headers()

    async def _send_until_answered(self, message: bytes) -> None:
        """The same for what is too long to be taken by the kernel at once."""
        sending = asyncio.ensure_future(self._connection.send(message))
        reading = asyncio.ensure_future(self._read_headers())
        try:
            await asyncio.wait({sending, reading}, return_when=asyncio.FIRST_COMPLETED)
            await reading
        finally:
            self._is_cut = not sending.done() or sending.cancelled() or sending.exception() is not None
            for task in (sending, reading):
                task.cancel()
            await asyncio.gather(sending, reading, return_exceptions=True)

    async def _read_headers(self) -> None:
        """Read until the headers of the final (not a 1xx) response are there."""
        while not self._framing.headers_complete:
            await self._read()

    async def chunks(self) -> AsyncIterator[tuple[bytes, float]]:
        """Yield the body as it arrives, each piece with the stamp of its bytes."""
        while True:
            if part := self._framing.take():
                yield part, self._stamp_s
            elif self._framing.complete:
                break
            else:
                await self._read()
        self._release(reusable=self._framing.reusable)

    async def body(self) -> bytes:
        """Read the whole body; the connection is closed where that fails, or is cancelled."""
        try:
            return b"".join([part async for part, _ in self.chunks()])
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the connection without reading on, unless all was read."""
        self._release(reusable=False)

    def _release(self, *, reusable: bool) -> None:
        if self._released:
            return
        self._released = True
        if reusable and not self._is_cut and not self._connection.is_stale():
            self._client.give_back(self._connection)
        else:
            self._connection.close()

    async def _read(self) -> None:
        try:
            chunk, self._stamp_s = await self._connection.read()
        except OSError as error:
            raise TransportError(broke(error)) from error
        self._framing.feed(chunk)
