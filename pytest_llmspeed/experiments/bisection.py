"""The first slow commit, on a noisy machine: each step measures a commit against a good one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pytest_llmspeed.errors import LLMSpeedError
from pytest_llmspeed.experiments.judged import ComparisonPlace, Judged
from pytest_llmspeed.experiments.suspects import Evidence, Suspects
from pytest_llmspeed.regression.verdicts import Comparison, Verdict

LIKELY, CERTAIN = 0.9, 0.95
"""The probability from which a commit is measured against its parent, and from which that answer stands."""
MOST_TIMES = 3
"""The most measurements of one commit against the same other."""


class UntestableError(LLMSpeedError):
    """A commit, by its place, that cannot be built, or measures nothing."""

    def __init__(self, place: int, message: str) -> None:
        super().__init__(message)
        self.place = place


class SearchEnd(StrEnum):
    """How a bisection ended."""

    FOUND = "found"
    NOT_CONFIRMED = "not_confirmed"
    NOT_SLOWER = "not_slower"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Step:
    """One measurement: commit `new` against commit `old`, by their places; no evidence if it was skipped."""

    old: int
    new: int
    verdict: str
    evidence: Evidence | None = None
    delta: float | None = None

    def to_builtins(self) -> dict[str, Any]:
        """Return the step as builtins."""
        known = self.evidence
        figures = None if known is None else [known.d, known.se, known.nu]
        return {
            "old": self.old,
            "new": self.new,
            "verdict": self.verdict,
            "evidence": figures,
            "delta": self.delta,
        }

    @classmethod
    def from_builtins(cls, shown: dict[str, Any]) -> Step:
        """Return the step that `to_builtins` made builtins of."""
        figures = shown["evidence"]
        evidence = None if figures is None else Evidence(*figures)
        return cls(shown["old"], shown["new"], shown["verdict"], evidence, shown["delta"])


SKIPPED = "skipped"
Measure = Callable[[int, int], Judged]
"""Measure a commit against an older one, by their places; raises `UntestableError`."""


@dataclass(slots=True)
class Bisection:
    """The search among `count` commits after the good one, which is commit 0; the bad one is the last.

    `note` hears of each step, and of the one comparison that is followed: the clearest of those in which
    the bad commit is slower. Steps and comparison of an interrupted search are taken over from `steps` and
    `watched`.
    """

    count: int
    measure: Measure
    note: Callable[[Step, Bisection], None] = lambda *_: None
    steps: list[Step] = field(default_factory=list)
    watched: ComparisonPlace | None = None

    @property
    def suspects(self) -> Suspects:
        """The probabilities after the steps so far."""
        suspects = Suspects(self.count)
        whole = self._whole
        for step in self.steps[1:]:
            if step.evidence is not None and whole is not None:
                suspects.learn(step.old, step.new, step.evidence.ratio(whole))
        return suspects

    @property
    def _whole(self) -> Evidence | None:
        return self.steps[0].evidence if self.steps else None

    @property
    def skipped(self) -> set[int]:
        """The commits that could not be tested."""
        return {step.new for step in self.steps if step.verdict == SKIPPED}

    def run(self) -> SearchEnd:
        """Search until the answer stands, or nothing is left to measure."""
        if not self.steps:
            self._measure_whole()
        if self.steps[0].verdict != Verdict.SLOWER:
            return SearchEnd.NOT_SLOWER
        while (pair := self._next()) is not None:
            self._take(*pair)
        return SearchEnd.FOUND if self.is_confirmed else SearchEnd.NOT_CONFIRMED

    @property
    def is_confirmed(self) -> bool:
        """True if the likeliest commit was found slower than the last testable one before it."""
        pair = self._verification()
        return any((step.old, step.new) == pair and step.verdict == Verdict.SLOWER for step in self.steps)

    @property
    def culprits(self) -> Sequence[int]:
        """The commits that the answer names: one, or those that cannot be told apart, likeliest first."""
        before, culprit = self._verification()
        return [culprit, *(k for k in range(before + 1, culprit) if k != culprit)]

    def _next(self) -> tuple[int, int] | None:
        """The next two commits to measure; None once the answer stands."""
        suspects, verification = self.suspects, self._verification()
        held = suspects.probability(*verification)
        split = suspects.halving(k for k in range(1, self.count) if self._may_take(0, k))
        if held >= LIKELY or split is None:
            done = self.is_confirmed and (held >= CERTAIN or split is None)
            if not done and self._may_take(*verification):
                return verification
            if done:
                return None
        return None if split is None else (0, split)

    def _verification(self) -> tuple[int, int]:
        """The likeliest commit, moved on to one that can be tested, and the last testable one before it."""
        skipped = self.skipped
        culprit = next(k for k in range(self.suspects.likeliest, self.count + 1) if k not in skipped)
        before = next(k for k in range(culprit - 1, -1, -1) if k not in skipped)
        return before, culprit

    def _may_take(self, old: int, new: int) -> bool:
        """True if a measurement is possible, and was not made too often; twice only if it said nothing."""
        made = [step for step in self.steps if (step.old, step.new) == (old, new)]
        return new not in self.skipped and len(made) < MOST_TIMES

    def _measure_whole(self) -> None:
        judged = self.measure(0, self.count)
        slower = [
            (place, found) for place, found in judged.by_place.items() if found.verdict is Verdict.SLOWER
        ]
        if not slower:
            verdict = judged.verdict or Verdict.INCONCLUSIVE
            self._add(Step(0, self.count, verdict.value))
            return
        self.watched, found = min(slower, key=lambda each: each[1].p_session or 0.0)
        self._add(_step(0, self.count, found))

    def _take(self, old: int, new: int) -> None:
        try:
            found = self.measure(old, new).by_place.get(self.watched or ("", "", ""))
        except UntestableError as error:
            self._add(Step(error.place, error.place, SKIPPED))
            return
        self._add(Step(new, new, SKIPPED) if found is None else _step(old, new, found))

    def _add(self, step: Step) -> None:
        self.steps.append(step)
        self.note(step, self)


def _step(old: int, new: int, found: Comparison) -> Step:
    return Step(old, new, found.verdict.value, Evidence.of(found), found.delta)
