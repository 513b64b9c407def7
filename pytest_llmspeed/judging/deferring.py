"""A record of a first job → the same, its doubts left to a second one."""

from __future__ import annotations

from dataclasses import replace

from pytest_llmspeed.judging.case import Case
from pytest_llmspeed.judging.comparing import grey_comparisons
from pytest_llmspeed.judging.confirming import is_on_something_else
from pytest_llmspeed.metrics.reasons import Reason
from pytest_llmspeed.records.record import TestRecord
from pytest_llmspeed.regression.verdicts import Verdict, gravest, severity


def deferred(record: TestRecord, case: Case) -> TestRecord:
    """Return the record without what fails or explains its speed, if that is worth a second look."""
    grey = list(grey_comparisons(record, case))
    if not grey or record.verdict is Verdict.INVALID:
        return record
    waiting = Reason.SECOND_LOOK_WANTED()
    comparisons = tuple(
        replace(found, verdict=Verdict.SUSPECT, reason=waiting) if found in grey else found
        for found in record.comparisons
    )
    worst = max((found for found in comparisons if found.reason is waiting), key=severity)
    return replace(
        record,
        comparisons=comparisons,
        verdict=gravest([found.verdict for found in comparisons]),
        problems=tuple(filter(is_on_something_else, record.problems)),
        advice=(Reason.DEFERRED(comparison=worst), *filter(is_on_something_else, record.advice)),
    )


def is_deferred(record: TestRecord) -> bool:
    """True if a record waits for a second look."""
    return any(advice.reason is Reason.DEFERRED for advice in record.advice)
