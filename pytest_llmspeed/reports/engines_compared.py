"""Records of one test on several engines → their figures side by side, relative to the first engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median

from pytest_llmspeed.messages import run as run_messages
from pytest_llmspeed.metrics.measurement import Measurement
from pytest_llmspeed.records.record import TestRecord

MEASURED = ("ttft_ms", "tpot_ms", "throughput_tps")
OF_ENGINE = ("peak_memory_mib", "load_s")
FIGURES = (*MEASURED, *OF_ENGINE)
ARRIVALS = ("concurrency", "rate", "trace")
LENGTH_SLACK = 1.10
"""Answers whose lengths lie further apart than this are not the same work."""

Group = tuple[TestRecord, ...]


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """What one engine showed: figure → value, and → ratio to the first engine. What is unknown is absent."""

    engine: str
    values: Mapping[str, float]
    ratios: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class SideBySide:
    """One part of a test, or `tests` of them together, on several engines, the first of these the measure.

    A part is one load, named by `load`, or all other requests. Of several tests only memory (the most)
    and start time have values, the rest are geometric means of the tests' ratios. `unlike` are
    sentences on work that was not the same on all engines.
    """

    test: str
    engines: tuple[EngineFigures, ...]
    tests: int = 1
    unlike: tuple[str, ...] = ()
    load: str = ""


@dataclass(frozen=True, slots=True)
class _Part:
    """The requests of one part of a test, on each of its engines; None on an engine that has none."""

    group: Group
    load: str
    measured: tuple[Measurement | None, ...]
    is_first: bool

    @property
    def engines(self) -> tuple[str, ...]:
        return tuple(map(_engine, self.group))


def side_by_side(records: Iterable[TestRecord]) -> list[SideBySide]:
    """Return each part of a test that ran on several engines, then those of the same engines together.

    Loads and other requests are never taken together: they are not the same quantity.
    """
    parts = [part for group in _groups(records) for part in _parts(group)]
    alike: dict[tuple[tuple[str, ...], bool], list[_Part]] = {}
    for part in parts:
        alike.setdefault((part.engines, bool(part.load)), []).append(part)
    several = [found for found in alike.values() if len(found) > 1]
    return [*map(_of_one_part, parts), *map(_together, several)]


def _groups(records: Iterable[TestRecord]) -> Iterator[Group]:
    """The records of each test, in reading order of their engines; none that measured nowhere."""
    by_test: dict[str, list[TestRecord]] = {}
    for record in records:
        if record.side is not None:
            by_test.setdefault(record.side.test, []).append(record)
    for found in by_test.values():
        if len(found) > 1 and any(record.measurement.samples for record in found):
            yield tuple(sorted(found, key=lambda record: record.side.place if record.side else 0))


def _parts(group: Group) -> Iterator[_Part]:
    """The requests outside loads, then each load; one that only one engine ran has no other beside it."""
    outside = tuple(_or_none(record.measurement.outside_loads) for record in group)
    loads = [_loads_by_name(record.measurement) for record in group]
    names = dict.fromkeys(name for of_engine in loads for name in of_engine)
    found = [("", outside), *((name, tuple(load.get(name) for load in loads)) for name in names)]
    shown = [
        (name, measured)
        for name, measured in found
        if any(measured) and (not name or sum(each is not None for each in measured) > 1)
    ]
    for place, (name, measured) in enumerate(shown):
        yield _Part(group, name, measured, is_first=not place)


def _or_none(measured: Measurement) -> Measurement | None:
    return measured if measured.samples else None


def _loads_by_name(measurement: Measurement) -> dict[str, Measurement]:
    """The loads of a test by what was asked; of the same load twice the second is numbered."""
    found: dict[str, Measurement] = {}
    for load in measurement.loads:
        asked = [
            f"{name}={load.asked[name]}" for name in ("concurrency", "rate", "trace") if load.asked.get(name)
        ]
        name = " ".join(["load", *([repr(load.label)] if load.label else []), *asked])
        again = sum(known == name or known.startswith(f"{name} #") for known in found)
        found[f"{name} #{again + 1}" if again else name] = measurement.of_load(load)
    return found


def _engine(record: TestRecord) -> str:
    return record.side.engine if record.side else ""


def _of_one_part(part: _Part) -> SideBySide:
    values = [
        _values(record, measured, is_first=part.is_first)
        for record, measured in zip(part.group, part.measured, strict=True)
    ]
    engines = tuple(
        EngineFigures(engine, own, _ratios(own, values[0]))
        for engine, own in zip(part.engines, values, strict=True)
    )
    name = part.group[0].side.test if part.group[0].side else ""
    return SideBySide(name, engines, unlike=tuple(_unlike(part)), load=part.load)


def _values(record: TestRecord, measured: Measurement | None, *, is_first: bool) -> dict[str, float]:
    """The figures of a part; those of the engine stand in the first part of the test only."""
    found = {metric: measured.figure(metric) for metric in MEASURED} if measured else {}
    if is_first:
        found["peak_memory_mib"] = record.measurement.peak_memory_mib
        found["load_s"] = record.backend.load_s if record.backend else None
    return {name: value for name, value in found.items() if value is not None}


def _ratios(own: Mapping[str, float], first: Mapping[str, float]) -> dict[str, float]:
    return {name: own[name] / first[name] for name in own if first.get(name)}


def _together(parts: Sequence[_Part]) -> SideBySide:
    """The parts of the same engines as one."""
    each = [_of_one_part(part) for part in parts]
    most = [_most([one.engines[place] for one in each]) for place in range(len(each[0].engines))]
    engines = tuple(
        EngineFigures(
            each[0].engines[place].engine,
            own,
            {**_mean_ratios([one.engines[place] for one in each]), **_ratios(own, most[0])},
        )
        for place, own in enumerate(most)
    )
    return SideBySide(f"all {len(each)} {'loads' if parts[0].load else 'tests'}", engines, len(each))


def _most(of_tests: Sequence[EngineFigures]) -> dict[str, float]:
    known = {
        name: [figures.values[name] for figures in of_tests if name in figures.values] for name in OF_ENGINE
    }
    return {name: max(values) for name, values in known.items() if values}


def _mean_ratios(of_tests: Sequence[EngineFigures]) -> dict[str, float]:
    known = {
        name: [figures.ratios[name] for figures in of_tests if name in figures.ratios] for name in MEASURED
    }
    return {name: geometric_mean(ratios) for name, ratios in known.items() if ratios}


def _unlike(part: _Part) -> Iterator[str]:
    """Sentences on what makes the work of the engines differ."""
    answers = _median_tokens(part, "output_tokens")
    if answers and max(answers.values()) > LENGTH_SLACK * min(answers.values()):
        yield run_messages.unlike_answers(answers)
    prompts = _median_tokens(part, "prompt_tokens")
    if len(set(prompts.values())) > 1:
        yield run_messages.unlike_prompts(prompts)
    caches = {_engine(record): record.backend.prefix_cache for record in part.group if record.backend}
    if len(set(caches.values())) > 1:
        yield run_messages.unlike_caches(caches)


def _median_tokens(part: _Part, count: str) -> dict[str, float]:
    """Engine → the median token count of its requests, of those that gave any."""
    counts = {
        engine: [getattr(s, count) for s in measured.samples if s.ok]
        for engine, measured in zip(part.engines, part.measured, strict=True)
        if measured
    }
    known = {engine: [each for each in found if each is not None] for engine, found in counts.items()}
    return {engine: median(found) for engine, found in known.items() if found}
