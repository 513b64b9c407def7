"""Asks an engine for the answers to a set of prompts, twice, and for what it thinks of them and of old ones.

Its requests go straight to the engine: they are no part of what a test measures.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import isfinite
from statistics import fmean
from typing import TypeVar

from pytest_llmspeed.engines.base import Engine
from pytest_llmspeed.engines.token_scores import TokenScores
from pytest_llmspeed.errors import GenerationError, hides_our_frames
from pytest_llmspeed.metrics.exchange import Exchange, LimitField
from pytest_llmspeed.quality.answers import (
    Baseline,
    CheckedAnswer,
    CheckedSet,
    NoiseFloor,
    PlannedCheck,
    Probed,
    Scorer,
)
from pytest_llmspeed.quality.contracts import not_kept
from pytest_llmspeed.quality.prompts import QualityPrompt
from pytest_llmspeed.quality.scores import ASKED_TOP, TokenChange, pooled, token_changes
from pytest_llmspeed.system.event_loop import LoopThread

__tracebackhide__ = hides_our_frames

T = TypeVar("T")

TIMEOUT_S = 300.0
WIDEST = 8
"""The concurrency at which answers are checked for the effect of other requests."""
NOISE_TOKENS = 512
"""Once answers of so many tokens are scored again, the noise is known: it is the same in the others."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A prompt with its answer so far, and how far each further scoring of its tokens lay from the first."""

    prompt: QualityPrompt
    answer: CheckedAnswer
    noise: tuple[Sequence[TokenChange], ...] = ()

    @property
    def can_repeat(self) -> bool:
        """True if the same request has to give the same answer."""
        return self.prompt.is_greedy and self.answer.error is None

    def asked_again(self, again: Exchange, *, beside: bool) -> _Asked:
        """The same, knowing whether another exchange said the same: in tokens, or texts without them."""
        if again.failure is not None:
            return self.failed(again.failure)
        tokens, texts = self.answer.token_ids, self.answer.texts
        same = (again.joined("text"),) == texts if tokens is None else again.token_ids == tokens
        if beside:
            return _Asked(self.prompt, replace(self.answer, repeated_beside=same))
        return _Asked(self.prompt, replace(self.answer, repeated=same))

    def scored_again(self, again: TokenScores | GenerationError) -> _Asked:
        """The same, knowing the noise between its scores and others of the same tokens."""
        if isinstance(again, GenerationError) or self.answer.scores is None:
            return self.failed(f"its tokens cannot be scored: {again}")
        return replace(self, noise=(*self.noise, token_changes(self.answer.scores, again)))

    def failed(self, error: str) -> _Asked:
        """The same without an answer."""
        return _Asked(self.prompt, replace(self.answer, error=error, scores=None, forced=None))


