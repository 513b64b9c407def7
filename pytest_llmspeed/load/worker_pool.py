"""The worker processes of a load: start them, tell them when to begin, listen to them, end them."""

from __future__ import annotations

import os
import pickle
import selectors
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import IO, Any

import pytest_llmspeed
from pytest_llmspeed.errors import EngineError, GenerationError, LLMSpeedError, hides_our_frames
from pytest_llmspeed.load.plan import LoadPlan
from pytest_llmspeed.load.send_loop import LoadRequest
from pytest_llmspeed.load.worker import LENGTH, Done, Job, Started, Warm, framed
from pytest_llmspeed.system import clock
from pytest_llmspeed.system.cpu import CPUWatch
from pytest_llmspeed.transport.recorded_response import Part, RecordedResponse
from pytest_llmspeed.transport.target import Target

__tracebackhide__ = hides_our_frames

STREAMS_A_WORKER = 512
"""The number of streams at 50 tokens/s that take about a third of a core."""
REQUESTS_A_WORKER_S = 400
START_IN_S = 0.02
SILENT_S = 30.0
"""A worker says every second that it is alive; after so long without a word it is ended."""
STOP_S = 5.0
"""How long workers may take to return their results once their input is closed."""
POLL_S = 0.5
READ_SIZE = 1 << 20
LAST_WORDS = 1 << 16
"""The number of bytes kept of a worker's standard error."""


@dataclass(slots=True)
class Outcome:
    """What the processes of a load handed back: every planned request once, and their own health.

    `not_sent` counts the planned requests that an interruption kept from being sent.
    """

    start_s: float = 0.0
    sent: list[LoadRequest] = field(default_factory=list)
    done: list[Done] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    not_sent: int = 0
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


def run_watched(plan: LoadPlan, target: Target, processes: int, watch: CPUWatch | None) -> Outcome:
    """Run a load in processes of its own; each request lost what the server lost over the whole load."""
    if watch is None:
        return run_in_workers(plan, target, processes)
    watch.look()
    started_s = clock.now_s()
    outcome = run_in_workers(plan, target, processes)
    share = watch.foreign_share(clock.now_s() - started_s)
    return replace(outcome, sent=[replace(sent, foreign_cpu=share) for sent in outcome.sent])


def run_in_workers(plan: LoadPlan, target: Target, processes: int) -> Outcome:
    """Run a load in worker processes and return what came back, also after an interruption.

    It ends once every request must have been given up, whatever the server and the workers do.
    Raises `EngineError` if a worker cannot start, `GenerationError` if every warm-up request failed.
    """
    workers: list[_Worker] = []
    outcome = Outcome()
    try:
        workers += (_Worker(share, place) for place, share in enumerate(plan.shares(processes)))
        for worker in workers:
            worker.tell(Job(worker.plan, target))
        _wait_until_warm(workers, plan, target)
        outcome.start_s = clock.now_s() + START_IN_S
        for worker in workers:
            worker.tell(outcome.start_s)
        limit_s = plan.longest_s + SILENT_S
        if not _listen(workers, limit_s):
            for worker in workers:
                worker.stop(f"it had not ended {limit_s:.0f} s after the load began")
    except LLMSpeedError:
        raise
    except BaseException as interruption:  # noqa: BLE001  (it goes on once what was measured is kept)
        outcome.interrupted = interruption
    finally:
        _see_out(workers)
    for worker in workers:
        worker.add_to(outcome)
    outcome.lost = [target.explained(error) for error in outcome.lost]
    return outcome


def _wait_until_warm(workers: Sequence[_Worker], plan: LoadPlan, target: Target) -> None:
    limit_s = plan.template.timeout_s + SILENT_S
    if not _listen(
        workers, limit_s, until=lambda: all(worker.warm or worker.has_ended for worker in workers)
    ):
        raise EngineError(f"a worker process of the load was not warm after {limit_s:.0f} s")
    for worker in workers:
        if not worker.warm:
            why = target.explained(worker.last_words())
            raise EngineError(f"a worker process of the load ended before it was warm: {why}")
    found = [worker.warm for worker in workers if worker.warm]
    errors = [target.explained(warm.error) for warm in found if warm.error]
    warm_or_raise((sum(warm.failed for warm in found), errors[0] if errors else None), plan.warmup)


def warm_or_raise(failed: tuple[int, str | None], requests: int) -> None:
    """Raise `GenerationError` if no warm-up request was answered: a load would only fail, slowly."""
    count, error = failed
    if requests and count == requests:
        raise GenerationError(f"all {count} warm-up requests of the load failed, the first with: {error}")


def _listen(workers: Sequence[_Worker], limit_s: float, until: Callable[[], bool] = lambda: False) -> bool:
    """Exchange bytes with the workers until `until` holds or each has ended; False once `limit_s` passed.

    A worker that says nothing for too long is ended. Only time in which we ourselves were listening
    counts, so that a machine that slept, or a test stopped in a debugger, ends none.
    """
    ends_s = clock.now_s() + limit_s
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            worker.register(selector)
        while selector.get_map() and not until():
            before_s = clock.now_s()
            if before_s >= ends_s:
                return False
            ready = selector.select(min(POLL_S, ends_s - before_s))
            for key, _ in ready:
                if not key.data.attend(key.fileobj):
                    selector.unregister(key.fileobj)
            if not ready and all(worker.has_exited for worker in workers):
                return True  # somebody else holds their pipes open
            passed_s = min(clock.now_s() - before_s, POLL_S)
            for worker in workers:
                worker.note_silence(passed_s)
    return True


