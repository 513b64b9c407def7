"""The selector of a load's worker process: what waits, what is read together."""

from __future__ import annotations

import socket

import pytest

from pytest_llmspeed.measuring import load_worker
from pytest_llmspeed.measuring.load_worker import _Selector


@pytest.fixture
def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair()


def registered(selector: _Selector, reader: socket.socket) -> _Selector:
    selector.register(reader, load_worker.selectors.EVENT_READ)
    return selector


def test_chores_wait_until_nothing_is_to_be_read(pair: tuple[socket.socket, socket.socket]) -> None:
    """A socket goes first; then they are done in order, and the loop looks at its timers before it waits."""
    reader, writer = pair
    done: list[str] = []
    with registered(_Selector(), reader) as selector, reader, writer:
        selector.chores.extend([lambda: done.append("first"), lambda: done.append("second")])
        writer.send(b"x")
        assert len(selector.select(60)) == 1
        assert done == []
        reader.recv(1)
        assert selector.select(60) == []
        assert done == ["first", "second"]


def test_chores_are_not_put_off_for_ever(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where too many wait, one is done each time."""
    monkeypatch.setattr(load_worker, "MOST_CHORES", 1)
    reader, writer = pair
    done: list[int] = []
    with registered(_Selector(), reader) as selector, reader, writer:
        selector.chores.extend([lambda: done.append(1), lambda: done.append(2)])
        writer.send(b"x")
        assert len(selector.select(60)) == 1
        assert done == [1]


def test_reads_are_gathered_only_where_the_kernel_stamps(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere, and with few streams, each byte is read at once."""
    naps: list[float] = []
    monkeypatch.setattr(load_worker.time, "sleep", naps.append)
    reader, writer = pair
    with registered(_Selector(), reader) as selector, reader, writer:
        writer.send(b"x")
        selector.select(60)
        selector.gathers = True
        selector.select(60)
        assert naps == []
        monkeypatch.setattr(load_worker, "GATHER_FROM", 1)
        assert len(selector.select(60)) == 1
        assert naps == [load_worker.GATHER_S]
