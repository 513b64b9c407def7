"""What was probed → what was found, and what that does to the test and to its verdict on speed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from pytest_llmspeed.metrics.reasons import Explanation, Reason
from pytest_llmspeed.quality.answers import Probed
from pytest_llmspeed.quality.checks import findings_of
from pytest_llmspeed.quality.findings import DIVERGENCE, LOGPROBS, AnswerLine, QualityStatus, SetFindings
from pytest_llmspeed.records.record import TestRecord
from pytest_llmspeed.regression.verdicts import Comparison, Verdict, gravest, severity

VERDICTS = {
    QualityStatus.FAILED: Verdict.INVALID,
    QualityStatus.SUSPECT: Verdict.SUSPECT,
    QualityStatus.NO_BASELINE: Verdict.NO_BASELINE,
    QualityStatus.PASSED: Verdict.PASSED,
}


def judged(probed: Iterable[Probed], accept: str | None) -> tuple[SetFindings, ...]:
    """Return what was found of each set; a change since its baseline may be accepted with a reason."""
    found = (findings_of(each) for each in probed)
    return tuple(replace(s, accepted=accept) if accept and s.may_be_accepted else s for s in found)


def verdict(sets: Sequence[SetFindings]) -> Verdict | None:
    """Return what a test comes to that measured nothing but the quality of its answers; None of no sets."""
    return gravest([VERDICTS[found.status] for found in sets])


def failures(
    sets: Sequence[SetFindings],
    speed: Sequence[Comparison],
    changed: Sequence[str] = (),
    *,
    show_answers: bool,
) -> Iterator[Explanation]:
    """Yield an explanation for each set that failed, with the change of speed in the same run.

    `changed` names the facts that differ from those of the baseline.
    """
    moved = [found for found in speed if found.verdict in (Verdict.FASTER, Verdict.SLOWER)]
    for found in sets:
        if found.status is QualityStatus.FAILED:
            divergence = next((f.figures for f in found.rungs if f.rung == DIVERGENCE), {})
            yield Reason.WORSE_ANSWERS(
                prompts=found.prompts,
                findings=[finding.explanation for finding in found.failures],
                answers=divergence.get("answers"),
                changed_answers=divergence.get("changed"),
                worst=_worst_answer(found, show_answers=show_answers),
                changed=list(changed),
                comparison=max(moved, key=severity, default=None),
            )


def _worst_answer(findings: SetFindings, *, show_answers: bool) -> dict[str, Any] | None:
    """The first broken answer, else the one whose score fell furthest, else one that parted for real."""
    worst = next(iter(findings.broken or _fallen(findings)), None)
    if worst is None:
        return None
    shown: dict[str, Any] = {"prompt": worst.prompt}
    if show_answers:
        not_kept = list(worst.not_kept[:1])
        shown |= {"text": worst.text, "baseline_text": worst.baseline_text, "not_kept": not_kept}
    return shown


def _fallen(findings: SetFindings) -> list[AnswerLine]:
    """The answers whose score fell, the furthest first; without scores those that parted for real."""
    pairs = [
        (answer.score - answer.baseline_score, answer)
        for answer in findings.answers
        if answer.score is not None and answer.baseline_score is not None
    ]
    fell = [answer for change, answer in sorted(pairs, key=lambda pair: pair[0]) if change < 0]
    return fell or [answer for answer in findings.answers if answer.near_tie is False]


def coupled(record: TestRecord, *, strict: bool, require_baseline: bool, storing: bool) -> TestRecord:
    """Return the record with what is to be said of its answers beyond failures, which are told already."""
    hints, problems = list(record.advice), list(record.problems)
    for found in record.quality:
        hints += _skipped(found)
        without_baseline = Reason.ANSWERS_WITHOUT_BASELINE(prompts=found.prompts)
        if found.accepted is not None:
            findings = [finding.explanation for finding in found.failures]
            hints.append(
                Reason.ANSWERS_ACCEPTED(prompts=found.prompts, accepted=found.accepted, findings=findings)
            )
        elif found.may_be_accepted:
            hints.append(Reason.HOW_TO_ACCEPT())
        elif found.status is QualityStatus.SUSPECT and strict:
            problems.append(Reason.FAILS_BY_OPTION(option="--llmspeed-strict", because=_suspect(found)))
        elif found.status is QualityStatus.SUSPECT:
            hints.append(_suspect(found))
        elif found.status is QualityStatus.NO_BASELINE and require_baseline:
            option = "--llmspeed-require-baseline"
            problems.append(Reason.FAILS_BY_OPTION(option=option, because=without_baseline))
        elif found.status is QualityStatus.NO_BASELINE and not (storing or problems or _is_told(record)):
            hints.append(without_baseline)
    accepted = next((found.accepted for found in record.quality if found.accepted is not None), None)
    return replace(
        record, problems=tuple(problems), advice=tuple(hints), accepted=record.accepted or accepted
    )


def _suspect(found: SetFindings) -> Explanation:
    findings = [finding.explanation for finding in found.rungs if finding.status is QualityStatus.SUSPECT]
    return Reason.ANSWERS_SUSPECT(prompts=found.prompts, findings=findings)


def _skipped(findings: SetFindings) -> Iterator[Explanation]:
    """Yield what could not be checked for want of what the engine or the store gives."""
    for finding in findings.rungs:
        if finding.status is QualityStatus.SKIPPED and finding.rung == LOGPROBS:
            yield Reason.CHECK_SKIPPED(
                prompts=findings.prompts,
                number=finding.number,
                rung=finding.rung,
                because=finding.explanation,
            )


def _is_told(record: TestRecord) -> bool:
    """True if the speed lacks its baseline too, which is said once for both."""
    return any(comparison.verdict is Verdict.NO_BASELINE for comparison in record.comparisons)