class Probe:
    """Makes the quality checks of one test; `probed` holds them by the name of their set.

    A further check of a set, under other limits or later in the test, has a name of its own: `set #2`.
    """

    def __init__(
        self, engine: Engine, loop: LoopThread, baseline_of: Callable[[PlannedCheck], Baseline]
    ) -> None:
        self._engine, self._loop, self._baseline_of = engine, loop, baseline_of
        self.probed: dict[str, Probed] = {}
        self._limit_field: LimitField | None = None
        self._made: list[PlannedCheck] = []

    def has_made(self, plan: PlannedCheck) -> bool:
        """True if the same prompts were checked under the same limits, with the same scorer."""
        return plan in self._made

    def check(self, plan: PlannedCheck) -> CheckedSet:
        """Ask everything that the check of a set needs; return the answers."""
        plan = self._named(plan)
        baseline = self._baseline_of(plan)
        asked = [_Asked(p, self._answer(p, plan.scorer)) for p in plan.prompt_set.prompts]
        asked = [self._asked_again(each) for each in asked]
        width = self._width(asked)
        if width > 1:
            asked = self._asked_beside(asked, width)
        floor = None
        if self._engine.can_score:
            asked = [self._scored(each, baseline) for each in asked]
            chosen = _enough(asked)
            for at_once in sorted({1, width}):
                asked = self._scored_again(asked, chosen, at_once)
            floor = _floor(asked)
        answers = tuple(each.answer for each in asked)
        found = CheckedSet(plan.prompt_set.name, answers, floor, width, self._engine.backend.precision)
        self.probed[found.name] = Probed(plan, found, baseline)
        return found

    def _named(self, plan: PlannedCheck) -> PlannedCheck:
        """The plan under a name that no check before it has, which its baseline has too."""
        self._made.append(plan)
        name = plan.prompt_set.name
        number = sum(each.prompt_set.name == name for each in self._made)
        return (
            plan
            if number == 1
            else replace(plan, prompt_set=replace(plan.prompt_set, name=f"{name} #{number}"))
        )

    def _width(self, asked: Sequence[_Asked]) -> int:
        """Return how many requests at once there can be: of a small set no more than it has to repeat."""
        taken = self._engine.max_concurrency or WIDEST
        return max(1, min(taken, WIDEST, sum(each.can_repeat for each in asked)))

    def _answer(self, prompt: QualityPrompt, scorer: Scorer | None) -> CheckedAnswer:
        samples = [self._exchange(prompt, place) for place in range(prompt.samples)]
        answer = CheckedAnswer(prompt.id, prompt.hash)
        if error := next(filter(None, (sample.failure for sample in samples)), None):
            return replace(answer, error=error)
        texts = tuple(sample.joined("text") for sample in samples)
        misses = [
            not_kept(prompt.contract, text, each.finish_reason)
            for text, each in zip(texts, samples, strict=True)
        ]
        kept = fmean(not miss for miss in misses) if prompt.contract.asks else None
        score = kept if scorer is None else fmean(float(scorer(prompt.prompt, text)) for text in texts)
        answer = replace(answer, texts=texts)
        if score is not None and not isfinite(score):
            return replace(answer, error=f"the scorer returned {score}, which is not a score")
        usage = samples[0].usage
        return replace(
            answer,
            finish_reason=samples[0].finish_reason,
            prompt_tokens=usage.prompt_tokens if usage else None,
            token_ids=samples[0].token_ids,
            kept=kept,
            score=score,
            not_kept=next(filter(None, misses), ()),
        )

    def _exchange(self, prompt: QualityPrompt, sample: int = 0) -> Exchange:
        return self._loop.run(self._asked(prompt, sample))

    async def _asked(self, prompt: QualityPrompt, sample: int) -> Exchange:
        """The answer; a server that wants the limit under its newer name gets it so from then on."""
        request = prompt.request(sample, TIMEOUT_S)
        if self._limit_field is not None:
            request = replace(request, limit_field=self._limit_field)
        found = await self._engine.exchange(request)
        if request.limit_field == "max_tokens" and _wants_newer_limit(found.error):
            self._limit_field = "max_completion_tokens"
            return await self._engine.exchange(replace(request, limit_field=self._limit_field))
        return found

    def _asked_again(self, asked: _Asked) -> _Asked:
        if not asked.can_repeat:
            return asked
        return asked.asked_again(self._exchange(asked.prompt), beside=False)

    def _asked_beside(self, asked: Sequence[_Asked], width: int) -> list[_Asked]:
        """Ask again, so many at once."""
        found: dict[str, Exchange] = {}
        for group in _groups([each for each in asked if each.can_repeat], width):
            exchanges = self._loop.run(self._together(group))
            found |= {each.prompt.hash: exchange for each, exchange in zip(group, exchanges, strict=True)}
        return [
            each.asked_again(found[each.prompt.hash], beside=True) if each.can_repeat else each
            for each in asked
        ]

    async def _together(self, group: Sequence[_Asked]) -> list[Exchange]:
        return await asyncio.gather(*(self._asked(each.prompt, 0) for each in group))

    def _scored(self, asked: _Asked, baseline: Baseline) -> _Asked:
        """With the engine's scores of its own answer, and of the baseline's to the same prompt."""
        answer, before = asked.answer, baseline.answers.get(asked.prompt.hash)
        if not asked.can_repeat or not answer.token_ids:
            return asked
        try:
            scores = self._scores(asked.prompt, answer.token_ids)
            forced = None
            if before is not None and before.token_ids:
                same = before.token_ids == answer.token_ids
                forced = scores if same else self._scores(asked.prompt, before.token_ids)
        except GenerationError as error:
            return asked.failed(f"its tokens cannot be scored: {error}")
        return _Asked(asked.prompt, replace(answer, scores=scores, forced=forced))

    def _scores(self, prompt: QualityPrompt, tokens: Sequence[int]) -> TokenScores:
        return self._loop.run(_scores(self._engine, prompt, tokens))

    def _scored_again(self, asked: Sequence[_Asked], chosen: Container[str], width: int) -> list[_Asked]:
        """Score the chosen of the engine's own answers once more, so many at once."""
        found: dict[str, _Asked] = {}
        chosen_now = [each for each in asked if each.answer.scores and each.prompt.hash in chosen]
        for group in _groups(chosen_now, width):
            for each, again in zip(group, self._loop.run(_scored_together(self._engine, group)), strict=True):
                found[each.prompt.hash] = each.scored_again(again)
        return [found.get(each.prompt.hash, each) for each in asked]


def _enough(asked: Sequence[_Asked]) -> set[str]:
    """The prompts of the first answers that are enough to know the noise."""
    scored = [each for each in asked if each.answer.scores]
    before = accumulate((len(each.answer.token_ids or ()) for each in scored), initial=0)
    return {each.prompt.hash for each, tokens in zip(scored, before, strict=False) if tokens < NOISE_TOKENS}


def _floor(asked: Sequence[_Asked]) -> NoiseFloor | None:
    """The noise between two scorings of the same tokens: alone, and beside others if the engine can."""
    noise = [each.noise for each in asked if each.noise]
    rounds = [list(pooled(changes)) for changes in zip(*noise, strict=True)]
    if not rounds:
        return None
    return NoiseFloor(
        delta=max(abs(change.delta) for changes in rounds for change in changes),
        kl=max(fmean(change.kl for change in changes) for changes in rounds),
        is_exact=not any(change.delta or change.kl for change in rounds[0]),
    )


async def _scored_together(engine: Engine, group: Sequence[_Asked]) -> list[TokenScores | GenerationError]:
    return await asyncio.gather(
        *(_scores_or_error(engine, each.prompt, each.answer.token_ids or ()) for each in group)
    )


async def _scores_or_error(
    engine: Engine, prompt: QualityPrompt, tokens: Sequence[int]
) -> TokenScores | GenerationError:
    try:
        return await _scores(engine, prompt, tokens)
    except GenerationError as error:
        return error


async def _scores(engine: Engine, prompt: QualityPrompt, tokens: Sequence[int]) -> TokenScores:
    """The engine's scores, which are numbers; raises `GenerationError`."""
    found = await engine.score(prompt.request(0, TIMEOUT_S), tokens, ASKED_TOP)
    if not found.are_numbers:
        raise GenerationError(
            "the log-probabilities are NaN or Inf: the model's weights are damaged, or its precision is "
            "too low for it"
        )
    return found


def _groups(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _wants_newer_limit(error: str | None) -> bool:
    """True if a server refused `max_tokens` and named what it takes instead."""
    return error is not None and error.startswith("HTTP 400") and "max_completion_tokens" in error
