"""One private event loop in one thread, so that the caller may itself run inside a loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """An event loop that runs in a thread of its own from `run` to `close`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="llmspeed-loop", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` to its end and return what it returns.

        Where the wait is interrupted (Ctrl-C, a time limit of the test), the work is cancelled and
        has ended before the interruption goes on.
        """
        ended = threading.Event()
        future: Future[T] | None = None
        try:
            future = asyncio.run_coroutine_threadsafe(_telling(work, ended), self._loop)
            return future.result()
        except BaseException:
            if future is None:  # interrupted while it was handed over: it may run, and nobody can name it
                self._cancel_all()
            elif not future.done():
                future.cancel()
                ended.wait(timeout=5)
            raise

    def _cancel_all(self) -> None:
        """Cancel what runs, and wait until it has ended."""
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result(timeout=5)

    def close(self) -> None:
        """Cancel what still runs and end the thread. Closing twice is fine."""
        if self._loop.is_closed():
            return
        self._cancel_all()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


async def _telling(work: Coroutine[Any, Any, T], ended: threading.Event) -> T:
    """Do `work`; tell when it has let go of all it held, however it ended."""
    try:
        return await work
    finally:
        ended.set()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=4)
    await asyncio.sleep(0)  # connections that were just closed let go of their sockets
