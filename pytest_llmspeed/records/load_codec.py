"""LoadResult ⇄ builtins: a load in reports and in the store. Its requests stand among those of its test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pytest_llmspeed.metrics.load_figures import BLOCK_MEDIANS as TIMES
from pytest_llmspeed.metrics.load_result import LATENCIES, ClientHealth, LoadResult
from pytest_llmspeed.metrics.sample import Sample
from pytest_llmspeed.records.sample_codec import rounded
from pytest_llmspeed.records.verdict_codec import explanation_from_builtins, explanation_to_builtins

FIGURES = (
    "window_s",
    "throughput_tps",
    "steady_tps",
    "requests_per_s",
    "goodput",
    "goodput_per_s",
    "error_rate",
)
PLAIN = ("label", "stratum", "warmup_requests", "peak_concurrency", "counted")
ADDED: dict[str, Any] = {"not_sent": 0, "offered_per_s": None}
"""Fields that older reports lack, with what they mean there."""


def load_to_builtins(load: LoadResult) -> dict[str, Any]:
    """Return a load as the report shows it."""
    return {
        **_kept(load),
        "summary": {metric: _summary(load, metric) for metric in (*LATENCIES, "queue_ms")},
        "since_schedule": {metric: _summary(load, metric, scheduled=True) for metric in ("ttft_ms", "e2e_ms")}
        if any(sample.queue_ms is not None for sample in load.samples)
        else None,
    }


def load_to_stored(load: LoadResult) -> dict[str, Any]:
    """Return a load as the store keeps it: without its requests, whose part its blocks play."""
    tokens = [sample.output_tokens for sample in load.samples if sample.output_tokens is not None]
    prompts = [sample.prompt_tokens for sample in load.samples if sample.prompt_tokens is not None]
    return {
        **_kept(load),
        "requests": len(load.samples),
        "output_tokens": _median(tokens),
        "prompt_tokens": _median(prompts),
        "medians": {metric: rounded(found.p50) for metric in TIMES if (found := load.summary(metric))},
    }


def _kept(load: LoadResult) -> dict[str, Any]:
    return {
        "asked": dict(load.asked),
        **{name: getattr(load, name) for name in PLAIN},
        **{name: rounded(getattr(load, name)) for name in (*FIGURES, *ADDED)},
        "slo": dict(load.slo),
        "client": {name: rounded(value) for name, value in asdict(load.client).items()},
        "blocks": {metric: [rounded(value) for value in values] for metric, values in load.blocks.items()},
        "invalid": [explanation_to_builtins(each) for each in load.invalid],
        "notes": list(load.notes),
        "not_compared": None if load.not_compared is None else explanation_to_builtins(load.not_compared),
    }


def load_from_builtins(shown: Mapping[str, Any], samples: Sequence[Sample]) -> LoadResult:
    """Return the load that `load_to_builtins` made, its requests found among those of the test."""
    known = ("window_s", "throughput_tps", "steady_tps", "requests_per_s", "goodput", *PLAIN)
    return LoadResult(
        asked=shown["asked"],
        samples=tuple(sample for sample in samples if sample.stratum == shown["stratum"]),
        slo=shown["slo"],
        client=ClientHealth(**shown["client"]),
        blocks={metric: tuple(values) for metric, values in shown["blocks"].items()},
        invalid=tuple(map(explanation_from_builtins, shown["invalid"])),
        notes=tuple(shown.get("notes", ())),
        not_compared=explanation_from_builtins(too_short)
        if (too_short := shown.get("not_compared"))
        else None,
        **{name: shown[name] for name in known},
        **{name: shown.get(name, default) for name, default in ADDED.items()},
    )


def _summary(load: LoadResult, metric: str, *, scheduled: bool = False) -> dict[str, Any] | None:
    found = load.summary(metric, since="schedule" if scheduled else "send")
    return None if found is None else {name: rounded(value) for name, value in asdict(found).items()}


def _median(values: Sequence[int]) -> float | None:
    from statistics import median

    return float(median(values)) if values else None
