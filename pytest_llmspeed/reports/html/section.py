"""One test on the page: its sentences, figures and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pytest_llmspeed.messages.figures import counted, quantity
from pytest_llmspeed.metrics.load_result import LATENCIES, SHOWN_FIGURES, LoadResult
from pytest_llmspeed.metrics.reasons import as_sentences
from pytest_llmspeed.quality.findings import SetFindings
from pytest_llmspeed.records.record import TestRecord
from pytest_llmspeed.reports.curves import curves_of
from pytest_llmspeed.reports.html.drawings import Figure, figures_of
from pytest_llmspeed.reports.html.verdict_table import ShownVerdict, finding_of
from pytest_llmspeed.reports.rows import DASH
from pytest_llmspeed.reports.stored_side import StoredSide
from pytest_llmspeed.system.environment import what_changed
from pytest_llmspeed.text.harmless import harmless

LONGEST_SENTENCE = 2000
QUANTILES = ("p50", "p90", "p95", "p99")
NOTHING_MEASURED = "Nothing was measured: the test ended before its first request, or sent none."


@dataclass(frozen=True, slots=True)
class Table:
    """A table with what is said below it."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    @classmethod
    def of(
        cls, title: str, headers: Sequence[str], rows: Iterable[Sequence[str]], notes: Iterable[str] = ()
    ) -> Table:
        """Return a table whose texts are harmless."""
        cells = [[harmless(cell) for cell in row] for row in rows]
        return cls(harmless(title), headers, cells, [harmless(note) for note in notes])


@dataclass(frozen=True, slots=True)
class Section:
    """All that is shown of one test."""

    anchor: str
    nodeid: str
    finding: ShownVerdict
    is_open: bool
    engine: str
    sentences: Sequence[str]
    changed: Sequence[str]
    figures: Sequence[Figure]
    tables: Sequence[Table]


def section(record: TestRecord, anchor: str, stored: StoredSide) -> Section:
    """Return what is shown of a test; it is open if the test fails."""
    before = stored.sessions[-1].facts if stored.sessions else {}
    changed = what_changed(before, stored.now.facts) if before and stored.now else []
    return Section(
        anchor=anchor,
        nodeid=harmless(record.nodeid),
        finding=finding_of(record),
        is_open=bool(record.problems),
        engine=_engine(record),
        sentences=[harmless(sentence, LONGEST_SENTENCE) for sentence in _sentences(record)],
        changed=[harmless(change) for change in changed],
        figures=[*figures_of(record, stored)],
        tables=[*_tables(record)],
    )


def _engine(record: TestRecord) -> str:
    backend = record.backend
    parts = [backend.name, backend.model, backend.precision] if backend else []
    return harmless(", ".join(dict.fromkeys(str(part) for part in [*parts, record.environment] if part)))


def _sentences(record: TestRecord) -> Iterator[str]:
    yield from as_sentences(record.problems)
    yield from as_sentences(record.advice)
    if not record.measurement.samples and not record.problems:
        yield NOTHING_MEASURED


def _tables(record: TestRecord) -> Iterator[Table]:
    """The quality of the answers beside their speed, then sweeps and other loads."""
    yield from map(_quality, record.quality)
    for curve in curves_of([record]):
        title = f"Sweep by {curve.headers[0]} (times in ms)"
        yield Table.of(title, curve.headers, curve.rows, curve.findings)
    in_curves = {point.load.stratum for curve in record.measurement.curves for point in curve.points}
    yield from (_load(load) for load in record.measurement.loads if load.stratum not in in_curves)


def _quality(findings: SetFindings) -> Table:
    rows = [
        (finding.rung, finding.status.value.replace("_", " "), str(finding.explanation))
        for finding in findings.rungs
    ]
    accepted = [f"accepted: {findings.accepted}"] if findings.accepted else []
    return Table.of(f"Quality of {findings.prompts}", ("check", "status", "finding"), rows, accepted)


def _load(load: LoadResult) -> Table:
    asked = " ".join(f"{name}={value}" for name, value in load.asked.items() if value is not None)
    summaries = [(metric, load.summary(metric)) for metric in (*LATENCIES, "queue_ms")]
    rows = [
        (metric, *(_shown(getattr(summary, quantile), metric) for quantile in QUANTILES))
        for metric, summary in summaries
        if summary
    ]
    label = f" {load.label!r}" if load.label else ""
    return Table.of(f"Load{label} {asked}", ("metric", *QUANTILES), rows, _load_notes(load))


def _load_notes(load: LoadResult) -> Iterator[str]:
    figures = [(name, load.figure(name)) for name in SHOWN_FIGURES]
    shown = [f"{name} {quantity(value, name)}" for name, value in figures if value is not None]
    sent = f"{counted(len(load.samples), 'request')}, {len(load.failures)} failed"
    yield ", ".join([sent, f"at most {load.peak_concurrency} at once", *shown])
    yield from load.notes
    yield from (f"invalid: {reason}" for reason in load.invalid)


def _shown(value: float | None, metric: str) -> str:
    return DASH if value is None else quantity(value, metric)
