"""Records and their stored sessions → the HTML report. Drawn here, decided elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.resources import files
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from pytest_llmspeed import __version__
from pytest_llmspeed.baselines.stored_tests import StoredTest
from pytest_llmspeed.baselines.timeline import Timeline, low_of, timelines
from pytest_llmspeed.messages.figures import percent, quantity
from pytest_llmspeed.messages.speed import name
from pytest_llmspeed.metrics.load_curve import Curve
from pytest_llmspeed.metrics.reasons import as_sentences
from pytest_llmspeed.metrics.sample import Sample
from pytest_llmspeed.records.record import RunRecord, TestRecord
from pytest_llmspeed.regression.verdicts import Comparison, Verdict, worst_of_each_metric
from pytest_llmspeed.reports.curves import curves_of
from pytest_llmspeed.reports.html.figures import Bar, line, strips, waterfall
from pytest_llmspeed.reports.rows import HEADERS, counts, of_suite, rows
from pytest_llmspeed.reports.stored_side import StoredSide
from pytest_llmspeed.system.environment import what_changed
from pytest_llmspeed.text.harmless import encodable, harmless, harmless_lines

if TYPE_CHECKING:
    from jinja2 import Template

MOST_REQUESTS, MOST_TOKENS, MOST_SESSIONS = 10, 64, 10
LONGEST_SENTENCE = 2000
ICONS = {
    "invalid": "⊘",
    "slower": "▼",
    "suspect": "?",
    "inconclusive": "~",
    "incomparable": "≠",
    "no_baseline": "–",
    "faster": "▲",
    "passed": "✓",
}
"""A sign for each verdict, so that no colour is needed to tell them apart."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing and what it shows."""

    drawing: Markup
    caption: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table of one test: of a sweep."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """A row of the table of verdicts, with the place of its test."""

    anchor: str
    kind: str
    icon: str
    cells: Sequence[str]


@dataclass(frozen=True, slots=True)
class Chip:
    """How many tests have a verdict."""

    kind: str
    icon: str
    count: int
    word: str


@dataclass(frozen=True, slots=True)
class ShownTest:
    """All that is shown of one test."""

    anchor: str
    nodeid: str
    kind: str
    icon: str
    word: str
    is_open: bool
    engine: str
    sentences: Sequence[str]
    changed: Sequence[str]
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """What the template draws."""

    title: str
    subtitle: str
    chips: Sequence[Chip]
    sentences: Sequence[str]
    rows: Sequence[VerdictRow]
    tests: Sequence[ShownTest]
    facts: Sequence[tuple[str, str]]
    headers: Sequence[str] = HEADERS
    version: str = field(default=__version__)


def html_report(
    run: RunRecord, stored: Mapping[str, StoredSide] | None = None, problems: Sequence[str] = ()
) -> str:
    """Return the report of a run as one HTML file; `stored` has the baselines of its tests, by node id."""
    return encodable(_template().render(page=_page(run, stored or {}, problems), style=_style()))


@cache
def _template() -> Template:
    from jinja2 import Environment

    source = files(__package__).joinpath("report.html.j2").read_text("utf-8")
    return Environment(autoescape=True, trim_blocks=False).from_string(source)


@cache
def _style() -> Markup:
    return Markup(files(__package__).joinpath("style.css").read_text("utf-8"))


def _page(run: RunRecord, stored: Mapping[str, StoredSide], problems: Sequence[str]) -> Page:
    ordered = sorted(run.tests, key=_gravity)
    anchors = {record.nodeid: f"test-{number}" for number, record in enumerate(ordered, 1)}
    commit = f", commit {run.commit}" if run.commit else ""
    said = [
        f"{harmless(tests[0])}: {sentence}" if tests else sentence for tests, sentence in of_suite(run.suite)
    ]
    return Page(
        title="LLM speed",
        subtitle=f"{counts(run.tests)}. {run.started[:16].replace('T', ' ')} UTC{commit}",
        chips=list(_chips(ordered)),
        sentences=[*said, *map(harmless_lines, problems)],
        rows=[row for record in ordered for row in _rows(record, anchors[record.nodeid])],
        tests=[
            _shown_test(record, anchors[record.nodeid], stored.get(record.nodeid, StoredSide()))
            for record in ordered
        ],
        facts=[(harmless(fact), harmless(value)) for fact, value in _facts(run)],
    )


def _gravity(record: TestRecord) -> tuple[bool, int]:
    order = list(Verdict)
    return not record.problems, len(order) if record.verdict is None else order.index(record.verdict)


def _kind(record: TestRecord) -> str:
    if record.problems and record.verdict not in (Verdict.INVALID, Verdict.SLOWER):
        return "slower"
    return record.verdict.value if record.verdict else "open"


def _word(record: TestRecord) -> str:
    if record.problems and record.verdict not in (Verdict.INVALID, Verdict.SLOWER):
        return "failed"
    return record.verdict.value.replace("_", " ") if record.verdict else "not compared"


def _icon(record: TestRecord) -> str:
    if record.problems and record.verdict is not Verdict.INVALID:
        return ICONS["slower"]
    return ICONS[record.verdict.value] if record.verdict else "·"


def _chips(records: Sequence[TestRecord]) -> Iterator[Chip]:
    words = Counter((_kind(record), _icon(record), _word(record)) for record in records)
    for (kind, icon, word), count in words.items():
        yield Chip(kind, icon, count, word)


def _rows(record: TestRecord, anchor: str) -> Iterator[VerdictRow]:
    verdicts = [found.verdict.value for found in worst_of_each_metric(record.comparisons)]
    for row in rows(record, verbose=True):
        word = row[-1]
        kind = next((verdict for verdict in verdicts if word.startswith(verdict.replace("_", " "))), "")
        missed = word == "budget missed"
        icon = ICONS.get(kind, ICONS["slower"] if missed else "")
        cells = [harmless(cell) for cell in row]
        yield VerdictRow(anchor, "slower" if missed else kind, icon, cells)


def _shown_test(record: TestRecord, anchor: str, stored: StoredSide) -> ShownTest:
    backend = record.backend
    engine = [backend.name, backend.model, backend.precision] if backend else []
    said = [*as_sentences(record.problems), *as_sentences(record.advice)]
    before = stored.sessions[-1].facts if stored.sessions else {}
    changed = what_changed(before, stored.now.facts) if before and stored.now else []
    return ShownTest(
        anchor=anchor,
        nodeid=harmless(record.nodeid),
        kind=_kind(record),
        icon=_icon(record),
        word=_word(record),
        is_open=bool(record.problems),
        engine=harmless(", ".join(str(part) for part in [*engine, record.environment] if part)),
        sentences=[harmless(sentence, LONGEST_SENTENCE) for sentence in said],
        changed=[harmless(change) for change in changed],
        figures=[*_figures(record, stored)],
        tables=[
            Table(f"Sweep by {curve.headers[0]} (times in ms)", curve.headers, curve.rows)
            for curve in curves_of([record])
        ],
    )


def _figures(record: TestRecord, stored: StoredSide) -> Iterator[Figure]:
    for found in worst_of_each_metric(record.comparisons) or _uncompared(stored):
        if (figure := _distribution(found, stored)) is not None:
            yield figure
    if bars := _bars(record):
        caption = "Requests: waiting for the first output (grey), then its tokens (blue)"
        yield Figure(waterfall(bars, partial(quantity, metric="ttft_ms")), caption)
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
    label = partial(quantity, metric=found.metric)
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
        column = [(number, point.load.figure(metric)) for number, point in enumerate(curve.points)]
        known = [(number, value) for number, value in column if value is not None]
        if len(known) < 2:
            continue
        marked = [place for place, (number, _) in enumerate(known) if number in knee]
        caption = f"{title} by {curve.by}{', the knee dashed' if marked else ''}"
        drawing = line(
            [value for _, value in known],
            [names[number] for number, _ in known],
            partial(quantity, metric=metric),
            marked=marked,
            said=caption,
            from_zero=True,
        )
        yield Figure(drawing, caption)


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
    label = partial(quantity, metric=timeline.metric)
    return Figure(line(values, names, label, marked=marked, said=caption), caption)


def _facts(run: RunRecord) -> Iterator[tuple[str, Any]]:
    yield from run.facts.items()
    if run.job:
        yield "CI job", run.job
    for option, value in run.options.items():
        yield f"option {option}", value
    backends = [record.backend for record in run.tests if record.backend]
    versions = {library: version for backend in backends for library, version in backend.versions.items()}
    yield from sorted(versions.items())
