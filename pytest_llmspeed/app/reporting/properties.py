"""A record → the properties of its test case in JUnit XML."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from pytest_llmspeed.app.reporting.rows import change
from pytest_llmspeed.core.record import TestRecord
from pytest_llmspeed.core.verdicts import Comparison, worst_of_each_metric

PREFIX = "llmspeed_"


def properties(record: TestRecord) -> Iterator[tuple[str, str]]:
    """Yield name and value of each property, `llmspeed_verdict` first; what is missing has none.

    `llmspeed_ttft_ms` is the median now, `llmspeed_ttft_ms_change` the change with its interval, in
    words; `llmspeed_ttft_ms_ratio`, `_ratio_low` and `_ratio_high` are the same as numbers, new / baseline.
    Of several prompts or labels, those of the one that speaks for the metric: its worst.
    """
    if record.verdict is not None:
        yield f"{PREFIX}verdict", record.verdict.value
    if record.accepted is not None:
        yield f"{PREFIX}accepted", record.accepted
    if record.backend is not None:
        yield f"{PREFIX}backend", record.backend.name
    for answers in record.quality:
        yield f"{PREFIX}quality", f"{answers.prompts}: {answers.word.value}"
    for found in worst_of_each_metric(record.comparisons):
        yield from _of_metric(record, found)


def _of_metric(record: TestRecord, found: Comparison) -> Iterator[tuple[str, str]]:
    now = _values(record, found)
    if known := [value for value in now if value is not None]:
        yield f"{PREFIX}{found.metric}", str(round(median(known), 4))
    if moved := change(found):
        yield f"{PREFIX}{found.metric}_change", moved
    if found.delta is not None and found.ci is not None:
        ratios = {"ratio": found.delta, "ratio_low": found.ci[0], "ratio_high": found.ci[1]}
        for name, ratio in ratios.items():
            yield f"{PREFIX}{found.metric}_{name}", f"{ratio:.6g}"


def _values(record: TestRecord, found: Comparison) -> list[float | None]:
    """What a comparison was made of: the blocks of a load, else one value a request."""
    for load in record.measurement.loads:
        if load.stratum == found.stratum:
            return list(load.blocks.get(found.metric, ()))
    return [s.value(found.metric) for s in record.measurement.told_by if s.stratum == found.stratum]
