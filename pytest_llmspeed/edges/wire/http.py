"""One streamed HTTP/1.1 exchange on our own socket. Nothing is retried."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from functools import cached_property

from pytest_llmspeed.core.errors import hides_our_frames
from pytest_llmspeed.core.secret import Unshown
from pytest_llmspeed.edges import clock
from pytest_llmspeed.edges.wire.address import BaseURL
from pytest_llmspeed.edges.wire.framing import Framing, TransportError
from pytest_llmspeed.edges.wire.stamps import StampedSocket, connect
from pytest_llmspeed.edges.wire.tls import CERTIFICATE_WANTED, wants_a_certificate

__tracebackhide__ = hides_our_frames


def request_message(base: BaseURL, method: str, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """Return the bytes of a request to what follows the base address."""
    head = [f"{method} {base.target(path)} HTTP/1.1", f"host: {base.netloc}"]
    head += [f"{name}: {value}" for name, value in headers.items()]
    if body or method == "POST":
        head.append(f"content-length: {len(body)}")
    return Unshown("\r\n".join([*head, "", ""]).encode("latin-1") + body)


def tls_for(base: BaseURL) -> ssl.SSLContext | None:
    """Return what an https address is reached with, None for http."""
    return base.tls.context() if base.scheme == "https" else None


def broke(error: OSError) -> str:
    """Return the sentence on a connection that broke."""
    if isinstance(error, ssl.SSLError) and CERTIFICATE_WANTED in (error.reason or ""):
        return wants_a_certificate()
    return f"the connection broke: {error.strerror or error}"


class HTTPClient:
    """Keep-alive connections to one server, for one event loop."""

    def __init__(self, base: BaseURL) -> None:
        self.base = base
        self._idle: list[StampedSocket] = []

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
        connection = self._reusable()
        is_new = connection is None
        try:
            connection = connection or await connect(self.base.host, self.base.port, self._tls)
        except OSError as error:
            raise TransportError(self.base.unreachable(error)) from error
        response = Response(self, connection, started_s, is_new)
        try:
            await connection.send(message)
            await response.read_headers()
        except OSError as error:
            response.abandon()
            raise TransportError(broke(error)) from error
        except BaseException:
            response.abandon()
            raise
        return response

    def _reusable(self) -> StampedSocket | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_stale():
                return connection
            connection.close()
        return None

    def give_back(self, connection: StampedSocket) -> None:
        """Keep a connection whose response was read to its end."""
        self._idle.append(connection)

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()


class Response:
    """A response whose body is being read. `started_s` is t0; `is_new` says if it had to connect."""

    def __init__(self, client: HTTPClient, connection: StampedSocket, started_s: float, is_new: bool) -> None:
        self.started_s, self.is_new = started_s, is_new
        self._client, self._connection = client, connection
        self._framing = Framing(client.base)
        self._stamp_s = started_s
        self._released = False

    @property
    def status(self) -> int:
        """The status code."""
        return self._framing.status

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, their names in lower case."""
        return self._framing.headers

    async def read_headers(self) -> None:
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
        if reusable and not self._connection.is_stale():
            self._client.give_back(self._connection)
        else:
            self._connection.close()

    async def _read(self) -> None:
        try:
            chunk, self._stamp_s = await self._connection.read()
        except OSError as error:
            raise TransportError(broke(error)) from error
        self._framing.feed(chunk)