def _see_out(workers: Sequence[_Worker]) -> None:
    """Let the workers hand back what they hold, and end those that do not."""
    try:
        for worker in workers:
            worker.hang_up()
        _listen(workers, STOP_S)
    finally:
        for worker in workers:
            worker.kill()
        _listen(workers, STOP_S)
        for worker in workers:
            worker.close()


class _Worker:
    """One process, from our side."""

    def __init__(self, plan: LoadPlan, place: int) -> None:
        self.plan, self._place = plan, place
        self._process = _started()
        self._input, self._output, self._errors = map(
            _there, (self._process.stdin, self._process.stdout, self._process.stderr)
        )
        os.set_blocking(self._input.fileno(), False)
        self._to_say, self._said, self._complaints = bytearray(), bytearray(), bytearray()
        self._silent_s = 0.0
        self._ended_because: str | None = None
        self.has_ended = False

    def tell(self, message: Any) -> None:
        """Have it told a message, as soon as somebody listens."""
        self._to_say += framed(message)

    def register(self, selector: selectors.BaseSelector) -> None:
        """Wait for its pipes: each is read to its end, or a chatty worker would block in a write."""
        if self._to_say and not self._input.closed:
            selector.register(self._input, selectors.EVENT_WRITE, self)
        for pipe in (self._output, self._errors):
            selector.register(pipe, selectors.EVENT_READ, self)

    def attend(self, pipe: IO[bytes]) -> bool:
        """Read or write one pipe that is ready; False once nothing more is to be done with it."""
        if pipe is self._input:
            return self._say()
        content = os.read(pipe.fileno(), READ_SIZE)
        if pipe is self._output:
            self._said += content
            self._silent_s = 0.0
            self.has_ended = not content
        else:
            self._complaints += content
            del self._complaints[:-LAST_WORDS]
        return bool(content)

    def _say(self) -> bool:
        try:
            written = os.write(self._input.fileno(), self._to_say)
        except BlockingIOError:
            return True
        except OSError:  # it has died: seen by what it does not hand back
            self._to_say.clear()
            return False
        del self._to_say[:written]
        return bool(self._to_say)

    def note_silence(self, passed_s: float) -> None:
        """Note that time has passed; end the process if it has said nothing for too long."""
        self._silent_s += passed_s
        if self._silent_s > SILENT_S and not self.has_ended:
            self.stop(f"it did not respond for {SILENT_S:.0f} s")
            self.kill()

    @property
    def has_exited(self) -> bool:
        """True if the process is over."""
        return self._process.poll() is not None

    @property
    def warm(self) -> Warm | None:
        """The worker's report on its warm-up; None before it arrives."""
        return next((message for message in self._messages() if isinstance(message, Warm)), None)

    def _messages(self) -> Iterator[Any]:
        """The messages so far that are whole."""
        at = 0
        while at + LENGTH.size <= len(self._said):
            (length,) = LENGTH.unpack_from(self._said, at)
            at += LENGTH.size
            if at + length > len(self._said):
                return
            yield pickle.loads(memoryview(self._said)[at : at + length])
            at += length

    def last_words(self) -> str:
        """Return why it ended: our own reason, its last line, or its exit code."""
        if self._ended_because:
            return self._ended_because
        stderr = self._complaints.decode("utf-8", "replace").strip()
        if self._process.poll() is None:
            self._process.wait(STOP_S)
        return stderr.rpartition("\n")[2] or f"exit code {self._process.returncode}"

    def hang_up(self) -> None:
        """Close its input, which stops it."""
        self._to_say.clear()
        with suppress(OSError):
            self._input.close()

    def stop(self, reason: str) -> None:
        """Stop it for a reason of ours."""
        self._ended_because = self._ended_because or reason
        self.hang_up()

    def kill(self) -> None:
        """End the process; one that has closed its output is given time to end by itself."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_S if self.has_ended else 0)
            return
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_S)

    def close(self) -> None:
        """Close its pipes."""
        for pipe in (self._input, self._output, self._errors):
            with suppress(OSError):
                pipe.close()

    def add_to(self, outcome: Outcome) -> None:
        """Add what it handed back, and account for each planned request that it did not."""
        found = list(self._messages())
        parts = defaultdict[int, list[Part]](list)
        for part in found:
            if isinstance(part, Part):
                parts[part.number].append(part)
        sent = [replace(each, process=self._place) for each in found if isinstance(each, LoadRequest)]
        for each in sent:
            if isinstance(each.answer, RecordedResponse):
                each.answer.put_back(parts[each.answer.number])
        done = [each for each in found if isinstance(each, Done)]
        outcome.sent += sent
        outcome.done += done
        begun = ((each.place, each.turn) for each in found if isinstance(each, Started))
        handed_back = {(each.place, each.turn) for each in sent}
        missing = [each for each in chain(self.plan.certain(), begun) if each not in handed_back]
        if outcome.interrupted is not None and done:
            outcome.not_sent += len(missing)
        elif missing or not done:
            ending = "was stopped" if self._ended_because else "died"
            error = f"its worker process {ending} ({self.last_words()})"
            outcome.lost.append(error)
            outcome.sent += [
                LoadRequest(place, turn, error=error, process=self._place) for place, turn in missing
            ]


def _there(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


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
    return f"import sys; sys.path[:] = {path!r}; from pytest_llmspeed.load.worker import main; main()"
