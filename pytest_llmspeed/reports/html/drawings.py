"""Records and their stored sessions → the figures of one test: what is drawn, and its caption."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

from markupsafe import Markup

from pytest_llmspeed.baselines.stored_tests import StoredTest
from pytest_llmspeed.baselines.timeline import Timeline, low_of, timelines
from pytest_llmspeed.messages.figures import percent, quantity
from pytest_llmspeed.messages.speed import name
from pytest_llmspeed.metrics.load_curve import Curve
from pytest_llmspeed.metrics.load_result import LATENCIES, LoadResult
from pytest_llmspeed.metrics.sample import Sample
from pytest_llmspeed.records.record import TestRecord
from pytest_llmspeed.regression.verdicts import Comparison, Verdict, worst_of_each_metric
from pytest_llmspeed.reports.html.figures import Bar, line, strips, waterfall
from pytest_llmspeed.reports.stored_side import StoredSide
from pytest_llmspeed.text.harmless import harmless

MOST_REQUESTS, MOST_TOKENS, MOST_SESSIONS = 10, 64, 10


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing and what it shows."""

    drawing: Markup
    caption: str


def figures_of(record: TestRecord, stored: StoredSide) -> Iterator[Figure]:
    """Yield distributions, the timeline of requests, sweeps, and the history of a test."""
    for found in worst_of_each_metric(record.comparisons) or _uncompared(stored):
        if (figure := _distribution(found, stored)) is not None:
            yield figure
    if bars := _bars(record):
        caption = "Requests: waiting for the first output (grey), then its tokens (blue)"
        yield Figure(waterfall(bars, partial(_axis, metric="ttft_ms")), caption)
    for curve in record.measurement.curves:
        yield from _curve(curve)
    yield from _history(stored)


def _uncompared(stored: StoredSide) -> list[Comparison]:
    """What would be compared of a test that was not."""
    if stored.now is None:
        return []
    return [
        Comparison(Verdict.NO_BASELINE, metric=metric, stratum=stratum, label=series.label)
        for stratum, series in stored.now.series.items()
        for metric in stored.now.gated
        if metric in series.values
    ]


def _distribution(found: Comparison, stored: StoredSide) -> Figure | None:
    """The requests of now beside those of the stored sessions."""
    sessions = [*stored.sessions[-MOST_SESSIONS:], *([stored.now] if stored.now else [])]
    of_each = [
        (s, s.series[found.stratum].values.get(found.metric, ()))
        for s in sessions
        if found.stratum in s.series
    ]
    known = [(session, values) for session, values in of_each if values]
    if not known or known[-1][0] is not stored.now:
        return None
    names = [*(session.started[:10] for session, _ in known[:-1]), "now"]
    label = partial(_axis, metric=found.metric)
    marks = [low_of(values, found.metric) for _, values in known]
    change = "" if found.delta is None else f", {percent(found.delta)}"
    return Figure(
        strips([list(values) for _, values in known], marks, names, label),
        harmless(f"{name(found)}: {found.verdict.value.replace('_', ' ')}{change}"),
    )


def _bars(record: TestRecord) -> list[Bar]:
    """The first requests, each from its own start; those of a load by the time when they were sent."""
    samples = [sample for sample in record.measurement.samples if sample.e2e_ms is not None or sample.error]
    chosen = samples[:MOST_REQUESTS]
    together = any(sample.call == "load" for sample in chosen)
    begun = min((sample.started_ms for sample in chosen), default=0.0) if together else 0.0
    return [_bar(sample, sample.started_ms - begun if together else 0.0) for sample in chosen]


def _bar(sample: Sample, sent: float) -> Bar:
    if sample.error is not None or sample.e2e_ms is None:
        return Bar(sent, None, sent + 1.0, failed=True)
    first = sample.ttfo_ms if sample.ttfo_ms is not None else sample.ttft_ms
    if first is None:
        return Bar(sent, None, sent + sample.e2e_ms)
    gaps = sample.itl_ms[:MOST_TOKENS]
    tokens = [sent + at for at in accumulate(gaps, initial=first)] if gaps else []
    return Bar(sent, sent + first, sent + sample.e2e_ms, tokens)


def _curve(curve: Curve) -> Iterator[Figure]:
    """Throughput and waiting over the loads of a sweep, the knee pointed out."""
    names = [f"{curve.by} {point.level:g}" for point in curve.points]
    knee = [number for number, point in enumerate(curve.points) if point is curve.knee]
    for title, metric in (("Requests per second", "requests_per_s"), ("Median TTFT", "ttft_ms")):
        column = [(number, _typical(point.load, metric)) for number, point in enumerate(curve.points)]
        known = [(number, value) for number, value in column if value is not None]
        if len(known) < 2:
            continue
        marked = [place for place, (number, _) in enumerate(known) if number in knee]
        caption = f"{title} by {curve.by}{', the knee dashed' if marked else ''}"
        drawing = line(
            [value for _, value in known],
            [names[number] for number, _ in known],
            partial(_axis, metric=metric),
            marked=marked,
            said=caption,
            from_zero=True,
        )
        yield Figure(drawing, caption)


def _typical(load: LoadResult, metric: str) -> float | None:
    """The figure of a whole load, or the median of its requests; None if neither is known."""
    if metric not in LATENCIES:
        return load.figure(metric)
    summary = load.summary(metric)
    return summary.p50 if summary else None


def _axis(value: float, *, metric: str) -> str:
    """A value beside an axis: the unit of all but times stands in the caption."""
    shown = quantity(value, metric)
    return shown if metric.endswith("_ms") else shown.partition(" ")[0]


def _history(stored: StoredSide) -> Iterator[Figure]:
    """The fastest 10% of each session over time, changes of level dashed."""
    if len(stored.history) < 3:
        return
    for timeline in timelines(StoredTest(tuple(stored.history))):
        yield _timeline(timeline)


def _timeline(timeline: Timeline) -> Figure:
    names = [point.session.started[:10] for point in timeline.points]
    marked = [change.place - 0.5 for change in timeline.changes]
    what = f"{timeline.metric} of {timeline.part}" if timeline.part else timeline.metric
    changes = "; ".join(
        f"{change.first_after.started[:10]}: {percent(change.after / change.before)}"
        for change in timeline.changes
    )
    caption = harmless(f"{what} over {len(names)} sessions{f', changes {changes}' if changes else ''}")
    values = [point.low for point in timeline.points]
    label = partial(_axis, metric=timeline.metric)
    return Figure(line(values, names, label, marked=marked, said=caption), caption)
