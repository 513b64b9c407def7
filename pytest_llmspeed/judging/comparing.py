"""A record and its stored sessions → one comparison for each metric of each series."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pytest_llmspeed.baselines.sessions import GATED, Series, Session
from pytest_llmspeed.baselines.window import part_names, spans_a_day, values_of
from pytest_llmspeed.judging.case import Case
from pytest_llmspeed.metrics.budgets import Budget
from pytest_llmspeed.metrics.measurement import Measurement, busy_strata
from pytest_llmspeed.metrics.reasons import Reason
from pytest_llmspeed.metrics.sample import metric_of
from pytest_llmspeed.records.record import TestRecord
from pytest_llmspeed.regression.second_look import Looks, compare_twice, is_grey
from pytest_llmspeed.regression.session_test import DEFAULT_PRIOR, compare
from pytest_llmspeed.regression.verdicts import CONSEQUENCES, Comparison, Verdict

LENGTH_BOUND = ("e2e_ms", "throughput_tps", "requests_per_s")
"""Metrics that follow the length of the answer (of a load: not the tokens in its window)."""
LENGTH_SLACK = 1.10
CLEARED = (Verdict.PASSED, Verdict.FASTER, Verdict.NO_BASELINE)
PROMPT_SLACK = 1.20
"""A prompt of free or SDK calls that changed by more is named with the change of the times."""


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


def disturbed_comparisons(record: TestRecord, case: Case) -> Iterator[Comparison]:
    """Yield inconclusive comparisons, with their figures, for strata that were disturbed too much."""
    measurement = record.measurement
    for stratum, (disturbed, total) in busy_strata(measurement).items():
        reason = Reason.OTHER_PROGRAMS(
            disturbed=disturbed, total=total, culprits=[list(culprit) for culprit in measurement.culprits]
        )
        part = measurement.of_stratum(stratum)
        metrics = (*gated_metrics(case.budgets), "e2e_ms", *(["throughput_tps"] if part.loads else []))
        figures: dict[str, float | None] = {
            metric: now for metric in metrics if (now := part.figure(metric)) is not None
        }
        if any(metric in figures for metric in GATED) and "e2e_ms" not in gated_metrics(case.budgets):
            figures.pop("e2e_ms", None)
        for metric, now in (figures or dict([leading_figure(part)])).items():
            yield Comparison(
                Verdict.INCONCLUSIVE,
                reason,
                now=now,
                metric=metric,
                stratum=stratum,
                label=part.samples[0].label,
            )


def comparisons(record: TestRecord, case: Case) -> Iterator[Comparison]:
    """Yield the comparison of each metric of each series that was not disturbed too much."""
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
        yield Comparison(Verdict.INCONCLUSIVE, Reason.NO_TIME(), metric="e2e_ms")
    elif not any_value and any("overlapped" in sample.flags for sample in record.measurement.samples):
        metric, now = leading_figure(record.measurement)
        yield Comparison(Verdict.INCONCLUSIVE, Reason.ALL_AT_ONCE(), now=now, metric=metric)


def leading_figure(measurement: Measurement) -> tuple[str, float | None]:
    """Return the metric, with its figure, that stands for all in a row: TTFT, TPOT or else the whole time."""
    figures = ((metric, measurement.figure(metric)) for metric in GATED)
    known = ((metric, figure) for metric, figure in figures if figure is not None)
    return next(known, ("e2e_ms", measurement.figure("e2e_ms")))


def _prompt_moved(case: Case, stratum: str) -> tuple[float, float] | None:
    """Prompt tokens before and now, of calls whose prompts are not declared and changed by much."""
    series, before = case.now.series[stratum], case.window.usual(stratum, "prompt_tokens")
    now = series.prompt_tokens
    if series.free and before and now and _apart(before, now) > PROMPT_SLACK:
        return before, now
    return None


def _compare(case: Case, stratum: str, metric: str) -> Comparison:
    if case.window.differs:
        return Comparison(Verdict.INCOMPARABLE, Reason.BASELINE_DIFFERS(differs=list(case.window.differs)))
    series = case.now.series[stratum]
    before, now = case.window.usual(stratum, "output_tokens"), series.output_tokens
    length_bound = metric in LENGTH_BOUND and not (series.of_load and metric == "throughput_tps")
    if length_bound and before and now and _apart(before, now) > LENGTH_SLACK:
        return Comparison(Verdict.INCOMPARABLE, Reason.LENGTHS_DIFFER(before=before, now=now))
    if case.first is not None and stratum in case.first.series:
        return _with_first(case, case.first, stratum, metric)
    found = _against(case, case.window.values(stratum, metric), stratum, metric)
    anchor = case.window.anchor_values(stratum, metric)
    if anchor and CONSEQUENCES[found.verdict].stored and found.verdict is not Verdict.FASTER:
        creep = _against(case, anchor, stratum, metric)
        if creep.verdict is Verdict.SLOWER:
            since = case.window.anchor[0].started[:10]
            return replace(creep, verdict=Verdict.SUSPECT, reason=Reason.CREPT(since=since), crept=True)
    return found


def _with_first(case: Case, first: Session, stratum: str, metric: str) -> Comparison:
    """The verdict of two jobs together. What they do not show to be slower, this one alone may clear."""
    together = compare_twice(
        case.window.values_of_all(stratum, metric),
        first.series[stratum].values.get(metric, ()),
        case.now.series[stratum].values.get(metric, ()),
        larger_is_worse=metric_of(metric).better == "lower",
        looks=_looks(case, metric, on_another_day=spans_a_day([first, case.now])),
    )
    alone = _against(case, case.window.values(stratum, metric), stratum, metric)
    return alone if together.verdict is not Verdict.SLOWER and alone.verdict in CLEARED else together


def _looks(case: Case, metric: str, *, on_another_day: bool = False) -> Looks:
    return Looks(
        comparisons=case.comparisons,
        prior=case.priors.get(metric, DEFAULT_PRIOR),
        spans_a_day=case.window.spans_a_day,
        on_another_day=on_another_day,
    )


def grey_comparisons(record: TestRecord, case: Case) -> Iterator[Comparison]:
    """Yield the comparisons of a record that are worth a second look: no job decides them for certain."""
    for found in record.comparisons:
        series = case.now.series.get(found.stratum)
        if series is not None and is_grey(
            case.window.values_of_all(found.stratum, found.metric),
            series.values.get(found.metric, ()),
            larger_is_worse=metric_of(found.metric).better == "lower",
            looks=_looks(case, found.metric),
        ):
            yield found


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
