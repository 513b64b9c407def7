"""What was probed → what was found, and what that does to the test and to its verdict on speed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from pytest_llmspeed.messages import quality
from pytest_llmspeed.messages import speed as advice
from pytest_llmspeed.quality.answers import Probed
from pytest_llmspeed.quality.checks import findings_of
from pytest_llmspeed.quality.findings import SetFindings, Word
from pytest_llmspeed.records.record import TestRecord
from pytest_llmspeed.regression.verdicts import Comparison, Verdict, gravest, severity

VERDICTS = {
    Word.FAILED: Verdict.INVALID,
    Word.SUSPECT: Verdict.SUSPECT,
    Word.NO_BASELINE: Verdict.NO_BASELINE,
    Word.PASSED: Verdict.PASSED,
}


def judged(probed: Iterable[Probed], accept: str | None) -> tuple[SetFindings, ...]:
    """Return what was found of each set; a change since its baseline may be accepted with a reason."""
    found = (findings_of(each) for each in probed)
    return tuple(replace(s, accepted=accept) if accept and s.may_be_accepted else s for s in found)


def verdict(sets: Sequence[SetFindings]) -> Verdict | None:
    """Return what a test comes to that measured nothing but the quality of its answers; None of no sets."""
    return gravest([VERDICTS[found.word] for found in sets])


def failures(
    sets: Sequence[SetFindings],
    speed: Sequence[Comparison],
    changed: Sequence[str] = (),
    *,
    show_answers: bool,
) -> Iterator[str]:
    """Yield a sentence for each set that failed, led by the change of speed in the same run.

    `changed` names the facts that differ from those of the baseline.
    """
    moved = [found for found in speed if found.verdict in (Verdict.FASTER, Verdict.SLOWER)]
    lead = "".join(advice.speed_beside_answers(found) for found in sorted(moved, key=severity)[-1:])
    for found in sets:
        if found.word is Word.FAILED:
            yield lead + quality.failure(found, changed, show_answers=show_answers)


def coupled(record: TestRecord, *, strict: bool, require_baseline: bool, storing: bool) -> TestRecord:
    """Return the record with what is to be said of its answers beyond failures, which are told already."""
    hints, problems = list(record.advice), list(record.problems)
    for found in record.quality:
        hints += quality.skipped_aloud(found)
        if found.accepted is not None:
            hints.append(quality.accepted(found))
        elif found.may_be_accepted:
            hints.append(advice.accept(advice.WHY))
        elif found.word is Word.SUSPECT and strict:
            problems.append(advice.because_of("--llmspeed-strict", quality.suspect(found)))
        elif found.word is Word.SUSPECT:
            hints.append(quality.suspect(found))
        elif found.word is Word.NO_BASELINE and require_baseline:
            problems.append(advice.because_of("--llmspeed-require-baseline", quality.without_baseline(found)))
        elif found.word is Word.NO_BASELINE and not (storing or problems or _is_told(record)):
            hints.append(quality.without_baseline(found))
    accepted = next((found.accepted for found in record.quality if found.accepted is not None), None)
    return replace(
        record, problems=tuple(problems), advice=tuple(hints), accepted=record.accepted or accepted
    )


def _is_told(record: TestRecord) -> bool:
    """True if the speed lacks its baseline too, which is said once for both."""
    return any(found.verdict is Verdict.NO_BASELINE for found in record.comparisons)
