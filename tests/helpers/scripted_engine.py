"""Engines whose answers and times are a script: the fake clock of the plugin's tests.

No real time passes: stamps count from a clock that the script alone moves.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count
from math import inf
from pathlib import Path
from typing import Any, ClassVar, Self

from pytest_llmspeed import (
    Backend,
    Engine,
    EngineError,
    EngineSpec,
    Event,
    Exchange,
    Hardware,
    Request,
    Usage,
)
from pytest_llmspeed.engines.token_scores import TokenScores

START_S = -1_000_000
"""Long before any clock of a machine, which counts from its start: no schedule finds the script late."""
_clock_s = count(START_S)


def setting(name: str, default: float) -> float:
    """A number of the environment: how a test changes the script from run to run."""
    return float(os.environ.get(f"SCRIPTED_{name}", default))


def log(line: str) -> None:
    """Note a start or a stop where the test can read it."""
    with Path("engine.log").open("a") as file:
        file.write(line + "\n")


class ScriptedEngine(Engine):
    """Answers "scripted answer" after `ttft_ms`, a token each `tpot_ms`, 3 % noise on each request."""

    precisions: ClassVar[tuple[str, ...]] = ("fp32", "bf16")
    options: ClassVar[frozenset[str]] = frozenset(
        {"ttft_ms", "tpot_ms", "tokens", "prompt_tokens", "fail_every", "streamed", "usage", "secret", "here"}
    )
    name: ClassVar[str] = "scripted"

    def __init__(self, spec: EngineSpec) -> None:
        self._options: dict[str, Any] = dict(spec.options)
        self._random = random.Random(int(setting("SEED", 0)))
        self._mood = self._random.gauss(1, setting("MOOD", 0.01))
        self._requests = 0
        self._id = spec.id
        self.backend = Backend(
            name=self.name,
            model=spec.model,
            precision=spec.precision,
            prefix_cache="cold",
            options={key: value for key, value in spec.options.items() if key != "secret"},
            versions={"scripted": os.environ.get("SCRIPTED_VERSION", "1.0")},
        )
        self.hardware = Hardware() if spec.options.get("here") else Hardware(remote="script")

    @classmethod
    def start(cls, spec: EngineSpec) -> Self:
        log(f"start {spec.id}")
        return cls(spec)

    async def close(self) -> None:
        log(f"stop {self._id}")

    async def exchange(self, request: Request, on_event: Callable[[Event], None] | None = None) -> Exchange:
        found = self._exchange(request)
        for event in found.events if on_event else ():
            on_event(event)
        return found

    def _exchange(self, request: Request) -> Exchange:
        self._requests += 1
        started_s = float(next(_clock_s))
        fail_every = int(self._options.get("fail_every", setting("FAIL_EVERY", 0)))
        if fail_every and self._requests % fail_every == 0:
            return Exchange(request, started_s, error="scripted failure")
        return self._answer(request, started_s)

    def _answer(self, request: Request, started_s: float) -> Exchange:
        factor = setting("FACTOR", 1) * self._mood
        ttft_s = self._options.get("ttft_ms", 100) / 1000 * factor * self._noise()
        tpot_s = self._options.get("tpot_ms", 20) / 1000 * factor * self._noise()
        tokens = int(self._options.get("tokens", setting("TOKENS", min(request.max_tokens or 8, 8))))
        events = tuple(
            Event(started_s + ttft_s + place * tpot_s, text=word, tokens=1)
            for place, word in enumerate(self._words(tokens, request))
        )
        prompt_tokens = int(setting("PROMPT_TOKENS", self._options.get("prompt_tokens", 12)))
        counted = self._options.get("usage", True)
        return Exchange(
            request,
            started_s,
            events,
            usage=Usage(prompt_tokens, tokens, 0) if counted else None,
            token_source="engine" if counted else None,
            finish_reason="length",
            streamed=self._options.get("streamed", True),
        )

    def _noise(self) -> float:
        return max(0.5, self._random.gauss(1, setting("SPREAD", 0.03)))

    def _words(self, tokens: int, request: Request) -> list[str]:
        return ["scripted ", "answer ", *(f"w{place} " for place in range(2, tokens))][:tokens]


class ScoringEngine(ScriptedEngine):
    """Answers from `answers.json` (prompt → answer or answers in turn), a word a token, and scores words.

    Its next word leads all others by `LEAD` nats (2). With `COMPANY` it answers differently beside others.
    """

    name: ClassVar[str] = "scoring"
    max_concurrency = 16
    _under_way = 0

    async def exchange(self, request: Request, on_event: Callable[[Event], None] | None = None) -> Exchange:
        self._under_way += 1
        await asyncio.sleep(0)
        exchange = await super().exchange(request, on_event)
        self._under_way -= 1
        words = [event.text for event in exchange.events]
        return replace(exchange, token_ids=tuple(map(token_of, words)), finish_reason="stop")

    def _words(self, tokens: int, request: Request) -> list[str]:
        path = Path("answers.json")
        scripted = json.loads(path.read_text()).get(request.prompt) if path.exists() else None
        if isinstance(scripted, list):
            self._turns = getattr(self, "_turns", 0) + 1
            scripted = scripted[self._turns % len(scripted)]
        words = [f"{word} " for word in scripted.split()] if scripted else super()._words(tokens, request)
        return ["Together ", *words] if setting("COMPANY", 0) and self._under_way > 1 else words

    async def score(self, request: Request, token_ids: Sequence[int], top: int) -> TokenScores:
        own = [token_of(word) for word in self._words(8, request)]
        leads = [*own, *[0] * len(token_ids)][: len(token_ids)]
        lead = setting("LEAD", 2)
        best, other = -math.log(1 + math.exp(-lead)), -math.log(1 + math.exp(lead))
        return TokenScores(
            tuple(token_ids),
            tuple(best if token == first else other for token, first in zip(token_ids, leads, strict=True)),
            tuple(
                ((first, best), (token if token != first else 1, other))
                for token, first in zip(token_ids, leads, strict=True)
            ),
        )


def token_of(word: str) -> int:
    """The id of a word."""
    return 2 + zlib.crc32(word.encode()) % 50_000


class CrowdEngine(ScriptedEngine):
    """Answers as many at once as are asked, in a time of its own: it passes once all are waiting.

    From `crowded` requests under way on they share what it has, and take longer the more there are.
    """

    name: ClassVar[str] = "crowd"
    options: ClassVar[frozenset[str]] = ScriptedEngine.options | {"crowded"}
    max_concurrency = None

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        self._now_s = float(START_S)
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = count()

    async def exchange(self, request: Request, on_event: Any = None) -> Exchange:
        self._requests += 1
        if self._options.get("fail_every") and self._requests % self._options["fail_every"] == 0:
            await self._until(self._now_s + 0.05)
            return Exchange(request, self._now_s - 0.05, error="scripted failure")
        answer = self._answer(request, self._now_s)
        share = max(1.0, (len(self._waiting) + 1) / self._options.get("crowded", inf))
        begun_s = self._now_s
        slower = [replace(e, stamp_s=begun_s + (e.stamp_s - begun_s) * share) for e in answer.events]
        answer = replace(answer, events=tuple(slower))
        await self._until(answer.events[-1].stamp_s)
        return answer

    async def _until(self, moment_s: float) -> None:
        """Wait until the script's clock has come to a moment."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        heappush(self._waiting, (moment_s, next(self._order), future))
        if len(self._waiting) == 1:
            loop.call_later(0, self._pass_on, 5)
        await future

    def _pass_on(self, turns: int) -> None:
        """Let the first of those that wait go on, once nobody has anything else to do."""
        loop = asyncio.get_running_loop()
        if turns:
            loop.call_later(0, self._pass_on, turns - 1)
            return
        moment_s, _, future = heappop(self._waiting)
        self._now_s = max(self._now_s, moment_s)
        if not future.done():
            future.set_result(None)
        if self._waiting:
            loop.call_later(0, self._pass_on, 5)


class SecondScriptedEngine(ScriptedEngine):
    """The same under another name."""

    name: ClassVar[str] = "scripted2"


class BrokenEngine(ScriptedEngine):
    """Never starts."""

    name: ClassVar[str] = "broken"

    @classmethod
    def start(cls, spec: EngineSpec) -> Self:
        log("broken start")
        raise EngineError("the broken engine does not start: mend it")


class InterruptedEngine(ScriptedEngine):
    """Its start is ended by an exception that is not ours."""

    name: ClassVar[str] = "interrupted"

    @classmethod
    def start(cls, spec: EngineSpec) -> Self:
        raise RuntimeError("out of time")
