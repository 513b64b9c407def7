"""The private event loop: what an interruption of the wait means for the work."""

from __future__ import annotations

import asyncio
import signal
import threading
import time

import pytest

from pytest_llmspeed.system.event_loop import LoopThread


@pytest.fixture
def loop():
    loop = LoopThread()
    yield loop
    loop.close()


def ctrl_c() -> None:
    """Interrupt the main thread, soon."""
    main = threading.main_thread().ident
    assert main is not None
    threading.Timer(0.01, signal.pthread_kill, (main, signal.SIGINT)).start()


def test_interrupted_work_has_let_go_before_the_interruption_goes_on(loop: LoopThread) -> None:
    """Ctrl-C cancels the work and waits for its cleaning up."""
    let_go = []

    async def work() -> None:
        ctrl_c()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            let_go.append(True)

    with pytest.raises(KeyboardInterrupt):
        loop.run(work())
    assert let_go


def test_an_interruption_waits_for_its_own_work_alone(loop: LoopThread) -> None:
    """Tasks that an engine keeps on the loop do not hold it up (they would, for four seconds)."""
    kept: list[asyncio.Task[None]] = []

    async def engine() -> None:
        kept.append(asyncio.ensure_future(asyncio.sleep(60)))

    async def work() -> None:
        ctrl_c()
        await asyncio.sleep(60)

    loop.run(engine())
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        loop.run(work())
    assert time.monotonic() - start < 2
    assert not kept[0].done()
