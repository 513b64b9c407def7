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
from typing import Protocol

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
    reader, writer = await asyncio.open_connection(host, port, ssl=tls, server_hostname=host if tls else None)
    return _ReadStamped(reader, writer)


class _ReadStamped:
    """Stamps at the read, over asyncio's streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        if connection := writer.get_extra_info("socket"):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def send(self, content: bytes) -> None:
        self._writer.write(content)
        await self._writer.drain()

    async def read(self) -> tuple[bytes, float]:
        chunk = await self._reader.read(READ_SIZE)
        return chunk, clock.now_s()

    def is_stale(self) -> bool:
        return self._reader.at_eof() or self._writer.is_closing()

    def close(self) -> None:
        self._writer.close()


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
