"""The one loop of loads: sends what a plan says, whatever answers: an engine here, or a server's sockets."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from pytest_llmspeed.errors import LLMSpeedError
from pytest_llmspeed.load.plan import LoadPlan, Planned
from pytest_llmspeed.metrics.exchange import Exchange, Request
from pytest_llmspeed.metrics.sample import sample_of
from pytest_llmspeed.system import clock
from pytest_llmspeed.transport.recorded_response import RecordedResponse

if TYPE_CHECKING:  # a worker process of a load needs neither
    from pytest_llmspeed.engines.base import Engine
    from pytest_llmspeed.system.cpu import CPUWatch

PREPARED_BYTES = 16 * 2**20
"""Requests are made ready ahead of time up to this size, so that a free slot is filled at once."""

Before = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """One request that was sent: its place and turn in the plan, when it was due, and what came back.

    `request` is without its prompt. `error` stands where there is no answer at all to read: it was
    never sent, or nobody knows.
    """

    place: int
    turn: int
    request: Request | None = None
    due_s: float | None = None
    answer: RecordedResponse | Exchange | None = None
    foreign_cpu: float | None = None
    error: str | None = None
    process: int = 0


class Prepared(Protocol):
    """A request about to be sent, and what has come of it.

    `foreign_cpu` is the share of the processor that others took meanwhile; None if only the load's total is
    known.
    """

    request: Request
    answer: Any
    foreign_cpu: float | None

    @property
    def size(self) -> int:
        """About how many bytes it holds."""
        ...

    async def send(self) -> None:
        """Send it and wait for the end of its answer, which is then in `answer`; raises nothing."""
        ...


class Sender(Protocol):
    """What answers."""

    def prepare(self, request: Request) -> Prepared:
        """Return a request that is ready to be sent."""
        ...


class EngineSender:
    """An engine in this process, asked for at most `limit` answers at a time.

    `watch` tells what other programs took of the processor meanwhile.
    """

    def __init__(self, engine: Engine, limit: int | None, watch: CPUWatch | None) -> None:
        self.engine, self.watch = engine, watch
        self.gate = asyncio.Semaphore(limit) if limit else None

    def prepare(self, request: Request) -> Prepared:
        """Return a request that is ready to be sent."""
        return _ForEngine(self, request)


class _ForEngine:
    size = 0

    def __init__(self, sender: EngineSender, request: Request) -> None:
        self.request, self._sender = request, sender
        self.answer: Exchange | None = None
        self.foreign_cpu: float | None = None

    async def send(self) -> None:
        if self._sender.gate is not None:
            async with self._sender.gate:
                await self._ask()
        else:
            await self._ask()

    async def _ask(self) -> None:
        started_s, watch = clock.now_s(), self._sender.watch
        if watch:
            watch.look()
        try:
            self.answer = await self._sender.engine.exchange(self.request)
        except asyncio.CancelledError:
            self.answer = Exchange(self.request, started_s, notes=frozenset({"cancelled"}))
            raise
        except LLMSpeedError:
            raise
        except Exception as error:  # noqa: BLE001  (one answer that cannot be read must not end the load)
            self.answer = Exchange(self.request, started_s, error=f"{type(error).__name__}: {error}")
        if watch:
            self.foreign_cpu = watch.foreign_share(clock.now_s() - started_s)


class LoadRunner:
    """Runs one share of a load; each request that was sent is handed to `report` once.

    `announce` is told of each that is about to be sent. `later` does chores that can wait: reports,
    and making further requests ready.
    """

    def __init__(
        self,
        plan: LoadPlan,
        sender: Sender,
        report: Callable[[LoadRequest], None],
        announce: Callable[[int, int], None] = lambda _place, _turn: None,
        later: Callable[[Callable[[], object]], object] = lambda chore: chore(),
    ) -> None:
        self._plan, self._sender, self._report, self._announce = plan, sender, report, announce
        self._later = later
        self._coming = plan.planned()
        self._ready: deque[tuple[Planned, Prepared]] = deque()
        self._deadline_s = float("inf")
        self._ahead = 0

    async def warm_up(self) -> tuple[int, str | None]:
        """Send the warm-up requests, all at once; return how many failed, and what the first said."""
        prepared = [self._sender.prepare(self._plan.request(planned, 0)) for planned in self._plan.warmups()]
        await asyncio.gather(*(each.send() for each in prepared))
        errors = [error for each in prepared if (error := _error(each.answer, self._plan.template))]
        return len(errors), errors[0] if errors else None

    def prepare(self) -> None:
        """Make the first requests ready."""
        wanted = 2 * (self._plan.slots or 64)
        held = 0
        while len(self._ready) < wanted and held < PREPARED_BYTES and self._prepare_one():
            held += self._ready[-1][1].size
        self._ahead = len(self._ready) - (self._plan.slots or 0)

    def _prepare_one(self) -> bool:
        planned = next(self._coming, None)
        if planned is None:
            return False
        self._ready.append((planned, self._sender.prepare(self._plan.request(planned, 0))))
        return True

    async def run(self, start_s: float) -> None:
        """Send everything; returns once all has been answered."""
        if self._plan.duration_s is not None:
            self._deadline_s = start_s + self._plan.duration_s
        if (wait_s := start_s - clock.now_s()) > 0:
            await asyncio.sleep(wait_s)
        async with asyncio.TaskGroup() as users:
            if self._plan.slots is not None:
                for _ in range(self._plan.slots):
                    users.create_task(self._user())
            else:
                await self._arrivals(users, start_s)

    async def _user(self) -> None:
        """One slot of a closed loop: the next conversation as soon as one has ended."""
        while (following := self._next()) is not None:
            await self._converse(*following, None)

    async def _arrivals(self, users: asyncio.TaskGroup, start_s: float) -> None:
        """An open loop: each conversation when it is due, whatever became of those before.

        One that is due before the end is sent, even if the client is late.
        """
        while (following := self._next()) is not None:
            due_s = start_s + (following[0].due_s or 0.0)
            if (wait_s := due_s - clock.now_s()) > 0:
                await asyncio.sleep(wait_s)
            users.create_task(self._converse(*following, due_s))

    def _next(self) -> tuple[Planned, Prepared] | None:
        if self._plan.due_s is None and clock.now_s() >= self._deadline_s:
            return None
        if not self._ready and not self._prepare_one():
            return None
        if len(self._ready) <= self._ahead:
            self._later(self._prepare_one)
        return self._ready.popleft()

    async def _converse(self, planned: Planned, prepared: Prepared, due_s: float | None) -> None:
        """Send the turns of a conversation, each after the answer to the one before."""
        before: Before = ()
        for turn in range(len(planned.conversation)):
            if turn > 0:
                if clock.now_s() >= self._deadline_s:
                    return
                prepared = self._sender.prepare(self._plan.request(planned, turn, before))
            self._announce(planned.place, turn)
            try:
                await prepared.send()
            finally:
                due = due_s if turn == 0 else None
                self._later(partial(self._tell, planned.place, turn, prepared, due))
            if turn + 1 < len(planned.conversation):
                found = _read(prepared.answer, prepared.request)
                if found is None or found.failure:
                    self._give_up(planned, turn + 1)
                    return
                before = _with_answer(prepared.request, found)

    def _tell(self, place: int, turn: int, prepared: Prepared, due_s: float | None) -> None:
        request = replace(prepared.request, prompt="")
        self._report(LoadRequest(place, turn, request, due_s, prepared.answer, prepared.foreign_cpu))

    def _give_up(self, planned: Planned, turn: int) -> None:
        error = "it was not sent: the turn before it in its conversation failed"
        for unsent in range(turn, len(planned.conversation)):
            self._report(LoadRequest(planned.place, unsent, error=error))


def _with_answer(request: Request, answered: Exchange) -> Before:
    reply = {"role": "assistant", "content": answered.joined("text")}
    return (*request.messages, reply)


def _read(answer: Any, request: Request) -> Exchange | None:
    return answer.exchange(request) if isinstance(answer, RecordedResponse) else answer


def _error(answer: Any, request: Request) -> str | None:
    found = _read(answer, request)
    return sample_of(found).error if found is not None else None
