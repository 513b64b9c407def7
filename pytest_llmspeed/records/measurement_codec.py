"""Measurement ⇄ builtins: the part of a test's record that its requests, loads and sweeps make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pytest_llmspeed.metrics.load_curve import Curve, Point
from pytest_llmspeed.metrics.load_result import LoadResult
from pytest_llmspeed.metrics.measurement import SUMMARY_METRICS, Measurement
from pytest_llmspeed.records.load_codec import load_from_builtins, load_to_builtins
from pytest_llmspeed.records.sample_codec import rounded, sample_to_builtins, samples_from_builtins
from pytest_llmspeed.system.neighbours import Neighbour


def measurement_to_builtins(measurement: Measurement, *, text: bool) -> dict[str, Any]:
    """Return a measurement as the report shows it; `text=False` leaves the answers out."""
    outside = measurement.outside_loads
    summaries = {metric: outside.summary(metric) for metric in SUMMARY_METRICS}
    return {
        "requests": [sample_to_builtins(sample, text=text) for sample in measurement.samples],
        "warmup_requests": measurement.warmup_requests,
        "peak_memory_mib": rounded(measurement.peak_memory_mib),
        "cache_hit_rate": rounded(measurement.cache_hit_rate),
        "neighbours": [
            {"name": neighbour.name, "cores": rounded(neighbour.cores)}
            for neighbour in measurement.neighbours
        ],
        "loads": [load_to_builtins(load) for load in measurement.loads],
        "curves": [_curve_to_builtins(curve) for curve in measurement.curves],
        "summary": {
            metric: {name: rounded(value) for name, value in asdict(found).items()}
            for metric, found in summaries.items()
            if found is not None
        },
    }


def measurement_from_builtins(shown: Mapping[str, Any]) -> Measurement:
    """Return the measurement that `measurement_to_builtins` made (figures as rounded there)."""
    samples = tuple(samples_from_builtins(shown["requests"]))
    loads = tuple(load_from_builtins(load, samples) for load in shown.get("loads", ()))
    return Measurement(
        samples=samples,
        warmup_requests=shown["warmup_requests"],
        peak_memory_mib=shown.get("peak_memory_mib"),
        loads=loads,
        neighbours=tuple(Neighbour(**each) for each in shown.get("neighbours", ())),
        curves=tuple(_curve_from_builtins(curve, loads) for curve in shown.get("curves", ())),
    )


def _curve_to_builtins(curve: Curve) -> dict[str, Any]:
    """A curve with its points' main figures; the rest stands in the load of that stratum."""
    return {
        "by": curve.by,
        "has_budgets": curve.has_budgets,
        "knee": curve.knee and curve.knee.level,
        "highest": curve.highest and curve.highest.level,
        "stopped": curve.stopped,
        "points": [_point_to_builtins(point) for point in curve.points],
    }


def _point_to_builtins(point: Point) -> dict[str, Any]:
    load = point.load
    ttft = load.summary("ttft_ms")
    return {
        "level": point.level,
        "stratum": load.stratum,
        "requests_per_s": rounded(load.requests_per_s),
        "throughput_tps": rounded(load.throughput_tps),
        "ttft_p50_ms": rounded(ttft.p50) if ttft else None,
        "ttft_p99_ms": rounded(ttft.p99) if ttft else None,
        "goodput": rounded(load.goodput),
        "failed": len(load.failures),
        "missed": list(point.missed),
    }


def _curve_from_builtins(shown: Mapping[str, Any], loads: Sequence[LoadResult]) -> Curve:
    by_stratum = {load.stratum: load for load in loads}
    points = tuple(
        Point(each["level"], by_stratum[each["stratum"]], tuple(each["missed"]))
        for each in shown["points"]
        if each["stratum"] in by_stratum
    )
    return Curve(shown["by"], points, shown["has_budgets"], shown["stopped"])
