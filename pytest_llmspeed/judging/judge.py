"""A record and its baseline → the record with its verdicts. Sees data only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pytest_llmspeed.judging import quality
from pytest_llmspeed.judging.case import Case, Policy
from pytest_llmspeed.judging.comparing import comparisons, disturbed_comparisons
from pytest_llmspeed.judging.consequences import with_consequences
from pytest_llmspeed.metrics.budget_checks import check
from pytest_llmspeed.metrics.budgets import Budget, BudgetCheck
from pytest_llmspeed.metrics.reasons import Explanation, Reason
from pytest_llmspeed.records.record import TestRecord
from pytest_llmspeed.regression.verdicts import Verdict, gravest


def judge(record: TestRecord, case: Case, policy: Policy) -> TestRecord:
    """Return the record with budgets checked, comparisons made, answers judged, and what follows of all."""
    record = replace(record, quality=quality.judged(case.quality, policy.accept))
    if record.measurement.samples or record.measurement.loads:
        judged = with_consequences(_compared(record, case, policy), case, policy)
    else:
        judged = _without_requests(record, case, policy)
    return quality.coupled(
        judged, strict=policy.strict, require_baseline=policy.require_baseline, storing=policy.storing
    )


def _compared(record: TestRecord, case: Case, policy: Policy) -> TestRecord:
    """The record with its comparisons and verdict, and the problems that need no comparison."""
    checks = tuple(check(budget, record.measurement) for budget in case.budgets)
    invalid = tuple(_invalid(record, case))
    compares = policy.comparing and not invalid
    found = (*disturbed_comparisons(record, case), *comparisons(record, case)) if compares else ()
    worse = tuple(quality.failures(record.quality, found, case.changed, show_answers=policy.show_answers))
    if worse:
        because = Reason.ANSWERS_ARE_WORSE()
        found = tuple(replace(each, verdict=Verdict.INVALID, reason=because) for each in found)
    verdict = Verdict.INVALID if invalid or worse else gravest([each.verdict for each in found])
    gate_off = () if case.unreadable is None or policy.storing else (case.unreadable,)
    problems = (*_missed(checks, case.budgets), *invalid, *worse, *gate_off)
    return replace(record, budgets=checks, comparisons=found, verdict=verdict, problems=problems)


def _without_requests(record: TestRecord, case: Case, policy: Policy) -> TestRecord:
    """A test that measured no speed: its verdict is that of its answers, if it asked for any."""
    asked = any(not budget.is_default for budget in case.budgets)
    missing = (Reason.NOTHING_MEASURED(overridden_in=case.overridden_in),) if asked else ()
    worse = tuple(quality.failures(record.quality, (), case.changed, show_answers=policy.show_answers))
    return replace(record, problems=missing + worse, verdict=quality.verdict(record.quality))


def _invalid(record: TestRecord, case: Case) -> Iterator[Explanation]:
    """Yield why the speed of this run says nothing."""
    counted = record.measurement.counted
    allowed = {budget.label for budget in case.budgets if budget.metric.name == "error_rate"}
    failed = [s for s in counted if not s.ok and not allowed & {None, s.label}]
    if failed:
        yield Reason.REQUESTS_FAILED(failed=len(failed), total=len(counted), error=failed[-1].error)
    for load in record.measurement.loads:
        for because in load.invalid if load.counted else ():
            yield Reason.LOAD_INVALID(label=load.label, because=because)


def _missed(checks: Sequence[BudgetCheck], budgets: Sequence[Budget]) -> Iterator[Explanation]:
    for found, budget in zip(checks, budgets, strict=True):
        if found.kept is False:
            yield Reason.BUDGET_MISSED(check=found, unit_of=budget.metric.key)
