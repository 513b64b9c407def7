"""Sessions: one stored run of one test, as the gate sees it; made from a record or from what is stored."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from statistics import median
from typing import Any

from pytest_llmspeed.metrics.sample import TOKENS_PER_EVENT_LIMIT
from pytest_llmspeed.records.columns import Columns, Rows, columns, count_of, in_all
from pytest_llmspeed.records.load_codec import load_to_stored
from pytest_llmspeed.records.record import RunRecord, TestRecord, backend_to_builtins
from pytest_llmspeed.records.sample_codec import samples_to_stored
from pytest_llmspeed.regression.verdicts import Verdict
from pytest_llmspeed.system.environment import machine_facts
from pytest_llmspeed.text.harmless import encodable, encodable_all

SERIES_METRICS = ("ttft_ms", "ttfo_ms", "tpot_ms", "e2e_ms", "throughput_tps", "itl_ms")
LEFT_OUT = frozenset({"disturbed", "overlapped"})
"""Flags of requests that are measured, but not compared."""
GATED = ("ttft_ms", "tpot_ms")
"""The metrics that are always compared."""
COUNTS = ("output_tokens", "prompt_tokens")
COUNTED_BY = ("stratum", "error", "flags", "call")
"""The fields that decide whether a request counts, and in which series."""


@dataclass(frozen=True, slots=True)
class Series:
    """The values of one stratum of one session, metric → values in the order measured.

    `of_load`: they are those of the ten blocks of a load; `figures` are then the load's own, which its
    blocks do not give.
    """

    label: str | None
    values: Mapping[str, array[float]]
    output_tokens: float | None
    prompt_tokens: float | None
    free: bool
    """True if the prompts are not part of the key (calls of `generate`, alone or in `rounds`)."""
    of_load: bool = False
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Session:
    """One run of one test as the gate sees it: stratum → series."""

    identity: str
    environment: str
    key: Mapping[str, Any]
    started: str
    run_id: str
    job: str | None
    facts: Mapping[str, Any]
    series: Mapping[str, Series]
    starts_level: bool = False
    level: str | None = None
    """The level that it was judged in, by the id of the run that started it; None in older files."""
    suspect: bool = False
    reason: str | None = None
    gated: tuple[str, ...] = ()
    snapshots: tuple[Mapping[str, Any], ...] = ()
    """The stored answers to its prompt sets."""

    @property
    def replicate(self) -> str:
        """Its CI job, else its run: sessions that share it are not independent."""
        return self.job or self.run_id


def sessions_of_run(run: Mapping[str, Any]) -> Iterator[Session]:
    """Yield the sessions of one run file (a report in builtins, of either schema)."""
    for test in run["tests"]:
        yield session_of_test(test, run["run"])


def session_of_test(test: Mapping[str, Any], run: Mapping[str, Any]) -> Session:
    """Return one test of a report as a session."""
    accepted, backend, measured = test["accepted"], test["backend"] or {}, test["measurement"]
    return Session(
        identity=test["identity"],
        environment=test["environment"],
        key=test["key"],
        started=_with_zone(run["started"]),
        run_id=run["id"],
        job=run["job"],
        facts=_facts(backend, run["commit"], run.get("environment") or {}),
        series=_series(measured["requests"]) | _series_of_loads(measured.get("loads", ())),
        starts_level=accepted is not None or bool(test.get("faster")) or test["verdict"] == Verdict.FASTER,
        level=test.get("level"),
        suspect=bool(test.get("suspect")),
        reason=accepted,
        gated=tuple(test.get("gated") or {c["metric"]: None for c in test.get("comparisons", ())} or GATED),
        snapshots=tuple(test.get("snapshots", ())),
    )


def session_of_record(record: TestRecord, run: RunRecord) -> Session:
    """Return the session that a test of this run is: the same as from its run file, without the detour."""
    measurement = record.measurement
    requests = samples_to_stored([sample for sample in measurement.samples if sample.call != "load"])
    loads = [load_to_stored(load) for load in measurement.loads]
    backend = encodable_all(backend_to_builtins(record.backend)) if record.backend else {}
    return Session(
        identity=encodable(record.identity),
        environment=encodable(record.environment),
        key=encodable_all(record.key),
        started=_with_zone(run.started),
        run_id=run.run_id,
        job=run.job,
        facts=_facts(backend, run.commit, run.facts),
        series=_series(requests) | _series_of_loads(loads),
        starts_level=record.accepted is not None or record.is_faster,
        level=record.level,
        suspect=record.is_suspect,
        reason=record.accepted,
        gated=tuple(sorted({comparison.metric for comparison in record.comparisons})) or GATED,
        snapshots=record.snapshots,
    )


def _facts(backend: Mapping[str, Any], commit: str | None, environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is recorded and not keyed: versions, options, commit, machine."""
    options = {f"option {name}": value for name, value in (backend.get("options") or {}).items()}
    return {**(backend.get("versions") or {}), "commit": commit, **options, **machine_facts(environment)}


