"""The findings of a quality check, and their one shape in reports and between processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from pytest_llmspeed.metrics.reasons import Explanation, Reason


class QualityStatus(StrEnum):
    """The status of one check, or of all checks of a set, from the gravest to the mildest."""

    FAILED = "failed"
    SUSPECT = "suspect"
    NO_BASELINE = "no_baseline"
    SKIPPED = "skipped"
    PASSED = "passed"


RUNGS = ("contracts", "self-consistency", "log-probabilities", "divergence", "task score")
CONTRACTS, CONSISTENCY, LOGPROBS, DIVERGENCE, SCORE = RUNGS


@dataclass(frozen=True, slots=True)
class Finding:
    """The finding of one check: a status, the reason for it, and the figures behind both.

    `by_limit` marks a failure of a limit of the user's, or for want of answers: it cannot be accepted.
    """

    rung: str
    status: QualityStatus
    reason: Reason
    figures: Mapping[str, Any] = field(default_factory=dict)
    by_limit: bool = False

    @property
    def explanation(self) -> Explanation:
        """The reason with its figures; as text, the sentence."""
        return Explanation(self.reason, self.figures)

    @property
    def number(self) -> int:
        """Its place on the ladder, from 1 on."""
        return RUNGS.index(self.rung) + 1


@dataclass(frozen=True, slots=True)
class AnswerLine:
    """One answer beside its baseline. What is not known is None; texts are empty where they are not kept.

    `divergence` is the first token that differs from the baseline's, `near_tie` whether that one was
    hardly likelier then; `kl` the mean divergence of the log-probabilities over the baseline's tokens.
    It `broke` if its baseline kept more of the contract.
    """

    prompt: str
    hash: str
    text: str = ""
    baseline_text: str = ""
    not_kept: tuple[str, ...] = ()
    score: float | None = None
    baseline_score: float | None = None
    divergence: int | None = None
    near_tie: bool | None = None
    kl: float | None = None
    broke: bool = False
    error: str | None = None


@dataclass(frozen=True, slots=True)
class SetFindings:
    """The findings on one set of prompts: its checks in order, its answers, and a status for the whole.

    `accepted` is the reason that a change was accepted with.
    """

    prompts: str
    rungs: tuple[Finding, ...]
    answers: tuple[AnswerLine, ...] = ()
    accepted: str | None = None

    @property
    def status(self) -> QualityStatus:
        """The gravest of its rungs; one that was skipped counts for nothing, nor does what is accepted."""
        if self.accepted is not None:
            return QualityStatus.PASSED
        order = list(QualityStatus)
        statuses = [finding.status for finding in self.rungs if finding.status is not QualityStatus.SKIPPED]
        return min(statuses, key=order.index, default=QualityStatus.PASSED)

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The checks that failed."""
        return tuple(finding for finding in self.rungs if finding.status is QualityStatus.FAILED)

    @property
    def may_be_accepted(self) -> bool:
        """True if it failed only by what has changed since its baseline."""
        return bool(self.failures) and not any(finding.by_limit for finding in self.failures)

    @property
    def broken(self) -> tuple[AnswerLine, ...]:
        """The answers that keep less of their contract than their baseline."""
        return tuple(answer for answer in self.answers if answer.broke)


def to_builtins(sets: Sequence[SetFindings], *, text: bool) -> dict[str, Any] | None:
    """Return the sets of a test as the report shows them, None where nothing was checked."""
    if not sets:
        return None
    order = list(QualityStatus)
    return {
        "verdict": min((each.status for each in sets), key=order.index).value,
        "sets": [_set_to_builtins(each, text=text) for each in sets],
    }


def _set_to_builtins(findings: SetFindings, *, text: bool) -> dict[str, Any]:
    return {
        "prompts": findings.prompts,
        "verdict": findings.status.value,
        "accepted": findings.accepted,
        "rungs": [_finding_to_builtins(finding) for finding in findings.rungs],
        "answers": [_answer_to_builtins(answer, text=text) for answer in findings.answers],
    }


def _finding_to_builtins(finding: Finding) -> dict[str, Any]:
    figures = {name: _significant(value) for name, value in finding.figures.items()}
    return {
        "rung": finding.rung,
        "verdict": finding.status.value,
        "reason": finding.reason.value,
        "sentence": str(finding.explanation),
        "figures": figures,
        "by_limit": finding.by_limit,
    }


def _answer_to_builtins(answer: AnswerLine, *, text: bool) -> dict[str, Any]:
    shown = {**asdict(answer), "not_kept": list(answer.not_kept), "kl": _significant(answer.kl)}
    if not text:
        shown |= {"text": "", "baseline_text": "", "not_kept": []}
    return shown


def _significant(value: float | None) -> float | None:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def from_builtins(shown: Mapping[str, Any] | None) -> tuple[SetFindings, ...]:
    """Return the sets that `to_builtins` showed."""
    return tuple(_set_from_builtins(each) for each in (shown["sets"] if shown else ()))


def _reason(shown: Mapping[str, Any]) -> tuple[Reason, Mapping[str, Any]]:
    """Return the reason of a finding; a report of the first schema has a sentence only."""
    if "said" in shown:
        return Reason.AS_WRITTEN, {"text": shown["said"]}
    return Reason(shown["reason"]), shown["figures"]


def _set_from_builtins(shown: Mapping[str, Any]) -> SetFindings:
    return SetFindings(
        prompts=shown["prompts"],
        rungs=tuple(
            Finding(each["rung"], QualityStatus(each["verdict"]), *_reason(each), by_limit=each["by_limit"])
            for each in shown["rungs"]
        ),
        answers=tuple(
            AnswerLine(**{**each, "not_kept": tuple(each["not_kept"])}) for each in shown["answers"]
        ),
        accepted=shown["accepted"],
    )
