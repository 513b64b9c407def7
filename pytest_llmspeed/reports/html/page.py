"""A run and the stored sessions of its tests → the HTML report. Drawn here, decided elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from pytest_llmspeed import __version__
from pytest_llmspeed.records.record import RunRecord, TestRecord
from pytest_llmspeed.regression.verdicts import Verdict
from pytest_llmspeed.reports import side_by_side
from pytest_llmspeed.reports.html.section import Section, Table, section
from pytest_llmspeed.reports.html.verdict_table import Chip, Group, chips, group
from pytest_llmspeed.reports.rows import HEADERS, counts, of_suite
from pytest_llmspeed.reports.stored_side import StoredSide
from pytest_llmspeed.text.harmless import encodable, harmless, harmless_lines

if TYPE_CHECKING:
    from jinja2 import Template


@dataclass(frozen=True, slots=True)
class Page:
    """What the template draws. Tests that fail come first; `calm` are rows that ask for no look."""

    counts: str
    when: str
    chips: Sequence[Chip]
    sentences: Sequence[str]
    telling: Sequence[Group]
    calm: Sequence[Group]
    engines: Table | None
    sections: Sequence[Section]
    facts: Sequence[tuple[str, str]]
    headers: Sequence[str] = HEADERS[1:]
    version: str = __version__


def html_report(
    run: RunRecord, stored: Mapping[str, StoredSide] | None = None, problems: Sequence[str] = ()
) -> str:
    """Return the report of a run as one HTML file; `stored` has the baselines of its tests, by node id."""
    return encodable(_template().render(page=_page(run, stored or {}, problems), style=_style()))


@cache
def _template() -> Template:
    from jinja2 import Environment

    source = files(__package__).joinpath("report.html.j2").read_text("utf-8")
    return Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(source)


@cache
def _style() -> Markup:
    return Markup(files(__package__).joinpath("style.css").read_text("utf-8"))


def _page(run: RunRecord, stored: Mapping[str, StoredSide], problems: Sequence[str]) -> Page:
    ordered = sorted(run.tests, key=_gravity)
    tests = {f"test-{number}": record for number, record in enumerate(ordered, 1)}
    groups = [found for anchor, record in tests.items() if (found := group(record, anchor)).rows]
    commit = f", commit {harmless(run.commit)}" if run.commit else ""
    said = [
        f"{harmless(tests[0])}: {sentence}" if tests else sentence for tests, sentence in of_suite(run.suite)
    ]
    return Page(
        counts=counts(run.tests),
        when=f"{run.started[:16].replace('T', ' ')} UTC{commit}",
        chips=list(chips(tests)),
        sentences=[*said, *map(harmless_lines, problems)],
        telling=[each for each in groups if not each.is_calm],
        calm=[each for each in groups if each.is_calm],
        engines=_engines(run.tests),
        sections=[
            section(record, anchor, stored.get(record.nodeid, StoredSide()))
            for anchor, record in tests.items()
        ],
        facts=[(harmless(fact), harmless(value)) for fact, value in _facts(run)],
    )


def _gravity(record: TestRecord) -> tuple[bool, int]:
    order = list(Verdict)
    return not record.problems, len(order) if record.verdict is None else order.index(record.verdict)


def _engines(records: Sequence[TestRecord]) -> Table | None:
    """The figures of tests that ran on several engines; None if there are none."""
    compared = side_by_side.compared(records, verbose=True)
    if not compared:
        return None
    notes = (f"{tests[0]}: {sentence}" for tests, sentence in side_by_side.sentences(compared))
    return Table.of("Engines side by side", side_by_side.HEADERS, side_by_side.rows(compared), notes)


def _facts(run: RunRecord) -> Iterator[tuple[str, Any]]:
    yield from run.facts.items()
    if run.job:
        yield "CI job", run.job
    for option, value in run.options.items():
        yield f"option {option}", value
    backends = [record.backend for record in run.tests if record.backend]
    versions = {library: version for backend in backends for library, version in backend.versions.items()}
    yield from sorted(versions.items())
