"""One callback of the event loop for all sockets that have something to read."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable
from functools import partial

import pytest

from pytest_llmspeed.edges.wire import ready
from pytest_llmspeed.edges.wire.ready import ReadySockets

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="ReadySockets is for Linux")
Pairs = list[tuple[socket.socket, socket.socket]]


def with_pairs(count: int, body: Callable[[ReadySockets, Pairs], None], gather_s: float = 0.0) -> None:
    """Do something with so many pairs of sockets, under an event loop that then runs for a moment."""

    async def run() -> None:
        pairs = [socket.socketpair() for _ in range(count)]
        watching = ReadySockets(gather_s)
        try:
            body(watching, pairs)
            await asyncio.sleep(0.05)
        finally:
            watching.close()
            for each in (each for pair in pairs for each in pair):
                each.close()

    asyncio.run(run())


def test_each_socket_with_something_to_read_is_called_for_itself() -> None:
    """The others are not, and one whose peer closed has something to read: its end."""
    read: list[tuple[int, bytes]] = []

    def body(watching: ReadySockets, pairs: Pairs) -> None:
        for place, (reader, _) in enumerate(pairs):
            watching.watch(reader.fileno(), lambda n=place, r=reader: take(n, r))
        pairs[0][1].send(b"x")
        pairs[2][1].close()

        def take(place: int, reader: socket.socket) -> None:
            read.append((place, reader.recv(9)))
            if not read[-1][1]:
                watching.forget(reader.fileno())

    with_pairs(3, body)
    assert sorted(read) == [(0, b"x"), (2, b"")]


def test_a_socket_that_an_earlier_call_forgot_is_not_called() -> None:
    """Both had something to read at the same moment; the first call closes the connection of the other."""
    calls: list[int] = []

    def body(watching: ReadySockets, pairs: Pairs) -> None:
        def take(place: int) -> None:
            calls.append(place)
            for reader, _ in pairs:
                watching.forget(reader.fileno())
                watching.forget(reader.fileno())  # twice is once

        for place, (reader, writer) in enumerate(pairs):
            watching.watch(reader.fileno(), partial(take, place))
            writer.send(b"x")

    with_pairs(2, body)
    assert len(calls) == 1


@pytest.mark.parametrize(("count", "naps"), [(ready.GATHER_FROM - 1, []), (ready.GATHER_FROM, [0.25])])
def test_only_many_sockets_wait_for_more(
    count: int, naps: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a few, each byte is read at once."""
    slept: list[float] = []
    monkeypatch.setattr(ready.time, "sleep", slept.append)

    def body(watching: ReadySockets, pairs: Pairs) -> None:
        for reader, _ in pairs:
            watching.watch(reader.fileno(), partial(reader.recv, 9))
        pairs[0][1].send(b"x")

    with_pairs(count, body, gather_s=0.25)
    assert slept == naps
