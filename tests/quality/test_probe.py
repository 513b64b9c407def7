"""What a quality check takes for an answer, on an engine whose answers are a script."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from helpers.scripted_engine import ScoringEngine

from pytest_llmspeed import EngineSpec
from pytest_llmspeed.quality import probe
from pytest_llmspeed.quality.answers import Baseline, CheckedSet, PlannedCheck
from pytest_llmspeed.quality.probe import Probe
from pytest_llmspeed.quality.prompts import PromptSet, QualityPrompt
from pytest_llmspeed.system.event_loop import LoopThread

PROMPTS = PromptSet("set", tuple(QualityPrompt(f"prompt {place}", f"What is {place}?") for place in range(3)))


def checked(loop: LoopThread, engine: type[ScoringEngine]) -> CheckedSet:
    """The answers of an engine to three prompts."""
    made = Probe(engine.start(EngineSpec.of("scoring", "m", None, {})), loop, lambda _: Baseline())
    return made.check(PlannedCheck(PROMPTS))


@pytest.mark.parametrize(
    ("instead", "error"),
    [({"finish_reason": None}, "without a finish reason"), ({"events": ()}, "output tokens could be seen")],
)
def test_what_is_a_failed_request_elsewhere_is_no_answer(
    loop: LoopThread, instead: dict[str, Any], error: str
) -> None:
    """A stream that was cut, or brought nothing: neither is held against anything, or stored."""

    class Cutting(ScoringEngine):
        async def exchange(self, request: Any, on_event: Any = None) -> Any:
            return replace(await super().exchange(request, on_event), **instead)

    found = checked(loop, Cutting)
    assert all(error in (answer.error or "") for answer in found.answers)
    assert {answer.texts for answer in found.answers} == {()}


def test_a_cut_answer_to_the_same_request_again_fails_the_first(loop: LoopThread) -> None:
    """It says nothing of whether the engine repeats itself."""

    class CuttingLater(ScoringEngine):
        async def exchange(self, request: Any, on_event: Any = None) -> Any:
            found = await super().exchange(request, on_event)
            return found if self._requests <= len(PROMPTS.prompts) else replace(found, finish_reason=None)

    found = checked(loop, CuttingLater)
    assert all("without a finish reason" in (answer.error or "") for answer in found.answers)


def test_tokens_that_cannot_be_scored_again_fail_their_answer(loop: LoopThread) -> None:
    """As those that cannot be scored at all; the noise is that of the others."""

    class Failing(ScoringEngine):
        scored = 0

        async def score(self, *asked: Any) -> Any:
            self.scored += 1
            found = await super().score(*asked)
            return found if self.scored != 4 else replace(found, logprobs=(float("nan"),) * len(asked[1]))

    found = checked(loop, Failing)
    first, *others = found.answers
    assert "its tokens cannot be scored: the log-probabilities are NaN" in (first.error or "")
    assert first.scores is None
    assert all(answer.error is None and answer.scores for answer in others)
    assert found.floor is not None
    assert found.floor.is_exact


def test_the_noise_is_that_of_answers_enough(loop: LoopThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long set the first answers are scored again, not all: the noise is the same in the others."""
    scored: list[int] = []

    class Counting(ScoringEngine):
        async def score(self, *asked: Any) -> Any:
            scored.append(len(asked[1]))
            return await super().score(*asked)

    checked(loop, Counting)
    rounds = len(scored) // len(PROMPTS.prompts) - 1
    monkeypatch.setattr(probe, "NOISE_TOKENS", scored[0] + 1)
    scored.clear()
    assert checked(loop, Counting).floor is not None
    assert len(scored) == len(PROMPTS.prompts) + 2 * rounds


def test_a_server_that_refuses_max_tokens_gets_the_limit_under_its_newer_name(loop: LoopThread) -> None:
    """From the first refusal on; nothing else that a server refuses is asked again."""
    fields: list[str] = []

    class Refusing(ScoringEngine):
        async def exchange(self, request: Any, on_event: Any = None) -> Any:
            fields.append(request.limit_field)
            found = await super().exchange(request, on_event)
            error = "HTTP 400: Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
            return found.failed(error) if request.limit_field == "max_tokens" else found

    found = checked(loop, Refusing)
    assert [answer.error for answer in found.answers] == [None] * 3
    assert (fields[0], set(fields[1:])) == ("max_tokens", {"max_completion_tokens"})
