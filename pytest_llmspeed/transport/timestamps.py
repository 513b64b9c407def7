"""A socket whose reads say when their bytes arrived.

On Linux, over plain TCP, that is the kernel's own stamp (SO_TIMESTAMPNS): it is right whatever the
event loop was doing meanwhile. The kernel stamps with the time of day, so each is mapped to the
monotonic clock by readings of both, taken shortly before. Elsewhere, under TLS, and where the time
of day was just set, it is the moment of the read.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import struct
import sys
from collections import deque
from collections.abc import Callable
from math import nan
from typing import Any, Protocol, cast

from pytest_llmspeed.errors import hides_our_frames
from pytest_llmspeed.system import clock

__tracebackhide__ = hides_our_frames

READ_SIZE = 65536
PUSHED_SIZE = 16384
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("qq")
_STEP_S, _DRIFT = 0.0005, 0.001
"""An offset between the two clocks that moves by more than this, and than clocks are slewed, was set."""
_FRESH_S = 0.01
_PAIR_S, _PAIR_TRIES = 0.00005, 5
"""Two clocks are read together if no more than this passes meanwhile: else the process was put to sleep."""

_REFUSAL_S, _REFUSAL_LOOKS = 0.2, 20
"""The time that a peer's refusal may take to come: a round trip."""

KERNEL_STAMPS = sys.platform == "linux" and _TIMESPEC.size == 16 and hasattr(socket.socket, "recvmsg")


class Sink(Protocol):
    """What takes the bytes of a connection as they are read."""

    def arrived(self, chunk: bytes, stamp_s: float, late_s: float) -> None:
        """Take in bytes, their stamp, and how long they lay unread after it (NaN where nobody knows)."""
        ...

    def ended(self, failure: OSError | None) -> None:
        """Note that the peer closed the connection, or how it broke."""
        ...


