"""A record whose speed was in doubt, and its measurement beside another side → what that makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_llmspeed.metrics.reasons import Explanation, Reason
from pytest_llmspeed.records.record import TestRecord
from pytest_llmspeed.regression.verdicts import Comparison, Verdict, gravest, worst_of_each_metric

DOUBTFUL = (Verdict.SLOWER, Verdict.SUSPECT, Verdict.INCONCLUSIVE)
"""What stored baselines say of a test that is worth another measurement."""
SETTLED = (Verdict.PASSED, Verdict.FASTER)
ON_SPEED = (
    Reason.SLOWER,
    Reason.EARLIER_ATTEMPT_SLOWER,
    Reason.SUSPECT,
    Reason.UNDECIDED,
    Reason.MACHINE_BUSY,
    Reason.HOW_TO_ACCEPT,
)
"""What is said of a comparison with stored sessions, and falls with it."""


def is_doubtful(record: TestRecord) -> bool:
    """True if the speed of a test that ran to its end is to be measured once more."""
    return record.verdict in DOUBTFUL and record.accepted is None and not record.partial


def confirmed(record: TestRecord, found: Sequence[Comparison], side: str) -> TestRecord:
    """Return the record with the verdict of the measurement beside `side`, if that decided anything.

    Problems that have nothing to do with speed stay.
    """
    verdict = gravest([each.verdict for each in found])
    if verdict is Verdict.SLOWER:
        slower = [each for each in worst_of_each_metric(found) if each.verdict is Verdict.SLOWER]
        problems = [Reason.CONFIRMED_SLOWER(comparison=each, side=side) for each in slower]
        advice: list[Explanation] = []
    elif verdict in SETTLED:
        problems, advice = [], [Reason.NOT_CONFIRMED(before=str(record.verdict), side=side)]
    else:
        undecided = Reason.CONFIRMATION_UNDECIDED(side=side)
        return replace(record, advice=(*record.advice, undecided))
    return replace(
        record,
        verdict=verdict,
        comparisons=tuple(found),
        problems=(*problems, *filter(is_on_something_else, record.problems)),
        advice=(*advice, *filter(is_on_something_else, record.advice)),
    )


def is_on_something_else(explanation: Explanation) -> bool:
    """True of what is not said of a comparison with stored sessions."""
    because = explanation.figures.get("because")
    if explanation.reason is Reason.FAILS_BY_OPTION and isinstance(because, Explanation):
        return because.reason not in ON_SPEED
    return explanation.reason not in ON_SPEED
