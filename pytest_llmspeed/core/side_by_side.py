"""Records of one test on several engines → their figures side by side, relative to the first engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median

from pytest_llmspeed.core import advice
from pytest_llmspeed.core.record import TestRecord

MEDIANS = ("ttft_ms", "tpot_ms", "throughput_tps")
OF_ENGINE = ("peak_memory_mib", "load_s")
FIGURES = (*MEDIANS, *OF_ENGINE)
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
    """One test, or `tests` of them together, on several engines, the first of these the measure.

    Of several tests only memory (the most) and load time have values, the rest are geometric means
    of the tests' ratios. `unlike` are sentences on work that was not the same on all engines.
    """

    test: str
    engines: tuple[EngineFigures, ...]
    tests: int = 1
    unlike: tuple[str, ...] = ()


def side_by_side(records: Iterable[TestRecord]) -> list[SideBySide]:
    """Return each test that ran on several engines, then the tests of the same engines together."""
    groups = list(_groups(records))
    alone = [_of_one_test(group) for group in groups]
    by_engines: dict[tuple[str, ...], list[Group]] = {}
    for group in groups:
        by_engines.setdefault(tuple(map(_engine, group)), []).append(group)
    return [*alone, *(_together(several) for several in by_engines.values() if len(several) > 1)]


def _groups(records: Iterable[TestRecord]) -> Iterator[Group]:
    """The records of each test, in reading order of their engines; none that measured nowhere."""
    by_test: dict[str, list[TestRecord]] = {}
    for record in records:
        if record.side is not None:
            by_test.setdefault(record.side.test, []).append(record)
    for found in by_test.values():
        if len(found) > 1 and any(record.measurement.samples for record in found):
            yield tuple(sorted(found, key=lambda record: record.side.place if record.side else 0))


def _engine(record: TestRecord) -> str:
    return record.side.engine if record.side else ""


def _of_one_test(group: Group) -> SideBySide:
    values = [_values(record) for record in group]
    engines = tuple(
        EngineFigures(_engine(record), own, _ratios(own, values[0]))
        for record, own in zip(group, values, strict=True)
    )
    name = group[0].side.test if group[0].side else ""
    return SideBySide(name, engines, unlike=tuple(_unlike(group)))


def _values(record: TestRecord) -> dict[str, float]:
    found = {metric: record.measurement.median(metric) for metric in MEDIANS}
    found["peak_memory_mib"] = record.measurement.peak_memory_mib
    found["load_s"] = record.backend.load_s if record.backend else None
    return {name: value for name, value in found.items() if value is not None}


def _ratios(own: Mapping[str, float], first: Mapping[str, float]) -> dict[str, float]:
    return {name: own[name] / first[name] for name in own if first.get(name)}


def _together(groups: Sequence[Group]) -> SideBySide:
    """The tests of the same engines as one."""
    tests = [_of_one_test(group) for group in groups]
    most = [_most([test.engines[place] for test in tests]) for place in range(len(tests[0].engines))]
    engines = tuple(
        EngineFigures(
            tests[0].engines[place].engine,
            own,
            {**_mean_ratios([test.engines[place] for test in tests]), **_ratios(own, most[0])},
        )
        for place, own in enumerate(most)
    )
    return SideBySide(f"all {len(tests)} tests", engines, len(tests))


def _most(of_tests: Sequence[EngineFigures]) -> dict[str, float]:
    known = {name: [each.values[name] for each in of_tests if name in each.values] for name in OF_ENGINE}
    return {name: max(values) for name, values in known.items() if values}


def _mean_ratios(of_tests: Sequence[EngineFigures]) -> dict[str, float]:
    known = {name: [each.ratios[name] for each in of_tests if name in each.ratios] for name in MEDIANS}
    return {name: geometric_mean(ratios) for name, ratios in known.items() if ratios}


def _unlike(group: Group) -> Iterator[str]:
    """Sentences on what makes the work of the engines differ."""
    answers = _median_tokens(group, "output_tokens")
    if answers and max(answers.values()) > LENGTH_SLACK * min(answers.values()):
        yield advice.unlike_answers(answers)
    prompts = _median_tokens(group, "prompt_tokens")
    if len(set(prompts.values())) > 1:
        yield advice.unlike_prompts(prompts)
    caches = {_engine(record): record.backend.prefix_cache for record in group if record.backend}
    if len(set(caches.values())) > 1:
        yield advice.unlike_caches(caches)


def _median_tokens(group: Group, count: str) -> dict[str, float]:
    """Engine → the median token count of its requests, of those that gave any."""
    counts = {
        _engine(record): [getattr(s, count) for s in record.measurement.samples if s.ok] for record in group
    }
    known = {engine: [each for each in found if each is not None] for engine, found in counts.items()}
    return {engine: median(found) for engine, found in known.items() if found}
