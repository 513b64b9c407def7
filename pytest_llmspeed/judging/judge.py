"""A record and its baseline → the record with its verdicts. Sees data only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_llmspeed.baselines.sessions import (
    GATED,
    OLD,
    Series,
    Session,
    Window,
    part_names,
    spans_a_day,
    values_of,
)
from pytest_llmspeed.judging import quality as quality_judge
from pytest_llmspeed.messages import busy as busy_advice
from pytest_llmspeed.messages import speed
from pytest_llmspeed.metrics.budget_checks import check
from pytest_llmspeed.metrics.budgets import Budget, BudgetCheck
from pytest_llmspeed.metrics.measurement import busy_strata
from pytest_llmspeed.metrics.sample import metric_of
from pytest_llmspeed.quality.answers import Probed
from pytest_llmspeed.records.record import TestRecord
from pytest_llmspeed.regression.session_test import DEFAULT_PRIOR, Prior, compare
from pytest_llmspeed.regression.verdicts import (
    CONSEQUENCES,
    Comparison,
    Verdict,
    gravest,
    severity,
    worst_of_each_metric,
)
from pytest_llmspeed.system.environment import what_changed

LENGTH_BOUND = ("e2e_ms", "throughput_tps", "requests_per_s")
"""Metrics that follow the length of the answer (of a load: not the tokens in its window)."""
LENGTH_SLACK = 1.10
PROMPT_SLACK = 1.20
"""A prompt of free or SDK calls that changed by more is named with the change of the times."""
RETAKEN = ("measure", "rounds")
"""Calls that are made again where others disturbed them."""
WARM = 0.5
"""A prefix cache that gave this share of the prompt tokens decides the time to first token."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What the run asks of the judgement beyond the table of consequences.

    `show_answers` says whether the sentence that fails a test over its answers may quote one. A run
    that is `storing` stores what may be stored, and needs no advice to do so. `comparing` is False of a
    smoke run, whose few rounds are held against budgets only.
    """

    require_baseline: bool = False
    strict: bool = False
    accept: str | None = None
    show_answers: bool = True
    comparing: bool = True
    storing: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """What one test is judged by: its budgets, its stored sessions, and M, the gate's comparisons.

    `now` is the record as a session. `place` is the folder of this environment's baselines, `elsewhere`
    names other environments that have some. `unreadable` says that none of those here can be read.
    `earlier` is the sentence of an earlier attempt of this test that was found slower.
    `overridden_in` names the file of an `llm_client` that is not ours. `priors` are those learned
    from the other stored tests, by metric. `quality` is what was asked of its answers.
    """

    budgets: Sequence[Budget]
    window: Window
    now: Session
    comparisons: int = 1
    place: str = ""
    elsewhere: tuple[str, ...] = ()
    unreadable: str | None = None
    earlier: str | None = None
    overridden_in: str | None = None
    priors: Mapping[str, Prior] = field(default_factory=dict)
    quality: Sequence[Probed] = ()


def judge(record: TestRecord, case: Case, policy: Policy) -> TestRecord:
    """Return the record with budgets checked, comparisons made, answers judged, and what follows of all."""
    record = replace(record, quality=quality_judge.judged(case.quality, policy.accept))
    if not (record.measurement.samples or record.measurement.loads):
        return _with_answers(_without_requests(record, case, policy), policy)
    checks = tuple(check(budget, record.measurement) for budget in case.budgets)
    invalid = tuple(_invalid(record, case))
    found = () if invalid or not policy.comparing else (*_busy(record, case), *_comparisons(record, case))
    worse = tuple(
        quality_judge.failures(record.quality, found, _changed(case), show_answers=policy.show_answers)
    )
    if worse:
        found = tuple(replace(each, verdict=Verdict.INVALID, reason=speed.worse_answers()) for each in found)
    verdict = Verdict.INVALID if invalid or worse else gravest([each.verdict for each in found])
    judged = replace(record, budgets=checks, comparisons=found, verdict=verdict)
    gate_off = () if case.unreadable is None or policy.storing else (case.unreadable,)
    problems = (*_missed(checks, case.budgets), *invalid, *worse, *gate_off)
    return _with_answers(_with_consequences(judged, problems, case, policy), policy)


def _with_answers(record: TestRecord, policy: Policy) -> TestRecord:
    return quality_judge.coupled(
        record,
        strict=policy.strict,
        require_baseline=policy.require_baseline,
        storing=policy.storing,
    )


def _without_requests(record: TestRecord, case: Case, policy: Policy) -> TestRecord:
    """A test that measured no speed: its verdict is that of its answers, if it asked for any."""
    asked = any(not budget.is_default for budget in case.budgets)
    missing = (speed.nothing_measured(case.overridden_in),) if asked else ()
    worse = tuple(
        quality_judge.failures(record.quality, (), _changed(case), show_answers=policy.show_answers)
    )
    return replace(record, problems=missing + worse, verdict=quality_judge.verdict(record.quality))


def gated_metrics(budgets: Sequence[Budget]) -> tuple[str, ...]:
    """Return the metrics that are compared: TTFT and TPOT, and what a budget on a median names."""
    named = (budget.metric.key for budget in budgets if budget.gates)
    return tuple(dict.fromkeys((*GATED, *named)))


def compared_metrics(series: Series, budgets: Sequence[Budget]) -> tuple[str, ...]:
    """Return the metrics that a series is compared in: of a load its throughput too.

    Answers that are not streamed have one time only, from end to end: then that is compared.
    """
    metrics = gated_metrics(budgets)
    if "e2e_ms" in series.values and not any(metric in series.values for metric in GATED):
        metrics = (*metrics, "e2e_ms")
    return tuple(dict.fromkeys((*metrics, "throughput_tps"))) if series.of_load else metrics


def _invalid(record: TestRecord, case: Case) -> Iterator[str]:
    """Sentences on why the speed of this run says nothing."""
    counted = record.measurement.counted
    allowed = {budget.label for budget in case.budgets if budget.metric.name == "error_rate"}
    failed = [s for s in counted if not s.ok and not allowed & {None, s.label}]
    if failed:
        yield speed.failed_requests(len(failed), len(counted), failed[-1].error)
    for load in record.measurement.loads:
        yield from (speed.of_load(load.label, reason) for reason in load.invalid if load.counted)


def _prompt_moved(case: Case, stratum: str) -> tuple[float, float] | None:
    """Prompt tokens before and now, of calls whose prompts are not declared and changed by much."""
    series, before = case.now.series[stratum], case.window.usual(stratum, "prompt_tokens")
    now = series.prompt_tokens
    if series.free and before and now and _apart(before, now) > PROMPT_SLACK:
        return before, now
    return None


def _busy(record: TestRecord, case: Case) -> Iterator[Comparison]:
    """Yield inconclusive comparisons, with their figures, for strata that were disturbed too much."""
    measurement = record.measurement
    for stratum, (disturbed, total) in busy_strata(measurement).items():
        reason = busy_advice.machine_busy(disturbed, total, measurement.culprits)
        part = measurement.of_stratum(stratum)
        metrics = (*gated_metrics(case.budgets), "e2e_ms", *(["throughput_tps"] if part.loads else []))
        figures: dict[str, float | None] = {
            metric: now for metric in metrics if (now := part.figure(metric)) is not None
        }
        if any(metric in figures for metric in GATED) and "e2e_ms" not in gated_metrics(case.budgets):
            figures.pop("e2e_ms", None)
        for metric, now in (figures or dict.fromkeys(GATED[:1])).items():
            yield Comparison(
                Verdict.INCONCLUSIVE,
                reason,
                now=now,
                metric=metric,
                stratum=stratum,
                label=part.samples[0].label,
            )


def _comparisons(record: TestRecord, case: Case) -> Iterator[Comparison]:
    busy = busy_strata(record.measurement)
    any_value = bool(busy)
    for stratum, series in case.now.series.items():
        if stratum in busy:
            continue
        prompt_tokens = _prompt_moved(case, stratum)
        for metric in compared_metrics(series, case.budgets):
            if metric in series.values or case.window.values(stratum, metric):
                any_value = True
                found = _with_figures(_compare(case, stratum, metric), record, case, stratum, metric)
                yield replace(found, prompt_tokens=prompt_tokens)
    if not any_value and case.now.series:
        yield Comparison(Verdict.INCONCLUSIVE, speed.no_time(), metric="e2e_ms")
    elif not any_value and any("overlapped" in sample.flags for sample in record.measurement.samples):
        yield Comparison(Verdict.INCONCLUSIVE, speed.all_at_once(), metric="ttft_ms")


def _compare(case: Case, stratum: str, metric: str) -> Comparison:
    if case.window.differs:
        return Comparison(Verdict.INCOMPARABLE, "; ".join(case.window.differs))
    series = case.now.series[stratum]
    before, now = case.window.usual(stratum, "output_tokens"), series.output_tokens
    length_bound = metric in LENGTH_BOUND and not (series.of_load and metric == "throughput_tps")
    if length_bound and before and now and _apart(before, now) > LENGTH_SLACK:
        return Comparison(Verdict.INCOMPARABLE, speed.length(before, now))
    found = _against(case, case.window.values(stratum, metric), stratum, metric)
    anchor = case.window.anchor_values(stratum, metric)
    if anchor and CONSEQUENCES[found.verdict].stored and found.verdict is not Verdict.FASTER:
        creep = _against(case, anchor, stratum, metric)
        if creep.verdict is Verdict.SLOWER:
            since = case.window.anchor[0].started[:10]
            return replace(creep, verdict=Verdict.SUSPECT, reason=speed.crept(since), crept=True)
    return found


def _against(case: Case, baseline: Sequence[Sequence[float]], stratum: str, metric: str) -> Comparison:
    pending = case.window.pending_before(case.now)
    return compare(
        baseline,
        case.now.series[stratum].values.get(metric, ()),
        larger_is_worse=metric_of(metric).better == "lower",
        comparisons=case.comparisons,
        spans_a_day=case.window.spans_a_day,
        prior=case.priors.get(metric, DEFAULT_PRIOR),
        pending=values_of(pending, stratum, metric),
        pending_span_a_day=bool(pending) and spans_a_day([*pending, case.now]),
    )


def _with_figures(found: Comparison, record: TestRecord, case: Case, stratum: str, metric: str) -> Comparison:
    """The comparison with the figures that every report shows, and where else it was made."""
    series = case.now.series[stratum]
    now = record.measurement.of_stratum(stratum).figure(metric)
    found = replace(
        found,
        metric=metric,
        stratum=stratum,
        label=series.label,
        part=part_names(case.now.series)[stratum],
        now=found.now if now is None else now,
    )
    if series.of_load:
        baseline = case.window.figure(stratum, metric)
        return replace(found, baseline=baseline, at=found.at and f"{found.at} of the load's parts")
    if metric == "itl_ms":  # all gaps together are not stored
        return replace(found, baseline=None, at=found.at and f"{found.at} of the requests' median gaps")
    return found


def _apart(one: float, other: float) -> float:
    return max(one, other) / min(one, other)


def _missed(checks: Sequence[BudgetCheck], budgets: Sequence[Budget]) -> Iterator[str]:
    for found, budget in zip(checks, budgets, strict=True):
        if found.kept is False:
            yield speed.budget_missed(found, budget.metric.key)


def _with_consequences(
    record: TestRecord, problems: tuple[str, ...], case: Case, policy: Policy
) -> TestRecord:
    worst = _worst(record)
    hints: list[str] = []
    accepted = None
    if worst is not None and worst.verdict is Verdict.SLOWER:
        if policy.accept:
            accepted = policy.accept
        else:
            problems += slowdowns(record, case)
            hints.append(speed.accept(speed.WHY))
    elif worst is not None and policy.accept and _may_be_accepted(record):
        accepted = policy.accept
    elif worst is not None:
        failing = dict(_failing_options(record, case, policy))
        problems += tuple(
            speed.because_of(option, _advice(record, found, case, storing=False))
            for option, found in failing.items()
        )
        sentence = _advice(record, worst, case, storing=policy.storing)
        untold = worst not in failing.values() and not (problems and worst.verdict is Verdict.NO_BASELINE)
        if sentence and untold:
            hints.append(sentence)
    if case.earlier and accepted is None:
        problems += (f"an earlier attempt of this test was slower, and that result stands: {case.earlier}",)
        record = replace(record, verdict=Verdict.SLOWER)
    age = case.window.age(case.now.started)
    if age is not None and age > OLD:
        hints.append(speed.aged(age.days))
    if policy.require_baseline and policy.comparing:
        problems += tuple(
            speed.because_of("--llmspeed-require-baseline", said) for said in record.measurement.not_compared
        )
    else:
        hints += record.measurement.not_compared
    hints += _about_the_requests(record)
    hints += dict.fromkeys(note for load in record.measurement.loads for note in load.notes)
    hints += [_close_call(found, case.budgets) for found in record.budgets if found.kept and found.close_call]
    return replace(record, problems=problems, advice=tuple(hints), accepted=accepted)


def _may_be_accepted(record: TestRecord) -> bool:
    """True if a test that does not fail has moved so that only a reason makes it the norm."""
    return record.verdict is Verdict.SUSPECT or record.follows_a_shorter_prompt


def _about_the_requests(record: TestRecord) -> Iterator[str]:
    """Sentences on requests that were not the work asked for, or whose times are partly our own."""
    samples = record.measurement.samples
    if lagged := sum("client_lag" in sample.flags for sample in samples):
        yield busy_advice.client_lag(lagged, len(samples))
    if cut := sum("short" in sample.flags for sample in samples):
        yield speed.short(cut, len(samples))
    busy = busy_strata(record.measurement)
    if apart := [sample for sample in samples if not sample.quiet and sample.stratum not in busy]:
        again = any(sample.call in RETAKEN for sample in apart)
        yield busy_advice.disturbed(len(apart), len(samples), record.measurement.culprits, again=again)
    hit_rate, backend = record.measurement.cache_hit_rate, record.backend
    if hit_rate and backend and backend.prefix_cache == "cold":
        yield busy_advice.not_cold(hit_rate)
    elif backend and backend.prefix_cache == "unknown":
        warmest = max(record.measurement.cache_hit_rates.values(), default=0.0)
        if warmest >= WARM:
            yield busy_advice.warm_untold(warmest)


def _worst(record: TestRecord) -> Comparison | None:
    """The comparison that speaks for the test: the gravest, of these the largest change for the worse."""
    fitting = [found for found in record.comparisons if found.verdict is record.verdict]
    return max(fitting, key=severity, default=None)


def slowdowns(record: TestRecord, case: Case) -> tuple[str, ...]:
    """Return the sentences on what became slower than its baseline, one for each metric that did."""
    changed = _changed(case)
    worst = worst_of_each_metric(record.comparisons)
    return tuple(speed.slower(each, changed) for each in worst if each.verdict is Verdict.SLOWER)


def _changed(case: Case) -> list[str]:
    """What is recorded to have changed since the baseline; empty without one."""
    return what_changed(case.window.facts, case.now.facts) if case.window.facts else []


def _failing_options(record: TestRecord, case: Case, policy: Policy) -> Iterator[tuple[str, Comparison]]:
    """The options that fail a test with such comparisons, each with the worst of those that it fails."""
    required = [c for c in record.comparisons if _lacks_baseline(c, case)]
    if policy.require_baseline and required:
        yield "--llmspeed-require-baseline", max(required, key=severity)
    undecided = [c for c in record.comparisons if CONSEQUENCES[c.verdict].fails_if_strict]
    if policy.strict and undecided:
        yield "--llmspeed-strict", max(undecided, key=severity)


def _lacks_baseline(found: Comparison, case: Case) -> bool:
    """True if nothing is stored to compare with, also where a busy machine left nothing to decide."""
    if CONSEQUENCES[found.verdict].fails_if_required:
        return True
    if found.stratum:
        return not any(found.stratum in session.series for session in case.window.sessions)
    return not case.window.sessions


def _advice(record: TestRecord, found: Comparison, case: Case, *, storing: bool) -> str:
    """What is to be said of a comparison; a run that is `storing` is not told to store."""
    is_busy = found.stratum in busy_strata(record.measurement)
    again = any(s.stratum == found.stratum and s.call in RETAKEN for s in record.measurement.samples)
    makers: Mapping[Verdict, Any] = {
        Verdict.SUSPECT: lambda: speed.suspect(found),
        Verdict.INCONCLUSIVE: lambda: (
            busy_advice.busy(found, again=again) if is_busy else speed.inconclusive(found)
        ),
        Verdict.FASTER: lambda: speed.faster(found, storing=storing),
        Verdict.NO_BASELINE: lambda: speed.no_baseline(case.place, case.elsewhere, storing=storing),
        Verdict.INCOMPARABLE: lambda: _incomparable(found, case, storing=storing),
    }
    maker = makers.get(found.verdict)
    return maker() if maker else ""


def _incomparable(found: Comparison, case: Case, *, storing: bool) -> str:
    differs = case.window.differs
    return speed.incomparable(differs, storing=storing) if differs else speed.length_moved(found)


def _close_call(found: BudgetCheck, budgets: Sequence[Budget]) -> str:
    budget = next(b for b in budgets if (b.name, b.label) == (found.name, found.label))
    return speed.close_call(found, budget.metric.key)
