"""Verdicts, budgets and flags → what fails the test, what is said of it, and what is accepted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pytest_llmspeed.baselines.window import OLD
from pytest_llmspeed.judging.case import Case, Policy
from pytest_llmspeed.metrics.measurement import busy_strata
from pytest_llmspeed.metrics.reasons import Explanation, Reason
from pytest_llmspeed.records.record import TestRecord
from pytest_llmspeed.regression.verdicts import (
    CONSEQUENCES,
    Comparison,
    Verdict,
    severity,
    worst_of_each_metric,
)

REQUIRE_BASELINE, STRICT = "--llmspeed-require-baseline", "--llmspeed-strict"
RETAKEN = ("measure", "rounds")
"""Calls that are made again where others disturbed them."""
WARM = 0.5
"""A prefix cache that gave this share of the prompt tokens decides the time to first token."""


def with_consequences(record: TestRecord, case: Case, policy: Policy) -> TestRecord:
    """Return a compared record with all its problems, its advice, and the reason it was accepted with.

    That an earlier attempt of the test was slower stands, unless it is accepted.
    """
    accepted = accepted_with(record, policy)
    problems = (*record.problems, *problems_of(record, case, policy, accepted))
    advice = advice_on(replace(record, problems=problems), case, policy, accepted)
    verdict = Verdict.SLOWER if case.earlier and accepted is None else record.verdict
    return replace(record, verdict=verdict, problems=problems, advice=tuple(advice), accepted=accepted)


def accepted_with(record: TestRecord, policy: Policy) -> str | None:
    """Return what a slowdown, a suspect or a shorter prompt is accepted with; None if it is not."""
    worst = _worst(record)
    if worst is None:
        return None
    moved = worst.verdict in (Verdict.SLOWER, Verdict.SUSPECT) or record.follows_a_shorter_prompt
    return (policy.accept or None) if moved else None


def problems_of(
    record: TestRecord, case: Case, policy: Policy, accepted: str | None
) -> Iterator[Explanation]:
    """Yield what fails the test for its comparisons: slowdowns, and what an option asks for."""
    worst = _worst(record)
    if accepted is None and worst is not None and worst.verdict is Verdict.SLOWER:
        yield from slowdowns(record, case)
    elif accepted is None:
        for option, found in _failing_options(record, case, policy).items():
            advice = _on_comparison(record, found, case, storing=False)
            yield Reason.FAILS_BY_OPTION(option=option, because=advice)
    if case.earlier and accepted is None:
        yield Reason.EARLIER_ATTEMPT_SLOWER(because=case.earlier)
    if policy.require_baseline and policy.comparing:
        for because in record.measurement.not_compared:
            yield Reason.FAILS_BY_OPTION(option=REQUIRE_BASELINE, because=because)


def advice_on(record: TestRecord, case: Case, policy: Policy, accepted: str | None) -> Iterator[Explanation]:
    """Yield the advice on a record whose problems are known: comparison, baseline, requests, budgets."""
    worst = _worst(record)
    if accepted is None and worst is not None:
        yield from _on_worst(record, worst, case, policy)
    age = case.window.age(case.now.started)
    if age is not None and age > OLD:
        yield Reason.BASELINE_IS_OLD(days=age.days)
    if not (policy.require_baseline and policy.comparing):
        yield from record.measurement.not_compared
    yield from _about_the_requests(record)
    for note in dict.fromkeys(note for load in record.measurement.loads for note in load.notes):
        yield Reason.AS_WRITTEN(text=note)
    for budget, found in zip(case.budgets, record.budgets, strict=True):
        if found.kept and found.close_call:
            yield Reason.CLOSE_CALL(check=found, unit_of=budget.metric.key)


def _on_worst(record: TestRecord, worst: Comparison, case: Case, policy: Policy) -> Iterator[Explanation]:
    """Yield what to do about the comparison that speaks for the test, unless a problem says it already."""
    if worst.verdict is Verdict.SLOWER:
        yield Reason.HOW_TO_ACCEPT()
        return
    is_told = worst in _failing_options(record, case, policy).values()
    is_told = is_told or bool(record.problems and worst.verdict is Verdict.NO_BASELINE)
    advice = _on_comparison(record, worst, case, storing=policy.storing)
    if advice is not None and not is_told:
        yield advice


def _worst(record: TestRecord) -> Comparison | None:
    """The comparison that speaks for the test: the gravest, of these the largest change for the worse."""
    fitting = [comparison for comparison in record.comparisons if comparison.verdict is record.verdict]
    return max(fitting, key=severity, default=None)


def slowdowns(record: TestRecord, case: Case) -> tuple[Explanation, ...]:
    """Return what became slower than its baseline, one for each metric that did."""
    changed = case.changed
    worst = worst_of_each_metric(record.comparisons)
    return tuple(
        Reason.SLOWER(comparison=each, changed=changed) for each in worst if each.verdict is Verdict.SLOWER
    )


def _failing_options(record: TestRecord, case: Case, policy: Policy) -> dict[str, Comparison]:
    """The options that fail a test with such comparisons, each with the worst of those that it fails."""
    required = [comparison for comparison in record.comparisons if _lacks_baseline(comparison, case)]
    undecided = [
        comparison for comparison in record.comparisons if CONSEQUENCES[comparison.verdict].fails_if_strict
    ]
    failing = {
        REQUIRE_BASELINE: required if policy.require_baseline else [],
        STRICT: undecided if policy.strict else [],
    }
    return {option: max(found, key=severity) for option, found in failing.items() if found}


def _lacks_baseline(comparison: Comparison, case: Case) -> bool:
    """True if nothing is stored to compare with, also where a busy machine left nothing to decide."""
    if CONSEQUENCES[comparison.verdict].fails_if_required:
        return True
    if comparison.stratum:
        return not any(comparison.stratum in session.series for session in case.window.sessions)
    return not case.window.sessions


def _on_comparison(
    record: TestRecord, comparison: Comparison, case: Case, *, storing: bool
) -> Explanation | None:
    """Return the advice on a comparison; a run that is `storing` needs none to store."""
    if comparison.verdict is Verdict.INCONCLUSIVE:
        return _undecided(record, comparison)
    if comparison.verdict is Verdict.SUSPECT:
        return Reason.SUSPECT(comparison=comparison)
    if comparison.verdict is Verdict.FASTER:
        return Reason.FASTER(comparison=comparison, storing=storing)
    if comparison.verdict is Verdict.NO_BASELINE and (case.elsewhere or not storing):
        return Reason.NO_BASELINE(place=case.place, elsewhere=list(case.elsewhere), storing=storing)
    return (
        _incomparable(comparison, case, storing=storing)
        if comparison.verdict is Verdict.INCOMPARABLE
        else None
    )


def _undecided(record: TestRecord, comparison: Comparison) -> Explanation:
    if comparison.stratum not in busy_strata(record.measurement):
        return Reason.UNDECIDED(comparison=comparison)
    samples = record.measurement.samples
    again = any(sample.stratum == comparison.stratum and sample.call in RETAKEN for sample in samples)
    return Reason.MACHINE_BUSY(comparison=comparison, again=again)


def _incomparable(comparison: Comparison, case: Case, *, storing: bool) -> Explanation:
    if case.window.differs:
        return Reason.INCOMPARABLE(differs=list(case.window.differs), storing=storing)
    return Reason.LENGTH_NOT_COMPARED(comparison=comparison)


def _about_the_requests(record: TestRecord) -> Iterator[Explanation]:
    """Yield remarks on requests that did other work than asked, or whose times are partly our own."""
    samples = record.measurement.samples
    if lagged := sum("client_lag" in sample.flags for sample in samples):
        yield Reason.CLIENT_LAG(lagged=lagged, total=len(samples))
    if cut := sum("short" in sample.flags for sample in samples):
        yield Reason.SHORT_ANSWERS(short=cut, total=len(samples))
    busy = busy_strata(record.measurement)
    if apart := [sample for sample in samples if not sample.quiet and sample.stratum not in busy]:
        again = any(sample.call in RETAKEN for sample in apart)
        culprits = [list(culprit) for culprit in record.measurement.culprits]
        yield Reason.DISTURBED(count=len(apart), total=len(samples), culprits=culprits, again=again)
    hit_rate, backend = record.measurement.cache_hit_rate, record.backend
    if hit_rate and backend and backend.prefix_cache == "cold":
        yield Reason.CACHE_NOT_COLD(hit_rate=hit_rate)
    elif backend and backend.prefix_cache == "unknown":
        warmest = max(record.measurement.cache_hit_rates.values(), default=0.0)
        if warmest >= WARM:
            yield Reason.CACHE_WARM_UNDECLARED(hit_rate=warmest)
