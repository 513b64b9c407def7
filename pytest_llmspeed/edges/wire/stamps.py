"""A socket whose reads say when their bytes arrived.

On Linux, over plain TCP, that is the kernel's own stamp (SO_TIMESTAMPNS): it is right whatever the
event loop was doing meanwhile. The kernel stamps with the time of day, so each is mapped to the
monotonic clock by a pair of readings of both, taken at the read. Elsewhere, under TLS, and where
the time of day was just set, it is the moment of the read.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import sys
from collections import deque
from typing import Protocol, cast

from pytest_llmspeed.edges import clock

READ_SIZE = 65536
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("qq")
_STEP_S = 0.0005
"""An offset between the two clocks that moves by more than this between reads was set."""

KERNEL_STAMPS = sys.platform == "linux" and _TIMESPEC.size == 16 and hasattr(socket.socket, "recvmsg")


class StampedSocket(Protocol):
    """A connected byte stream; `read` returns bytes with their stamp, no bytes at its end."""

    async def send(self, content: bytes) -> None:
        """Send all of `content`."""
        ...

    async def read(self) -> tuple[bytes, float]:
        """Return the next bytes and when they arrived."""
        ...

    def is_stale(self) -> bool:
        """True if the peer has closed it, or sent what nobody asked for, while it was idle."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


async def connect(host: str, port: int, tls: ssl.SSLContext | None) -> StampedSocket:
    """Open a connection; raises OSError (of TLS: ssl.SSLError) where that fails."""
    if tls is None and KERNEL_STAMPS:
        return await _KernelStamped.connect(host, port)
    return await _ReadStamped.connect(host, port, tls)


class _ReadStamped(asyncio.Protocol):
    """Stamps the bytes as the event loop hands them over."""

    def __init__(self) -> None:
        self._arrived: deque[tuple[bytes, float]] = deque()
        self._more: asyncio.Future[None] | None = None
        self._ended = False
        self._failure: Exception | None = None

    @classmethod
    async def connect(cls, host: str, port: int, tls: ssl.SSLContext | None) -> _ReadStamped:
        loop = asyncio.get_running_loop()
        name = host if tls else None
        _, found = await loop.create_connection(cls, host, port, ssl=tls, server_hostname=name)
        return found

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        self._arrived.append((data, clock.now_s()))
        self._wake()

    def eof_received(self) -> None:
        self._ended = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended, self._failure = True, exc
        self._wake()

    def _wake(self) -> None:
        if self._more is not None:
            _set(self._more)

    async def send(self, content: bytes) -> None:
        if self._ended:
            raise self._failure or ConnectionResetError("closed by the server")
        self._transport.write(content)

    async def read(self) -> tuple[bytes, float]:
        while not self._arrived:
            if self._failure is not None:
                raise self._failure
            if self._ended:
                return b"", clock.now_s()
            self._more = asyncio.get_running_loop().create_future()
            await self._more
        return self._arrived.popleft()

    def is_stale(self) -> bool:
        return self._ended or bool(self._arrived)

    def close(self) -> None:
        self._transport.abort()  # at once: under TLS a polite end would want an answer first


class _KernelStamped:
    """Stamps of the kernel, read with recvmsg."""

    def __init__(self, connection: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self._socket, self._loop = connection, loop
        self._since_s = clock.now_s()
        self._offset_s = clock.wall_ns() / 1e9 - self._since_s

    @classmethod
    async def connect(cls, host: str, port: int) -> _KernelStamped:
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        failure: OSError | None = None
        for family, kind, proto, _, address in addresses:
            connection = socket.socket(family, kind, proto)
            try:
                connection.setblocking(False)
                await loop.sock_connect(connection, address)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
                return cls(connection, loop)
            except BaseException as error:
                connection.close()
                if not isinstance(error, OSError):
                    raise
                failure = error
        raise failure or OSError(f"{host} has no address")

    async def send(self, content: bytes) -> None:
        self._since_s = clock.now_s()
        await self._loop.sock_sendall(self._socket, content)

    async def read(self) -> tuple[bytes, float]:
        while True:
            try:
                chunk, ancillary, _, _ = self._socket.recvmsg(READ_SIZE, 64)
            except BlockingIOError:
                await self._readable()
                continue
            return chunk, self._stamp(ancillary)

    async def _readable(self) -> None:
        ready: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(self._socket, _set, ready)
        try:
            await ready
        finally:
            self._loop.remove_reader(self._socket)

    def _stamp(self, ancillary: list[tuple[int, int, bytes]]) -> float:
        """The kernel's stamp on the monotonic clock; the time of the read where it is not credible."""
        wall_s, now_s = clock.wall_ns() / 1e9, clock.now_s()
        stepped = abs(wall_s - now_s - self._offset_s) > _STEP_S
        since_s, self._since_s, self._offset_s = self._since_s, now_s, wall_s - now_s
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS and not stepped:
                seconds, nanoseconds = _TIMESPEC.unpack(payload[: _TIMESPEC.size])
                stamp_s = now_s - (wall_s - (seconds + nanoseconds / 1e9))
                return stamp_s if since_s <= stamp_s <= now_s else now_s
        return now_s

    def is_stale(self) -> bool:
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def close(self) -> None:
        self._socket.close()


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
