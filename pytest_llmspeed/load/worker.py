"""A worker process of a load: sends its share over sockets of its own, and hands back bytes and stamps.

It talks in frames over its standard input and output: a length of four bytes, then a pickle. It
gets a `Job` and, once it has said that it is warm, the moment to start; the end of its input means
stop. It says `Warm`, then `LoadRequest` for each request (and `Started`, of a load that ends by
time; a `Part` of each long answer every now and then), then `Done`; all along, every second, that
it is `Alive`.
"""

from __future__ import annotations

import asyncio
import gc
import pickle
import signal
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from pytest_llmspeed.load.plan import LoadPlan
from pytest_llmspeed.load.send_loop import LoadRunner
from pytest_llmspeed.load.worker_loop import LoadSelector
from pytest_llmspeed.system import clock
from pytest_llmspeed.transport.read_pacing import ReadPacing
from pytest_llmspeed.transport.recorded_response import Part
from pytest_llmspeed.transport.recording_client import RecordingClient
from pytest_llmspeed.transport.target import Target
from pytest_llmspeed.transport.timestamps import KERNEL_STAMPS

LENGTH = struct.Struct("!I")
PARTS_EVERY_S = 0.1
ALIVE_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker is to do."""

    plan: LoadPlan
    target: Target


@dataclass(frozen=True, slots=True)
class Alive:
    """The worker runs, though it may have nothing else to say."""


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
    """All is answered, or the worker was stopped: what it took since the start.

    `gathered_s` is how long it let what had come lie, at most, so as to read it together with more.
    """

    cpu_s: float
    elapsed_s: float
    gathered_s: float = 0.0


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
    selector = LoadSelector()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        runner.run(_work(selector))


def _allow_many_sockets() -> None:
    with suppress(ImportError, OSError, ValueError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _work(selector: LoadSelector) -> None:
    loop = asyncio.get_running_loop()
    incoming = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(incoming), sys.stdin.buffer)
    outgoing, _ = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout.buffer)
    alive = loop.create_task(_say_alive(outgoing))
    job: Job = await _next_message(incoming)
    client = RecordingClient(job.target)
    if KERNEL_STAMPS and job.target.base.scheme == "http":
        selector.pacing = client.pacing = ReadPacing()

    def say(message: Any) -> None:
        outgoing.write(framed(message))

    def announce(place: int, turn: int) -> None:
        if not job.plan.is_certain(turn):
            say(Started(place, turn))

    runner = LoadRunner(job.plan, client, say, announce, later=selector.chores.append)
    say(Warm(*await runner.warm_up()))
    runner.prepare()
    start_s: float = await _next_message(incoming)
    before_s = time.process_time()
    handing_over = asyncio.ensure_future(_hand_over_parts(job.plan, client, selector.chores.append, say))
    try:
        await _until_done_or_stopped(runner, start_s, incoming)
        cpu_s = time.process_time() - before_s
        selector.do_chores()
        say(Done(cpu_s, clock.now_s() - start_s, selector.gathered_s))
    finally:  # whatever else fails, what has come is handed back
        handing_over.cancel()
        alive.cancel()
        selector.do_chores()
        await _flushed(outgoing)
    client.close()


async def _say_alive(outgoing: asyncio.WriteTransport) -> None:
    while True:
        outgoing.write(framed(Alive()))
        await asyncio.sleep(ALIVE_EVERY_S)


async def _flushed(outgoing: asyncio.WriteTransport) -> None:
    """Close the output once all has been written."""
    outgoing.close()
    while outgoing.get_write_buffer_size():
        await asyncio.sleep(0.001)


async def _hand_over_parts(
    plan: LoadPlan,
    client: RecordingClient,
    later: Callable[[Callable[[], object]], object],
    say: Callable[[Any], None],
) -> None:
    """Hand over long answers while they come, so that they are not held here; not those of a conversation.

    Each turn of a conversation is read before the next can be asked.
    """

    def hand_over(take: Callable[[], Part | None]) -> None:
        if part := take():
            say(part)

    while plan.workload.turns_each == 1:
        await asyncio.sleep(PARTS_EVERY_S)
        handed_over = asyncio.Event()
        for take in client.parts():
            later(partial(hand_over, take))
        later(handed_over.set)
        await handed_over.wait()


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
