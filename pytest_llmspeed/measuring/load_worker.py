"""A worker process of a load: sends its share over sockets of its own, and hands back bytes and stamps.

It talks in frames over its standard input and output: a length of four bytes, then a pickle. It
gets a `Job` and, once it has said that it is warm, the moment to start; the end of its input means
stop. It says `Warm`, then `Sent` for each request (and `Started`, of a load that ends by
time), then `Done`.
"""

from __future__ import annotations

import asyncio
import gc
import pickle
import selectors
import signal
import struct
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pytest_llmspeed.core.load_plan import LoadPlan
from pytest_llmspeed.edges import clock
from pytest_llmspeed.edges.wire.kept import KeepingClient, Target
from pytest_llmspeed.edges.wire.stamps import KERNEL_STAMPS
from pytest_llmspeed.measuring.load_runner import LoadRunner

LENGTH = struct.Struct("!I")
MOST_CHORES = 2048
GATHER_S = 0.0005
GATHER_FROM = 12
"""With fewer sockets than this, processes' own pipes among them, each is read at once."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker is to do."""

    plan: LoadPlan
    target: Target


@dataclass(frozen=True, slots=True)
class Warm:
    """Warm-up has ended: so many of its requests failed, the first with an error."""

    failed: int
    error: str | None


@dataclass(frozen=True, slots=True)
class Started:
    """A request is about to be sent; said where the plan alone does not tell which ones are."""

    place: int
    turn: int


@dataclass(frozen=True, slots=True)
class Done:
    """All is answered, or the worker was stopped: the processor time that it took since the start."""

    cpu_s: float
    elapsed_s: float


def framed(message: Any) -> bytes:
    """Return a message with its length before it."""
    content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(content)) + content


def main() -> None:
    """Run one worker to its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: who started us stops us
    _allow_many_sockets()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    selector = _Selector()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        runner.run(_work(selector))


def _allow_many_sockets() -> None:
    with suppress(ImportError, OSError, ValueError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class _Selector(selectors.DefaultSelector):
    """Waits for the sockets; chores are done when none of them has anything to read.

    Where the kernel says when each byte came (`gathers`), what arrives together is read together:
    with many streams nearly every chunk would wake the process for itself, so to wait a little before
    reading costs no truth, and halves the processor time.
    """

    gathers = False

    def __init__(self) -> None:
        super().__init__()
        self.chores: deque[Callable[[], object]] = deque()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.chores and timeout != 0:
            return self._busy()
        ready = super().select(timeout)
        if not (ready and self.gathers) or timeout == 0 or len(self.get_map()) < GATHER_FROM:
            return ready
        time.sleep(GATHER_S)
        return super().select(0)

    def _busy(self) -> list[tuple[selectors.SelectorKey, int]]:
        """Do chores until there is something to read, or none are left; one at least where many wait."""
        if len(self.chores) > MOST_CHORES:
            self.chores.popleft()()
        while not (ready := super().select(0)) and self.chores:
            self.chores.popleft()()
        return ready

    def do_chores(self) -> None:
        """Do all that is left."""
        while self.chores:
            self.chores.popleft()()


async def _work(selector: _Selector) -> None:
    loop = asyncio.get_running_loop()
    incoming = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(incoming), sys.stdin.buffer)
    outgoing, _ = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout.buffer)
    job: Job = await _next_message(incoming)
    client = KeepingClient(job.target)
    selector.gathers = KERNEL_STAMPS and job.target.base.scheme == "http"

    def say(message: Any) -> None:
        outgoing.write(framed(message))

    def announce(place: int, turn: int) -> None:
        if not job.plan.is_counted:
            say(Started(place, turn))

    runner = LoadRunner(job.plan, client, say, announce, later=selector.chores.append)
    say(Warm(*await runner.warm_up()))
    runner.prepare()
    start_s: float = await _next_message(incoming)
    before_s = time.process_time()
    await _until_done_or_stopped(runner, start_s, incoming)
    cpu_s = time.process_time() - before_s
    selector.do_chores()
    say(Done(cpu_s, clock.now_s() - start_s))
    client.close()
    outgoing.close()
    while outgoing.get_write_buffer_size():
        await asyncio.sleep(0.001)


async def _next_message(incoming: asyncio.StreamReader) -> Any:
    """The next message; at the end of the input the process ends, since nobody is left to work for."""
    try:
        (length,) = LENGTH.unpack(await incoming.readexactly(LENGTH.size))
        return pickle.loads(await incoming.readexactly(length))
    except asyncio.IncompleteReadError:
        sys.exit(0)


async def _until_done_or_stopped(runner: LoadRunner, start_s: float, incoming: asyncio.StreamReader) -> None:
    """Run the load; the end of the input stops it, and what is under way is then cancelled."""
    work = asyncio.ensure_future(runner.run(start_s))
    stop = asyncio.ensure_future(incoming.read(1))
    await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
    if not work.done():
        work.cancel()
    stop.cancel()
    with suppress(asyncio.CancelledError):
        await work
