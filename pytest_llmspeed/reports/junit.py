"""A record → the properties of its test case in JUnit XML."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_llmspeed.messages.speed import location
from pytest_llmspeed.records.record import TestRecord
from pytest_llmspeed.regression.verdicts import Comparison
from pytest_llmspeed.reports.rows import change

PREFIX = "llmspeed_"
QUOTE = "'"


def properties(record: TestRecord) -> Iterator[tuple[str, str]]:
    """Yield name and value of each property, `llmspeed_verdict` first; what is missing has none.

    `llmspeed_ttft_ms` is the figure of the report, `llmspeed_ttft_ms_change` the change with its interval,
    in words; `…_ratio`, `…_ratio_low` and `…_ratio_high` are the same as numbers, new / baseline, and
    `…_compared_at` says where it was found, if not between the report's two figures. Of a test with
    several series each has its own, named in brackets: `llmspeed_ttft_ms[call 2]`.
    """
    if record.verdict is not None:
        yield f"{PREFIX}verdict", record.verdict.value
    if record.accepted is not None:
        yield f"{PREFIX}accepted", record.accepted
    if record.backend is not None:
        yield f"{PREFIX}backend", record.backend.name
    for answers in record.quality:
        yield f"{PREFIX}quality", f"{answers.prompts}: {answers.status.value}"
    several = len({comparison.stratum for comparison in record.comparisons}) > 1
    for found in record.comparisons:
        yield from _of_metric(found, f"[{found.part.replace(QUOTE, '')}]" if several and found.part else "")


def _of_metric(comparison: Comparison, part: str) -> Iterator[tuple[str, str]]:
    if comparison.now is not None:
        yield f"{PREFIX}{comparison.metric}{part}", str(round(comparison.now, 4))
    if moved := change(comparison):
        yield f"{PREFIX}{comparison.metric}_change{part}", moved
    if comparison.delta is not None and comparison.ci is not None:
        ratios = {"ratio": comparison.delta, "ratio_low": comparison.ci[0], "ratio_high": comparison.ci[1]}
        for name, ratio in ratios.items():
            yield f"{PREFIX}{comparison.metric}_{name}{part}", f"{ratio:.6g}"
    if comparison.at_another_location:
        yield f"{PREFIX}{comparison.metric}_compared_at{part}", location(comparison)
