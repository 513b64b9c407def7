"""One HTTP/1.1 client on our own sockets: streamed requests over kept connections, and plain GETs.

A request that failed is not sent again. The one exception is a request that the server cannot have read:
if a kept connection was closed by the server before the request arrived, it is sent on a fresh one, and
flagged `resent`.
"""

from __future__ import annotations

import asyncio
import socket
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


LARGEST_GET_BYTES = 8 * 2**20
"""A list of some ten thousand models fits."""
READ_SIZE = 65536
LEAST_S = 0.001


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
        self._parser = ResponseParser(client.base)
        self._stamp_s = started_s
        self._released = self._is_cut = False

    @property
    def status(self) -> int:
        """The status code."""
        return self._parser.status

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, their names in lower case."""
        return self._parser.headers

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
        if self._parser.begun:
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
        while not self._parser.headers_complete:
            await self._read()

    async def chunks(self) -> AsyncIterator[tuple[bytes, float]]:
        """Yield the body as it arrives, each piece with the stamp of its bytes."""
        while True:
            if part := self._parser.take():
                yield part, self._stamp_s
            elif self._parser.complete:
                break
            else:
                await self._read()
        self._release(reusable=self._parser.reusable)

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
        self._parser.feed(chunk)


def get(base: BaseURL, path: str, headers: Mapping[str, str], timeout_s: float) -> tuple[int, bytes]:
    """Return status and body of `path` below `base`, all of it within `timeout_s`.

    For a server's health, models and version. Raises `TransportError` that says in words why there is no
    such answer.
    """
    deadline_s = clock.now_s() + timeout_s
    with _connected_within(base, timeout_s) as connection:
        try:
            connection.sendall(request_message(base, "GET", path, {**headers, "connection": "close"}, b""))
            return _read_whole(connection, ResponseParser(base), f"GET {path}", deadline_s)
        except TimeoutError as error:
            raise TransportError(
                f"the server at {base} accepted the connection but did not answer GET {path} "
                f"within {timeout_s:g} s: is it still loading, or hung?"
            ) from error
        except OSError as error:
            raise TransportError(f"GET {path} of {base}: {broke(error)}{_advice(base, error)}") from error


def _advice(base: BaseURL, error: OSError) -> str:
    """Return advice on a TLS connection that the server ended: many that do want a client certificate."""
    ends = isinstance(error, ssl.SSLEOFError | ConnectionResetError | BrokenPipeError)
    if base.scheme == "https" and base.tls.client_cert is None and ends:
        return "; if it requires a client certificate, set client_cert= and client_key="
    return ""


def _connected_within(base: BaseURL, timeout_s: float) -> socket.socket:
    context = tls_for(base)
    deadline_s = clock.now_s() + timeout_s
    try:
        connection = socket.create_connection((base.host, base.port), max(timeout_s, LEAST_S))
    except TimeoutError as error:
        raise TransportError(f"could not connect to {base} within {timeout_s:g} s") from error
    except OSError as error:
        raise TransportError(base.unreachable(error)) from error
    try:
        connection.settimeout(max(deadline_s - clock.now_s(), LEAST_S))
        return context.wrap_socket(connection, server_hostname=base.host) if context else connection
    except TimeoutError as error:
        connection.close()
        raise TransportError(
            f"{base} did not finish the TLS handshake within {timeout_s:g} s: is its address http://?"
        ) from error
    except OSError as error:
        connection.close()
        raise TransportError(base.unreachable(error)) from error


def _read_whole(
    connection: socket.socket, parser: ResponseParser, asked: str, deadline_s: float
) -> tuple[int, bytes]:
    body = bytearray()
    read_bytes = 0
    while not parser.complete:
        connection.settimeout(max(deadline_s - clock.now_s(), LEAST_S))
        chunk = connection.recv(READ_SIZE)
        if clock.now_s() > deadline_s:  # bytes that trickle in would never let a single read time out
            raise TimeoutError
        parser.feed(chunk)
        body += parser.take()
        read_bytes += len(chunk)
        if read_bytes > LARGEST_GET_BYTES:
            raise TransportError(f"the server's answer to {asked} is longer than {LARGEST_GET_BYTES:,} bytes")
    return parser.status, bytes(body)
