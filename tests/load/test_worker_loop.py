"""The selector of a load's worker process: what waits, what is read together."""

from __future__ import annotations

import selectors
import socket

import pytest

from pytest_llmspeed.load import worker_loop
from pytest_llmspeed.load.worker_loop import LoadSelector
from pytest_llmspeed.transport.read_pacing import LEAST_S, ReadPacing


@pytest.fixture
def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair()


def registered(selector: LoadSelector, reader: socket.socket) -> LoadSelector:
    selector.register(reader, selectors.EVENT_READ)
    return selector


def test_chores_wait_until_nothing_is_to_be_read(pair: tuple[socket.socket, socket.socket]) -> None:
    """A socket goes first; then they are done in order, and the loop looks at its timers before it waits."""
    reader, writer = pair
    done: list[str] = []
    with registered(LoadSelector(), reader) as selector, reader, writer:
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
    monkeypatch.setattr(worker_loop, "MOST_CHORES", 1)
    reader, writer = pair
    done: list[int] = []
    with registered(LoadSelector(), reader) as selector, reader, writer:
        selector.chores.extend([lambda: done.append(1), lambda: done.append(2)])
        writer.send(b"x")
        assert len(selector.select(60)) == 1
        assert done == [1]


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What it slept, on a clock that stands still otherwise."""
    slept: list[float] = []
    monkeypatch.setattr(worker_loop.time, "sleep", slept.append)
    monkeypatch.setattr(worker_loop.clock, "now_s", lambda: 0.0)
    monkeypatch.setattr(worker_loop, "GATHER_FROM", 1)
    return slept


def test_reads_are_gathered_only_where_the_kernel_stamps(
    pair: tuple[socket.socket, socket.socket], naps: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere, and with few streams, each byte is read at once."""
    reader, writer = pair
    with registered(LoadSelector(), reader) as selector, reader, writer:
        writer.send(b"x")
        selector.select(60)
        assert (naps, selector.gathered_s) == ([], 0.0)
        selector.pacing = ReadPacing()
        assert len(selector.select(60)) == 1
        assert (naps, selector.gathered_s) == ([LEAST_S], LEAST_S)
        selector.select(0)
        monkeypatch.setattr(worker_loop, "GATHER_FROM", 2)
        selector.select(60)
        assert naps == [LEAST_S]


def test_a_timer_is_not_kept_waiting(pair: tuple[socket.socket, socket.socket], naps: list[float]) -> None:
    """What is due sooner than the reads are is done when it is due."""
    reader, writer = pair
    with registered(LoadSelector(), reader) as selector, reader, writer:
        selector.pacing = ReadPacing()
        writer.send(b"x")
        assert len(selector.select(LEAST_S / 2)) == 1
        assert naps == [LEAST_S / 2]
