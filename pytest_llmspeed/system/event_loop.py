"""One private event loop in one thread, so that the caller may itself run inside a loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from pytest_llmspeed.errors import hides_our_frames

__tracebackhide__ = hides_our_frames

T = TypeVar("T")


class Work:
    """A coroutine running in a loop, begun and cancelled from any thread.

    `ended` is called in the loop with the task that is done.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, None],
        ended: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self._loop, self._work, self._ended = loop, work, ended
        self._task: asyncio.Task[None] | None = None
        self._is_over = threading.Event()

    def begin(self) -> None:
        """Have the loop begin the work."""
        self._loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._work)
        self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._is_over.set()
        self._ended(task)

    def wait(self, timeout_s: float) -> None:
        """Block, at most so long, until the work has ended. Not from within its own loop."""
        self._is_over.wait(timeout_s)

    def cancel(self) -> None:
        """Ask the work to end; that it did, `ended` tells. In a loop that is closed, it did."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._cancel)

    def end_if_stranded(self) -> bool:
        """End work whose loop was closed around it; False if its loop is still to end it, or has."""
        if not self._loop.is_closed() or self._is_over.is_set():
            return False
        self._work.close()
        return True

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


class LoopThread:
    """An event loop that runs in a thread of its own from `run` to `close`."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="llmspeed-loop", daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        """True once the loop has ended, and with it all that lived in it."""
        return self.loop.is_closed()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` to its end and return what it returns.

        Where the wait is interrupted (Ctrl-C, a time limit of the test), the work is cancelled and
        has ended before the interruption goes on.
        """
        if self.is_closed:
            work.close()
            raise RuntimeError("the event loop of this run has closed: no more requests can be sent")
        ended = threading.Event()
        future: Future[T] | None = None
        try:
            future = asyncio.run_coroutine_threadsafe(_telling(work, ended), self.loop)
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
            asyncio.run_coroutine_threadsafe(_cancel_others(), self.loop).result(timeout=5)

    def close(self) -> None:
        """Cancel what still runs and end the thread. Closing twice is fine."""
        if self.is_closed:
            return
        self._cancel_all()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout=5)
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


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