@lru_cache(maxsize=1024)  # all tests of a run began with it
def _with_zone(started: str) -> str:
    moment = datetime.fromisoformat(started)
    if moment.tzinfo is None:
        raise ValueError(f"started {started!r} has no time zone")
    return moment.isoformat()


def _series(requests: Rows | Columns) -> dict[str, Series]:
    """Stratum → series, of the requests that succeeded undisturbed."""
    table = columns(requests, (*SERIES_METRICS, *COUNTS, "label", "call"))
    table["itl_ms"] = _middle_gaps(requests)
    return {stratum: _one_series(table, places) for stratum, places in _places(requests).items()}


def _places(requests: Rows | Columns) -> Mapping[str, Sequence[int]]:
    """Stratum → the places of its requests that count."""
    if (shared := in_all(requests, COUNTED_BY)) is not None:
        stratum, *how = shared
        return {stratum: range(count_of(requests))} if _counts(*how) else {}
    strata: dict[str, list[int]] = {}
    for place, (stratum, *how) in enumerate(zip(*columns(requests, COUNTED_BY).values(), strict=True)):
        if _counts(*how):
            strata.setdefault(stratum, []).append(place)
    return strata


def _counts(error: str | None, flags: Sequence[str] | None, call: str) -> bool:
    return error is None and call != "load" and (not flags or LEFT_OUT.isdisjoint(flags))


def _series_of_loads(loads: Iterable[Mapping[str, Any]]) -> dict[str, Series]:
    """Stratum → series of blocks, of the loads that count and are what was asked."""
    return {
        load["stratum"]: Series(
            label=load["label"],
            values={metric: array("d", values) for metric, values in load["blocks"].items()},
            output_tokens=load.get("output_tokens"),
            prompt_tokens=load.get("prompt_tokens"),
            free=False,
            of_load=True,
            figures=_figures(load),
        )
        for load in loads
        if load["counted"] and load["blocks"] and not load["invalid"]
    }


def _figures(load: Mapping[str, Any]) -> dict[str, float]:
    """A load's own figures: what its whole window gave, and the medians of all its requests."""
    summaries = load.get("summary") or {}
    medians = {metric: found["p50"] for metric, found in summaries.items() if found}
    whole = {metric: load.get(metric) for metric in ("throughput_tps", "requests_per_s")}
    found = {**medians, **load.get("medians", {}), **whole}
    return {metric: value for metric, value in found.items() if value is not None}


def _one_series(table: Mapping[str, Sequence[Any]], places: Sequence[int]) -> Series:
    known = {metric: _known(table[metric], places) for metric in SERIES_METRICS}
    return Series(
        label=table["label"][places[0]],
        values={metric: array("d", values) for metric, values in known.items() if values},
        output_tokens=_median(_known(table["output_tokens"], places)),
        prompt_tokens=_median(_known(table["prompt_tokens"], places)),
        free=table["call"][places[0]] != "measure",
    )


def _known(values: Sequence[Any], places: Sequence[int]) -> Sequence[Any]:
    if len(places) < len(values):
        values = [values[place] for place in places]
    return values if None not in values else [value for value in values if value is not None]


def _middle_gaps(requests: Rows | Columns) -> Sequence[Any]:
    """Return the median gap of each request; None if its events carry more than one token each."""
    if isinstance(requests, Mapping):
        return columns(requests, ("itl_p50_ms",))["itl_p50_ms"]
    return [_middle_gap(request) for request in requests]


def _middle_gap(request: Mapping[str, Any]) -> float | None:
    tokens, events = request["output_tokens"], request["output_events"]
    if not request["itl_ms"] or tokens is None or tokens / events > TOKENS_PER_EVENT_LIMIT:
        return None
    return float(median(request["itl_ms"]))


def _median(known: Sequence[Any]) -> float | None:
    return median(known) if known else None
