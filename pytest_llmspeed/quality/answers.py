"""What a check asked of an engine and got: answers, their scores, and the noise between two askings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pytest_llmspeed.engines.token_scores import TokenScores
from pytest_llmspeed.quality.prompts import PromptSet

Scorer = Callable[[str | tuple[Mapping[str, object], ...], str], float]
"""A user's own: prompt and answer → score, the higher the better."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a check is held against beyond its own baseline.

    `quality_vs` names the precision whose baseline is meant instead of the own one's. `max_kl` is in
    nats per token, `min_top1` and `min_score` are shares of 1.
    """

    quality_vs: str | None = None
    max_kl: float | None = None
    min_top1: float | None = None
    min_score: float | None = None


@dataclass(frozen=True, slots=True)
class PlannedCheck:
    """A set of prompts, what its answers are held against, and a user's own scorer if there is one."""

    prompt_set: PromptSet
    limits: Limits = field(default_factory=Limits)
    scorer: Scorer | None = None


@dataclass(frozen=True, slots=True)
class CheckedAnswer:
    """The answer to one prompt.

    `texts` are its samples, of a greedy one a single text. `kept` is the share of them that keep the
    contract, `score` the mean of what the scorer says, without one the same as `kept`; None where
    nothing is asked. `not_kept` says what the first broken sample does not keep. `repeated` says
    whether the same request alone gave the same answer again, `repeated_beside` whether it did beside
    others; None where that was not tried. `scores` are the engine's scores of its own answer,
    `forced` those of the baseline's answer to the same prompt.
    `answer_hash` is known of a stored answer also where its texts are not.
    """

    prompt: str
    hash: str
    texts: tuple[str, ...] = ()
    finish_reason: str | None = None
    error: str | None = None
    prompt_tokens: int | None = None
    token_ids: tuple[int, ...] | None = None
    kept: float | None = None
    score: float | None = None
    not_kept: tuple[str, ...] = ()
    repeated: bool | None = None
    repeated_beside: bool | None = None
    scores: TokenScores | None = None
    forced: TokenScores | None = None
    answer_hash: str = ""

    @property
    def text(self) -> str:
        """The first of its samples, empty where the request failed."""
        return self.texts[0] if self.texts else ""


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """How far two scorings of the same tokens by one engine lie apart.

    `delta` is the largest difference of a token's log-probability, `kl` the mean divergence per token,
    of requests alone and, where the engine takes several, beside others. `is_exact` says whether those
    alone repeat to the last bit.
    """

    delta: float = 0.0
    kl: float = 0.0
    is_exact: bool = False


@dataclass(frozen=True, slots=True)
class CheckedSet:
    """The answers to a set, in its order. `floor` is None where the engine gives no log-probabilities.

    `width` is how many requests, at most, were sent at once to see what company does to an answer; 1:
    each went alone.
    """

    name: str
    answers: tuple[CheckedAnswer, ...] = ()
    floor: NoiseFloor | None = None
    width: int = 1
    precision: str | None = None

    @property
    def score(self) -> float | None:
        """The mean score of the answers that have one."""
        scores = [answer.score for answer in self.answers if answer.score is not None]
        return sum(scores) / len(scores) if scores else None


@dataclass(frozen=True, slots=True)
class Baseline:
    """The stored answers that a check is compared with, by the hash of their prompts.

    `precision` is that of the engine that gave them, `floor` its noise.
    """

    answers: Mapping[str, CheckedAnswer] = field(default_factory=dict)
    floor: NoiseFloor | None = None
    precision: str | None = None


@dataclass(frozen=True, slots=True)
class Probed:
    """A check as it was made: what was planned, what came back, what that is compared with."""

    plan: PlannedCheck
    now: CheckedSet
    baseline: Baseline
