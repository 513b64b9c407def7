"""The worker processes of a load: started, told when to begin, listened to, stopped."""

from __future__ import annotations

import os
import pickle
import selectors
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest_llmspeed
from pytest_llmspeed.core.errors import EngineError, GenerationError, LLMSpeedError
from pytest_llmspeed.core.load_plan import LoadPlan
from pytest_llmspeed.edges import clock
from pytest_llmspeed.edges.wire.kept import KeptAnswer, Part
from pytest_llmspeed.edges.wire.target import Target
from pytest_llmspeed.measuring.load_runner import Sent
from pytest_llmspeed.measuring.load_worker import LENGTH, Done, Job, Started, Warm, framed

STREAMS_A_WORKER = 512
"""So many streams at 50 tokens/s take about a third of a core."""
REQUESTS_A_WORKER_S = 400
START_IN_S = 0.02
STOP_S = 5.0
READ_SIZE = 1 << 20


@dataclass(slots=True)
class Outcome:
    """What the processes of a load handed back: every planned request once, and their own health."""

    start_s: float = 0.0
    sent: list[Sent] = field(default_factory=list)
    done: list[Done] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    interrupted: BaseException | None = None


def workers_for(plan: LoadPlan) -> int:
    """Return how many processes a load needs: one core is to be enough for each; one core stays free."""
    if plan.slots is not None:
        wanted = -(-plan.slots // STREAMS_A_WORKER)
    else:
        due_s = plan.due_s or (0.0,)
        wanted = -(-len(due_s) // max(1, int(REQUESTS_A_WORKER_S * max(due_s[-1], 1.0))))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(wanted, cores - 1, plan.slots or wanted))


def run_in_workers(plan: LoadPlan, target: Target, processes: int) -> Outcome:
    """Run a load in worker processes and return what came back, also after an interruption.

    Raises `EngineError` where a worker cannot start, `GenerationError` where every warm-up request failed.
    """
    workers = [_Worker(share, place) for place, share in enumerate(plan.shares(processes))]
    outcome = Outcome()
    try:
        for worker in workers:
            worker.tell(Job(worker.plan, target))
        _wait_until_warm(workers, plan.warmup)
        outcome.start_s = clock.now_s() + START_IN_S
        for worker in workers:
            worker.tell(outcome.start_s)
        _listen(workers)
    except LLMSpeedError:
        raise
    except BaseException as interruption:  # noqa: BLE001  (it goes on once what was measured is kept)
        outcome.interrupted = interruption
        _stop(workers)
    finally:
        for worker in workers:
            worker.end()
    for worker in workers:
        worker.add_to(outcome)
    return outcome


def _wait_until_warm(workers: list[_Worker], requests: int) -> None:
    found: list[Warm] = [worker.wait_for(Warm) for worker in workers]
    errors = [each.error for each in found if each.error]
    warm_or_raise((sum(each.failed for each in found), errors[0] if errors else None), requests)


def warm_or_raise(failed: tuple[int, str | None], requests: int) -> None:
    """Raise `GenerationError` if no warm-up request was answered: a load would only fail, slowly."""
    count, error = failed
    if requests and count == requests:
        raise GenerationError(f"all {count} warm-up requests of the load failed, the first with: {error}")


def _listen(workers: list[_Worker], until_s: float = float("inf")) -> None:
    """Take in what the workers say, unread, until each has ended."""
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            if not worker.has_ended:
                selector.register(worker.output, selectors.EVENT_READ, worker)
        while selector.get_map() and clock.now_s() < until_s:
            for key, _ in selector.select(timeout=0.5):
                if not key.data.take_in():
                    selector.unregister(key.fileobj)


def _stop(workers: list[_Worker]) -> None:
    """Let the workers cancel what is under way and hand back what has come of it."""
    for worker in workers:
        worker.hang_up()
    with suppress(Exception):
        _listen(workers, until_s=clock.now_s() + STOP_S)


class _Worker:
    """One process, from our side."""

    def __init__(self, plan: LoadPlan, place: int) -> None:
        self.plan, self._place = plan, place
        self._kept = bytearray()
        self.has_ended = False
        self._process = _started()
        assert self._process.stdout is not None
        self.output = self._process.stdout

    def tell(self, message: Any) -> None:
        """Send it a message."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has died: told by what it did not hand back
            self._process.stdin.write(framed(message))

    def take_in(self) -> bool:
        """Read what it has written; False at the end."""
        content = os.read(self.output.fileno(), READ_SIZE)
        self._kept += content
        self.has_ended = not content
        return not self.has_ended

    def wait_for(self, kind: type[Any]) -> Any:
        """Its next message, which is of a known kind; raises `EngineError` if it dies before."""
        while not (messages := list(self._messages())):
            if not self.take_in():
                raise EngineError(
                    f"a worker process of the load ended before it was warm: {self._last_words()}"
                )
        self._kept.clear()
        assert isinstance(messages[0], kind)
        return messages[0]

    def _messages(self) -> Iterator[Any]:
        """What it has said so far, as far as it is whole."""
        at = 0
        while at + LENGTH.size <= len(self._kept):
            (length,) = LENGTH.unpack_from(self._kept, at)
            at += LENGTH.size
            if at + length > len(self._kept):
                return
            yield pickle.loads(memoryview(self._kept)[at : at + length])
            at += length

    def _last_words(self) -> str:
        self._process.wait()
        assert self._process.stderr is not None
        said = self._process.stderr.read().decode("utf-8", "replace").strip()
        return said.rpartition("\n")[2] or f"exit code {self._process.returncode}"

    def hang_up(self) -> None:
        """Close its input, which stops it."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    def end(self) -> None:
        """See it to its end."""
        self.hang_up()
        try:
            self._process.wait(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        while not self.has_ended:
            self.take_in()
        self.output.close()

    def add_to(self, outcome: Outcome) -> None:
        """Add what it handed back, and for each planned request that it did not, that it is lost."""
        found = list(self._messages())
        parts = defaultdict[int, list[Part]](list)
        for part in found:
            if isinstance(part, Part):
                parts[part.number].append(part)
        sent = [replace(each, process=self._place) for each in found if isinstance(each, Sent)]
        for each in sent:
            if isinstance(each.answer, KeptAnswer):
                each.answer.put_back(parts[each.answer.number])
        done = [each for each in found if isinstance(each, Done)]
        outcome.sent += sent
        outcome.done += done
        if not done:
            error = f"its worker process died ({self._last_words()})"
            outcome.lost.append(error)
            handed_back = {(each.place, each.turn) for each in sent}
            begun = [(each.place, each.turn) for each in found if isinstance(each, Started)]
            for place, turn in self._planned() if self.plan.is_counted else begun:
                if (place, turn) not in handed_back:
                    outcome.sent.append(Sent(place, turn, error=error, process=self._place))
        if self._process.stderr is not None:
            self._process.stderr.close()

    def _planned(self) -> Iterator[tuple[int, int]]:
        for planned in self.plan.planned():
            yield from ((planned.place, turn) for turn in range(len(planned.conversation)))


def _started() -> subprocess.Popen[bytes]:
    if os.name != "posix":
        raise EngineError("loads need Linux or macOS: their worker processes read pipes in an event loop")
    pipe = subprocess.PIPE
    try:
        return subprocess.Popen(
            [sys.executable, "-S", "-c", _program()], stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0
        )
    except OSError as error:
        raise EngineError(f"a worker process of the load cannot be started: {error}") from error


def _program() -> str:
    """The worker's program: our own search path, without what site-packages would load at a start."""
    path = [str(Path(pytest_llmspeed.__file__).parent.parent), *sys.path]
    return (
        f"import sys; sys.path[:] = {path!r}; from pytest_llmspeed.measuring.load_worker import main; main()"
    )
