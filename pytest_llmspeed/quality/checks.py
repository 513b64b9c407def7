"""A set's answers and their baseline → the finding of each check. Decides; `messages.quality` words it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pytest_llmspeed.metrics.reasons import Reason
from pytest_llmspeed.quality.answers import CheckedAnswer, Limits, Probed
from pytest_llmspeed.quality.findings import (
    CONSISTENCY,
    CONTRACTS,
    DIVERGENCE,
    LOGPROBS,
    SCORE,
    AnswerLine,
    Finding,
    QualityStatus,
    SetFindings,
)
from pytest_llmspeed.quality.paired_test import FAIL_P, SUSPECT_P, more_often, paired, visible_loss
from pytest_llmspeed.quality.scores import (
    ScoreChange,
    TokenChange,
    first_divergence,
    gap_at,
    pooled,
    token_changes,
)
from pytest_llmspeed.quality.snapshot import hash_of
from pytest_llmspeed.quality.thresholds import ONE_PROMPT, coarser, kl_limit, near_tie_nats


@dataclass(frozen=True)
class _Pair:
    """An answer with that of the baseline, if there is one; a divergence led by less than `tie` is a tie."""

    now: CheckedAnswer
    before: CheckedAnswer | None
    tie: float

    @cached_property
    def changes(self) -> list[TokenChange]:
        """The change in log-probability of each baseline token; empty if either side is unknown."""
        if self.before is None or self.before.scores is None or self.now.forced is None:
            return []
        return token_changes(self.before.scores, self.now.forced)

    @cached_property
    def kl(self) -> float | None:
        """The mean divergence over those tokens."""
        return ScoreChange.of(self.changes).kl if self.changes else None

    @cached_property
    def divergence(self) -> int | None:
        """The first token that is another one than before."""
        if self.before is None or self.before.token_ids is None or self.now.token_ids is None:
            return None
        return first_divergence(self.before.token_ids, self.now.token_ids)

    @cached_property
    def near_tie(self) -> bool | None:
        """True if rounding may have turned the divergence; None where there is none, or no score of it."""
        place = self.divergence
        if place is None or self.before is None or self.before.scores is None:
            return None
        tokens = self.now.token_ids or ()
        gap = gap_at(self.before.scores, place, tokens[place] if place < len(tokens) else None)
        return None if gap is None else gap <= self.tie

    @property
    def broke(self) -> bool:
        """True if the baseline kept more of the contract."""
        if self.before is None or self.before.kept is None or self.now.kept is None:
            return False
        return self.now.kept < self.before.kept

    @property
    def has_changed(self) -> bool:
        """True if the answer is another one than before."""
        return self.before is not None and self.before.answer_hash != hash_of(self.now)

    @property
    def line(self) -> AnswerLine:
        """Both answers, for the report."""
        now, before = self.now, self.before
        return AnswerLine(
            prompt=now.prompt,
            hash=now.hash,
            text=now.text,
            baseline_text=before.text if before else "",
            not_kept=now.not_kept,
            score=now.score,
            baseline_score=before.score if before else None,
            divergence=self.divergence,
            near_tie=self.near_tie,
            kl=self.kl,
            broke=self.broke,
            error=now.error,
        )


@dataclass(frozen=True)
class _Check:
    """A checked set of prompts, as each check sees it."""

    probed: Probed

    @cached_property
    def precision(self) -> str:
        """The precision that two runs are allowed the rounding of: the coarser of both."""
        before = self.probed.baseline.precision
        now = self.probed.now.precision
        return coarser(now, before if self.probed.baseline.answers else now)

    @cached_property
    def tie(self) -> float:
        """The lead of a token over another that rounding may turn around, in nats."""
        return near_tie_nats(self.precision, self.probed.baseline.floor)

    @cached_property
    def pairs(self) -> list[_Pair]:
        """Each answer with its baseline."""
        before = self.probed.baseline.answers
        return [_Pair(now, before.get(now.hash), self.tie) for now in self.probed.now.answers]

    @cached_property
    def known(self) -> list[_Pair]:
        """Those that have a baseline and succeeded."""
        return [pair for pair in self.pairs if pair.before is not None and pair.now.error is None]


def findings_of(probed: Probed) -> SetFindings:
    """Return the finding of each check, in order."""
    check = _Check(probed)
    rungs = (_contracts(check), _consistency(check), _logprobs(check), _divergence(check), _score(check))
    return SetFindings(probed.now.name, rungs, tuple(pair.line for pair in check.pairs))


def _contracts(check: _Check) -> Finding:
    """Rung 1. An answer that broke fails it, unless rounding explains that or a comparison is to decide."""
    answers, limits = check.probed.now.answers, check.probed.plan.limits
    asked = [answer for answer in answers if answer.kept is not None]
    failed = [answer for answer in answers if answer.error is not None]
    score = check.probed.now.score
    broken = [pair for pair in check.known if pair.broke]
    figures: dict[str, Any] = {
        "kept": float(sum(answer.kept or 0 for answer in asked)),
        "asked": len(asked),
        "broken": len(broken),
        "at_ties": _ties(broken),
        "errors": len(failed),
    }
    if failed:
        figures |= {"requests": len(answers), "first_error": failed[0].error}
        return Finding(CONTRACTS, QualityStatus.FAILED, Reason.PROMPTS_FAILED, figures, by_limit=True)
    if limits.min_score is not None and (score is None or score < limits.min_score):
        figures |= {"score": score, "min_score": limits.min_score}
        return Finding(CONTRACTS, QualityStatus.FAILED, Reason.SCORE_TOO_LOW, figures, by_limit=True)
    if not asked:
        return Finding(CONTRACTS, QualityStatus.SKIPPED, Reason.NOTHING_EXPECTED, figures)
    reason = Reason.CONTRACTS_BROKEN if broken else Reason.CONTRACTS_KEPT
    return Finding(CONTRACTS, _status_of_broken(broken, limits), reason, figures)


def _status_of_broken(broken: Sequence[_Pair], limits: Limits) -> QualityStatus:
    if limits.quality_vs is not None:
        return QualityStatus.PASSED
    if any(pair.near_tie is False for pair in broken):
        return QualityStatus.FAILED
    return QualityStatus.SUSPECT if len(broken) > _ties(broken) else QualityStatus.PASSED


def _ties(pairs: Sequence[_Pair]) -> int:
    return sum(pair.near_tie is True for pair in pairs)


Counted = tuple[int, int]
"""Hits and trials."""


@dataclass(frozen=True)
class _Sign:
    """One way in which an engine disagrees with itself: how often now, and how often with the baseline.

    With `once` a single time is enough, if the baseline never did; one that `stands_alone` tells
    something without a baseline too.
    """

    reason: Reason
    now: Counted
    then: Counted
    once: bool = False
    stands_alone: bool = False

    @property
    def status(self) -> QualityStatus:
        """The status: failed if the disagreement is new and beyond chance."""
        if not self.now[0]:
            return QualityStatus.PASSED
        if not self.then[1]:
            return QualityStatus.SUSPECT if self.stands_alone else QualityStatus.PASSED
        is_new = more_often(self.now, self.then) <= FAIL_P or (self.once and not self.then[0])
        return QualityStatus.FAILED if is_new else QualityStatus.PASSED


def _consistency(check: _Check) -> Finding:
    """Rung 2. Answers that come out differently when asked again, or that are not the likeliest ones."""
    now = check.probed.now
    signs = _signs(check)
    alone, beside, unlikely = signs
    figures: dict[str, Any] = {
        "asked_again": alone.now[1],
        "differing": alone.now[0],
        "asked_beside": beside.now[1],
        "differing_beside": beside.now[0],
        "width": now.width,
        "unlikely": unlikely.now[0],
        "scored_tokens": unlikely.now[1],
        "floor_delta": now.floor.delta if now.floor else None,
        "floor_kl": now.floor.kl if now.floor else None,
        "is_exact": now.floor is not None and now.floor.is_exact,
    }
    if not alone.now[1]:
        return Finding(CONSISTENCY, QualityStatus.SKIPPED, Reason.NOTHING_GREEDY, figures)
    worst = min(signs, key=lambda sign: list(QualityStatus).index(sign.status))
    reason = Reason.REPEATS if worst.status is QualityStatus.PASSED else worst.reason
    return Finding(CONSISTENCY, worst.status, reason, figures)


def _signs(check: _Check) -> tuple[_Sign, _Sign, _Sign]:
    """Another answer when asked again alone, or beside others; tokens that are not the likeliest."""
    answers, floor = check.probed.now.answers, check.probed.now.floor
    before = [pair.before for pair in check.known if pair.before is not None]
    alone, beside = _differing(answers, "repeated"), _differing(answers, "repeated_beside")
    unlikely = _unlikely(answers, check.tie)
    draws = floor is not None and floor.is_exact
    return (
        _Sign(Reason.DIFFERS_ALONE, alone, _differing(before, "repeated"), once=draws, stands_alone=draws),
        _Sign(Reason.DIFFERS_BESIDE_OTHERS, beside, _differing(before, "repeated_beside")),
        _Sign(Reason.UNLIKELY_TOKENS, unlikely, _unlikely(before, check.tie), stands_alone=True),
    )


def _differing(answers: Sequence[CheckedAnswer], field: str) -> Counted:
    tried = [same for answer in answers if (same := getattr(answer, field)) is not None]
    return tried.count(False), len(tried)


def _unlikely(answers: Sequence[CheckedAnswer], tie: float) -> Counted:
    """Tokens of greedy answers that the engine itself finds less likely than others, beyond a tie."""
    short = [gap for answer in answers if answer.scores for gap in answer.scores.shortfalls]
    return sum(gap > tie for gap in short), len(short)


def _logprobs(check: _Check) -> Finding:
    """Rung 3. The baseline's own tokens, scored again: those of all prompts, and of each by itself.

    One prompt may be hurt alone, a long one whose beginning is cut off, and many others hide it.
    """
    limits, baseline = check.probed.plan.limits, check.probed.baseline
    scored = [(pair.kl, pair) for pair in check.known if pair.kl is not None]
    if not scored:
        return _without_logprobs(check)
    change = ScoreChange.of(list(pooled(pair.changes for _, pair in scored)))
    allowed = kl_limit(check.precision, baseline.floor) if limits.max_kl is None else limits.max_kl
    kl, worst = max(scored, key=lambda each: each[0])
    is_hurt_alone = limits.max_kl is None and kl > ONE_PROMPT * allowed
    figures: dict[str, Any] = {
        "tokens": change.tokens,
        "kl": change.kl,
        "max_kl": allowed,
        "top1": change.top1,
        "min_top1": limits.min_top1,
        "delta": change.delta,
        "worst_prompt_kl": kl,
    }
    too_low = limits.min_top1 is not None and change.top1 < limits.min_top1
    if is_hurt_alone:
        figures |= {"worst_prompt": worst.now.prompt, "worst_prompt_max_kl": ONE_PROMPT * allowed}
    status = QualityStatus.FAILED if too_low or is_hurt_alone or change.kl > allowed else QualityStatus.PASSED
    by_limit = too_low or limits.max_kl is not None
    return Finding(LOGPROBS, status, Reason.LOGPROBS_MOVED, figures, by_limit=by_limit)


def _without_logprobs(check: _Check) -> Finding:
    if check.probed.now.floor is None:
        return Finding(LOGPROBS, QualityStatus.SKIPPED, Reason.ENGINE_SCORES_NOTHING)
    if not check.known:
        return Finding(LOGPROBS, QualityStatus.NO_BASELINE, Reason.NO_STORED_ANSWERS)
    return Finding(LOGPROBS, QualityStatus.SKIPPED, Reason.NO_STORED_TOKENS)


def _divergence(check: _Check) -> Finding:
    """Rung 4, an explanation: whether answers that changed did so where rounding may turn them."""
    if not check.known:
        return Finding(DIVERGENCE, QualityStatus.NO_BASELINE, Reason.NO_STORED_ANSWERS)
    changed = [pair for pair in check.known if pair.has_changed]
    real = [pair for pair in changed if pair.near_tie is False]
    figures: dict[str, Any] = {
        "answers": len(check.known),
        "changed": len(changed),
        "near_ties": _ties(changed),
        "real": len(real),
        "near_tie_nats": check.tie,
    }
    if real:
        figures |= {"first_prompt": real[0].now.prompt, "first_token": real[0].divergence}
    return Finding(DIVERGENCE, QualityStatus.PASSED, Reason.DIVERGENCE, figures)


def _status_of_scores(p: float) -> QualityStatus:
    if p <= FAIL_P:
        return QualityStatus.FAILED
    return QualityStatus.SUSPECT if p <= SUSPECT_P else QualityStatus.PASSED


def _score(check: _Check) -> Finding:
    """Rung 5. The exact paired test on the scores."""
    scores = [
        (pair.before.score, pair.now.score)
        for pair in check.known
        if pair.before is not None and pair.before.score is not None and pair.now.score is not None
    ]
    if not scores:
        scored = any(answer.score is not None for answer in check.probed.now.answers)
        if scored:
            return Finding(SCORE, QualityStatus.NO_BASELINE, Reason.NO_STORED_ANSWERS)
        return Finding(SCORE, QualityStatus.SKIPPED, Reason.NOTHING_SCORED)
    found = paired(scores)
    figures = {
        "prompts": found.prompts,
        "worse": found.worse,
        "better": found.better,
        "p": found.p,
        "visible_loss": visible_loss(found.prompts),
    }
    status = (
        QualityStatus.FAILED
        if found.p <= FAIL_P
        else QualityStatus.SUSPECT
        if found.p <= SUSPECT_P
        else QualityStatus.PASSED
    )
    return Finding(SCORE, status, Reason.TASK_SCORE, figures)