class TimestampedSocket(Protocol):
    """A connected byte stream; `read` returns bytes with their stamp, no bytes at its end."""

    async def send(self, content: bytes) -> None:
        """Send all of `content`."""
        ...

    async def read(self) -> tuple[bytes, float]:
        """Return the next bytes and when they arrived."""
        ...

    def push_to(self, sink: Sink) -> None:
        """From now on hand all bytes to `sink` as they arrive, in place of `read`."""
        ...

    def is_stale(self) -> bool:
        """True if the peer has closed it, or sent what nobody asked for, while it was idle."""
        ...

    async def was_closed_first(self) -> bool:
        """True if it is certain that the peer had closed it before it read what was sent last."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class WallOffset:
    """What to take off the time of day to get the monotonic clock."""

    def __init__(self) -> None:
        self._offset_s, self._checked_s = _offset()
        self._is_credible = True

    def at(self, now_s: float) -> float | None:
        """The offset in seconds; None where the time of day was set since it was last looked at."""
        if now_s - self._checked_s > _FRESH_S:
            before_s, since_s = self._offset_s, self._checked_s
            self._offset_s, self._checked_s = _offset()
            allowed_s = _STEP_S + _DRIFT * (self._checked_s - since_s)
            self._is_credible = abs(self._offset_s - before_s) <= allowed_s
        return self._offset_s if self._is_credible else None


def _offset() -> tuple[float, float]:
    """Both clocks read at one moment: how far they are apart, and when; the closest of some readings."""
    readings = []
    for _ in range(_PAIR_TRIES):
        early_s, wall_s, late_s = clock.now_s(), clock.wall_ns() / 1e9, clock.now_s()
        readings.append((late_s - early_s, wall_s - late_s, late_s))
        if late_s - early_s < _PAIR_S:
            break
    _, offset_s, at_s = min(readings)
    return offset_s, at_s


async def connect(
    host: str,
    port: int,
    tls: ssl.SSLContext | None,
    wall: WallOffset | None = None,
    room: bytearray | None = None,
) -> TimestampedSocket:
    """Open a connection; raises OSError (of TLS: ssl.SSLError) where that fails.

    Those of one event loop may share a `wall`, and the `room` that pushed bytes are read into.
    """
    if tls is None and KERNEL_STAMPS:
        return await _KernelStamped.connect(host, port, wall or WallOffset(), room)
    return await _ReadStamped.connect(host, port, tls)


class _ReadStamped(asyncio.Protocol):
    """Stamps the bytes as the event loop hands them over."""

    def __init__(self) -> None:
        self._arrived: deque[tuple[bytes, float]] = deque()
        self._more: asyncio.Future[None] | None = None
        self._ended = False
        self._failure: Exception | None = None
        self._sink: Sink | None = None

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
        if self._sink is not None:
            self._sink.arrived(data, clock.now_s(), nan)
            return
        self._arrived.append((data, clock.now_s()))
        self._wake()

    def eof_received(self) -> None:
        self._ended = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended, self._failure = True, exc
        self._wake()

    def _wake(self) -> None:
        if self._sink is not None:
            self._sink.ended(self._failure if isinstance(self._failure, OSError) else None)
        elif self._more is not None:
            _set(self._more)

    def push_to(self, sink: Sink) -> None:
        self._sink = sink

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

    async def was_closed_first(self) -> bool:
        return False  # what would tell lies beneath the event loop's transport

    def close(self) -> None:
        self._transport.abort()  # at once: under TLS a polite end would want an answer first


class _KernelStamped:
    """Stamps of the kernel, read with recvmsg."""

    def __init__(
        self,
        connection: socket.socket,
        loop: asyncio.AbstractEventLoop,
        wall: WallOffset,
        room: bytearray | None,
    ) -> None:
        self._socket, self._loop, self._wall, self._room = connection, loop, wall, room
        self._sink: Sink | None = None
        self._early: tuple[bytes, float] | None = None
        self._since_s = clock.now_s()

    @classmethod
    async def connect(cls, host: str, port: int, wall: WallOffset, room: bytearray | None) -> _KernelStamped:
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
                return cls(connection, loop, wall, room)
            except BaseException as error:
                connection.close()
                if not isinstance(error, OSError):
                    raise
                failure = error
        raise failure or OSError(f"{host} has no address")

    async def send(self, content: bytes) -> None:
        self._since_s = clock.now_s()
        await self._loop.sock_sendall(self._socket, content)

    def push_to(self, sink: Sink) -> None:
        self._sink = sink
        rooms = [self._room or bytearray(PUSHED_SIZE)]
        self._loop.add_reader(self._socket, self._push, self._socket.recvmsg_into, rooms, sink)

    def _push(
        self, receive: Callable[..., tuple[int, list[Any], int, Any]], rooms: list[bytearray], sink: Sink
    ) -> None:
        """Read once: called whenever there is something to read, so this is the hot path of a load."""
        try:
            size, ancillary, _, _ = receive(rooms, 64)
        except BlockingIOError:
            return
        except OSError as error:
            self._loop.remove_reader(self._socket)
            sink.ended(error)
            return
        if size:
            stamp_s = self._stamp(ancillary)
            sink.arrived(bytes(rooms[0][:size]), stamp_s, self._since_s - stamp_s or nan)
        else:
            self._loop.remove_reader(self._socket)
            sink.ended(None)

    async def read(self) -> tuple[bytes, float]:
        """Return the next bytes, read as soon as the loop sees them, whatever else it has to do then.

        Of bytes that pile up the kernel keeps the newest stamp only.
        """
        if early := self._early:
            self._early = None
            return early
        arrived: asyncio.Future[tuple[bytes, float]] = self._loop.create_future()
        number = self._socket.fileno()  # of the socket itself, selectors make a text each time
        self._loop.add_reader(number, self._take, arrived)
        try:
            return await arrived
        except asyncio.CancelledError:
            if not arrived.cancelled():
                self._early = arrived.result()
            raise
        finally:
            self._loop.remove_reader(number)

    def _take(self, arrived: asyncio.Future[tuple[bytes, float]]) -> None:
        if arrived.done():
            return
        try:
            chunk, ancillary, _, _ = self._socket.recvmsg(READ_SIZE, 64)
            arrived.set_result((chunk, self._stamp(ancillary)))
        except BlockingIOError:
            return
        except OSError as error:
            arrived.set_exception(error)

    def _stamp(self, ancillary: list[tuple[int, int, bytes]]) -> float:
        """The kernel's stamp on the monotonic clock; the time of the read where it is not credible."""
        now_s = clock.now_s()
        offset_s = self._wall.at(now_s)
        since_s, self._since_s = self._since_s, now_s
        if offset_s is None:
            return now_s
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
                seconds, nanoseconds = _TIMESPEC.unpack_from(payload)
                stamp_s: float = seconds - offset_s + nanoseconds / 1e9
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

    async def was_closed_first(self) -> bool:
        """A peer that had closed refuses what comes later, which the kernel then calls a broken pipe.

        One that read a request and then closed does not; one that closed with the request unread, or was
        killed, resets the connection.
        """
        for _ in range(_REFUSAL_LOOKS):
            if self._socket.fileno() < 0:
                return False
            if failure := self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                return failure == errno.EPIPE
            await asyncio.sleep(_REFUSAL_S / _REFUSAL_LOOKS)
        return False

    def close(self) -> None:
        if self._socket.fileno() < 0:
            return
        if self._sink is not None:
            self._loop.remove_reader(self._socket)
        self._socket.close()


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
