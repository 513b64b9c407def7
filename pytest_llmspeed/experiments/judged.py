"""What both sides measured, block by block → the tests of both, each metric with its verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain
from statistics import median

from pytest_llmspeed.baselines.report_set import Measured, budgets_of
from pytest_llmspeed.baselines.sessions import Series, Session
from pytest_llmspeed.baselines.stored_tests import (
    Pair,
    Pairing,
    StoredTest,
    aligned,
    paired,
    slot_of,
    stored_tests,
)
from pytest_llmspeed.baselines.window import part_names
from pytest_llmspeed.judging.comparing import LENGTH_BOUND, LENGTH_SLACK, compared_metrics
from pytest_llmspeed.metrics.reasons import Reason
from pytest_llmspeed.metrics.sample import metric_of
from pytest_llmspeed.records.record import TestRecord
from pytest_llmspeed.regression.block_test import compare_blocks
from pytest_llmspeed.regression.looks import ONLY_LOOK, Look
from pytest_llmspeed.regression.paired_test import compare_pairs
from pytest_llmspeed.regression.verdicts import Comparison, Verdict, gravest
from pytest_llmspeed.system.environment import what_changed

ComparisonPlace = tuple[str, str, str]
"""Identity, series and metric of a comparison."""


class Form(StrEnum):
    """How both sides are measured: at once, in turn, or in one run of pytest after the other."""

    PAIRS = "pairs"
    RUNS = "runs"


@dataclass(frozen=True, slots=True)
class Block:
    """What one run of either side measured."""

    old: Sequence[Measured]
    new: Sequence[Measured]


@dataclass(frozen=True, slots=True)
class TestOnBothSides:
    """A test of both sides. `record` is its last run on the new side, with the comparisons as its own."""

    pair: Pair
    record: TestRecord
    changed: tuple[str, ...]

    @property
    def is_open(self) -> bool:
        """True if more blocks could decide something."""
        return any(found.verdict is Verdict.INCONCLUSIVE for found in self.record.comparisons)


@dataclass(frozen=True, slots=True)
class Judged:
    """All tests of an experiment so far."""

    tests: tuple[TestOnBothSides, ...] = ()
    pairing: Pairing = field(default_factory=lambda: Pairing((), (), ()))

    @property
    def verdict(self) -> Verdict | None:
        """The gravest of all; None if nothing was compared."""
        return gravest([test.record.verdict for test in self.tests if test.record.verdict is not None])

    @property
    def is_open(self) -> bool:
        """True if more blocks could decide something."""
        return any(test.is_open for test in self.tests)

    @property
    def by_place(self) -> dict[ComparisonPlace, Comparison]:
        """Each comparison under its place."""
        return {
            (test.record.identity, found.stratum, found.metric): found
            for test in self.tests
            for found in test.record.comparisons
        }

    @property
    def visible(self) -> float | None:
        """The smallest slowdown that each comparison would have seen, as a factor."""
        return max((found.visible for found in self.by_place.values() if found.visible), default=None)


def judge(
    blocks: Sequence[Block],
    form: Form,
    look: Look = ONLY_LOOK,
    decided: Mapping[ComparisonPlace, Comparison] | None = None,
) -> Judged:
    """Return the tests that both sides have measured, judged; what an earlier look decided stands."""
    pairing = paired(_tests(block.old for block in blocks), _tests(block.new for block in blocks))
    columns = [column for pair in pairing.pairs for column in _columns(pair, blocks)]
    found: dict[int, list[Comparison]] = {id(pair): [] for pair in pairing.pairs}
    for column in columns:
        comparison = (decided or {}).get(column.place) or column.compared(form, look, len(columns))
        found[id(column.pair)].append(comparison)
    tests = tuple(_judged(pair, found[id(pair)], blocks) for pair in pairing.pairs)
    return Judged(tests, pairing)


def _tests(runs: Iterable[Sequence[Measured]]) -> list[StoredTest]:
    return stored_tests(measured.session for measured in chain.from_iterable(runs))


@dataclass(frozen=True, slots=True)
class _Column:
    """One metric of one series of a test: the values of both sides in each block, empty where it has none."""

    pair: Pair
    stratum: str
    series: Series
    part: str
    metric: str
    old: Sequence[Sequence[float]]
    new: Sequence[Sequence[float]]
    lengths: tuple[float | None, float | None]

    @property
    def place(self) -> ComparisonPlace:
        return self.pair.new.identity, self.stratum, self.metric

    def compared(self, form: Form, look: Look, comparisons: int) -> Comparison:
        """The comparison, with the figures that every report shows."""
        values = zip(self.old, self.new, strict=True)
        larger_is_worse = metric_of(self.metric).better == "lower"
        if self._lengths_differ:
            before, now = self.lengths
            found = Comparison(Verdict.INCOMPARABLE, Reason.LENGTHS_DIFFER(before=before, now=now))
        elif form is Form.PAIRS:
            pairs = [list(zip(old, new, strict=False)) for old, new in values]
            found = compare_pairs(pairs, larger_is_worse=larger_is_worse, comparisons=comparisons, look=look)
        else:
            found = compare_blocks(
                list(values), larger_is_worse=larger_is_worse, comparisons=comparisons, look=look
            )
        return replace(
            found,
            metric=self.metric,
            stratum=self.stratum,
            label=self.series.label,
            part=self.part,
            baseline=_middle(self.old),
            now=_middle(self.new),
        )

    @property
    def _lengths_differ(self) -> bool:
        before, now = self.lengths
        if self.metric not in LENGTH_BOUND or not before or not now:
            return False
        of_window = self.series.of_load and self.metric == "throughput_tps"
        return not of_window and max(before, now) / min(before, now) > LENGTH_SLACK


def _columns(pair: Pair, blocks: Sequence[Block]) -> Iterator[_Column]:
    newest = pair.new.newest
    old = [aligned(one, newest) if one else None for one in _by_block([b.old for b in blocks], pair.old)]
    new = _by_block([b.new for b in blocks], pair.new)
    record = _newest_record(pair, blocks)
    names = part_names(newest.series)
    for stratum, series in newest.series.items():
        before, now = (_series(sessions, stratum) for sessions in (old, new))
        lengths = (_length(before), _length(now))
        for metric in compared_metrics(series, budgets_of(record)):
            values = [[_values(one, metric) for one in side] for side in (before, now)]
            if any(values[0]) or any(values[1]):
                yield _Column(pair, stratum, series, names[stratum], metric, values[0], values[1], lengths)


def _by_block(runs: Sequence[Sequence[Measured]], test: StoredTest) -> list[Session | None]:
    """The session of a test in each block, None where it has none."""
    slot = slot_of(test.newest)
    return [next((m.session for m in run if slot_of(m.session) == slot), None) for run in runs]


def _series(sessions: Sequence[Session | None], stratum: str) -> list[Series | None]:
    return [session.series.get(stratum) if session else None for session in sessions]


def _values(series: Series | None, metric: str) -> Sequence[float]:
    return series.values.get(metric, ()) if series else ()


def _length(series: Sequence[Series | None]) -> float | None:
    known = [one.output_tokens for one in series if one and one.output_tokens]
    return median(known) if known else None


def _middle(values: Sequence[Sequence[float]]) -> float | None:
    known = list(chain.from_iterable(values))
    return median(known) if known else None


def _newest_record(pair: Pair, blocks: Sequence[Block]) -> TestRecord:
    slot = slot_of(pair.new.newest)
    return next(m.record for block in reversed(blocks) for m in block.new if slot_of(m.session) == slot)


def _judged(pair: Pair, found: Sequence[Comparison], blocks: Sequence[Block]) -> TestOnBothSides:
    record = _newest_record(pair, blocks)
    changed = tuple(what_changed(pair.old.newest.facts, pair.new.newest.facts))
    judged = replace(
        record,
        comparisons=tuple(found),
        verdict=gravest([each.verdict for each in found]),
        budgets=(),
        problems=(),
        advice=(),
        accepted=None,
        quality=(),
    )
    if not found and (failed := record.measurement.failures):
        total = len(record.measurement.samples)
        problem = Reason.REQUESTS_FAILED(failed=len(failed), total=total, error=failed[-1].error)
        judged = replace(judged, verdict=Verdict.INVALID, problems=(problem,))
    return TestOnBothSides(pair, judged, changed)
