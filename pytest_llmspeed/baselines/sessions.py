"""Stored sessions → the window that a new session is compared with. Pure functions only.

A *session* is one stored run of one test. A *level* is the sessions since the last accepted
change: a session that was found faster, or was accepted as slower, starts a new one. Each session
knows the level that it was judged in, so a merged branch or a clock that lags puts no session of the
old code into a new level. The *window* is the last ten sessions of the level, each of another CI job
(of one job the first counts). Suspect sessions at its end are *pending*: they count once a later
session is not suspect.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from statistics import geometric_mean, median
from typing import Any

from pytest_llmspeed.baselines.declared import extends, what_differs
from pytest_llmspeed.metrics.sample import TOKENS_PER_EVENT_LIMIT
from pytest_llmspeed.records.columns import Columns, Rows, columns, count_of, in_all
from pytest_llmspeed.regression.session_test import WINDOW
from pytest_llmspeed.regression.verdicts import Verdict
from pytest_llmspeed.system.environment import machine_facts

SERIES_METRICS = ("ttft_ms", "ttfo_ms", "tpot_ms", "e2e_ms", "throughput_tps", "itl_ms")
FIRST_LEVEL = "first"
"""The level of a test before any change was accepted."""
ANCHOR = 3
"""So many first sessions of a level are its anchor: creep is seen against them."""
OLD = timedelta(days=30)
"""From this age on a baseline is told to be old: drivers, images and machines have moved on."""
LEFT_OUT = frozenset({"disturbed", "overlapped"})
"""Flags of requests that are measured, but not compared."""
GATED = ("ttft_ms", "tpot_ms")
"""What is always compared."""
COUNTS = ("output_tokens", "prompt_tokens")
COUNTED_BY = ("stratum", "error", "flags", "call")
"""What says whether a request counts, and where."""


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
    """What is stored of the answers to its sets of prompts."""

    @property
    def replicate(self) -> str:
        """What makes it independent of other sessions: its CI job, else its run."""
        return self.job or self.run_id


@dataclass(frozen=True, slots=True)
class Window:
    """The sessions that count, oldest first; `anchor` are the level's first, once they count no more.

    `pending` are the suspects at the level's end. `level` is what a session judged by this is of.
    """

    sessions: tuple[Session, ...] = ()
    spans_a_day: bool = False
    anchor: tuple[Session, ...] = ()
    pending: tuple[Session, ...] = ()
    level: str = FIRST_LEVEL
    differs: tuple[str, ...] = field(default=())
    """Where the identity exists under another key only: "precision: bf16 → fp16", …"""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What was recorded with the newest session."""
        return self.sessions[-1].facts if self.sessions else {}

    def values(self, stratum: str, metric: str) -> list[array[float]]:
        """A metric's values of one stratum, one array a session that has any."""
        return values_of(self.sessions, stratum, metric)

    def anchor_values(self, stratum: str, metric: str) -> list[array[float]]:
        """The same of the level's first sessions."""
        return values_of(self.anchor, stratum, metric)

    def pending_before(self, now: Session) -> tuple[Session, ...]:
        """The suspects just before a new session that are not of its own CI job."""
        return tuple(session for session in self.pending if session.replicate != now.replicate)

    def figure(self, stratum: str, metric: str) -> float | None:
        """The geometric mean of a load's own figure over the sessions that have it; None if none has."""
        stored = [s.series[stratum].figures.get(metric) for s in self.sessions if stratum in s.series]
        known = [value for value in stored if value]
        return geometric_mean(known) if known else None

    def age(self, started: str) -> timedelta | None:
        """How much older the newest session is than one started at a time; None without sessions."""
        if not self.sessions:
            return None
        return datetime.fromisoformat(started) - datetime.fromisoformat(self.sessions[-1].started)

    def usual(self, stratum: str, what: str) -> float | None:
        """The median over sessions of `output_tokens` or `prompt_tokens`; None if unknown."""
        found = (getattr(s.series[stratum], what) for s in self.sessions if stratum in s.series)
        known = [value for value in found if value is not None]
        return median(known) if known else None


def part_names(series: Mapping[str, Series]) -> dict[str, str]:
    """Return what each series of a session is called among the others; "" if it is the only one.

    It is the label where that names one series only, else the kind of call: "call 2", "load",
    "measured prompt 2".
    """
    if len(series) == 1:
        return {stratum: repr(one.label) if one.label else "" for stratum, one in series.items()}
    labels = Counter(one.label for one in series.values())
    kinds = {stratum: _kind(stratum, one) for stratum, one in series.items()}
    alike, names = Counter(kinds.values()), dict[str, str]()
    seen: Counter[str] = Counter()
    for stratum, one in series.items():
        kind = kinds[stratum]
        seen[kind] += 1
        numbered = f"{kind} {seen[kind]}" if alike[kind] > 1 else kind
        alone = one.label is not None and labels[one.label] == 1
        names[stratum] = repr(one.label) if alone else numbered
    return names


def _kind(stratum: str, series: Series) -> str:
    """The kind of call that a series is of; what `measure` and `load` repeat is known by a hash only."""
    call = stratum.rpartition("/")[2] if series.free else "measured prompt"
    kind = "load" if series.of_load else call
    return f"{series.label!r} {kind}" if series.label else kind


def values_of(sessions: Sequence[Session], stratum: str, metric: str) -> list[array[float]]:
    """Return a metric's values of one stratum, one array for each session that has any."""
    found = (s.series[stratum].values.get(metric) for s in sessions if stratum in s.series)
    return [values for values in found if values]


def sessions_of_run(run: Mapping[str, Any]) -> Iterator[Session]:
    """Yield the sessions of one run file (a report in builtins, of schema "llmspeed/1")."""
    for test in run["tests"]:
        yield session_of_test(test, run["run"])


def session_of_test(test: Mapping[str, Any], run: Mapping[str, Any]) -> Session:
    """Return the session that one test of a report stands for."""
    accepted, backend = test["accepted"], test["backend"] or {}
    facts = {**(backend.get("versions") or {}), "commit": run["commit"]}
    facts |= {f"option {name}": value for name, value in (backend.get("options") or {}).items()}
    facts |= machine_facts(run.get("environment") or {})
    return Session(
        identity=test["identity"],
        environment=test["environment"],
        key=test["key"],
        started=_with_zone(run["started"]),
        run_id=run["id"],
        job=run["job"],
        facts=facts,
        series=_series(test["measurement"]["requests"]) | _series_of_loads(test["measurement"]),
        starts_level=accepted is not None or bool(test.get("faster")) or test["verdict"] == Verdict.FASTER,
        level=test.get("level"),
        suspect=bool(test.get("suspect")),
        reason=accepted,
        gated=tuple(test.get("gated") or {c["metric"]: None for c in test.get("comparisons", ())} or GATED),
        snapshots=tuple(test.get("snapshots", ())),
    )


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


def _series_of_loads(measured: Mapping[str, Any]) -> dict[str, Series]:
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
        for load in measured.get("loads", ())
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
    """Of each request the median gap, None where its events carry more than about one token each."""
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


def window(history: Iterable[Session], identity: str, key: Mapping[str, Any]) -> Window:
    """Return what a new session of `identity` under `key` is compared with.

    `history` is every session stored for its environment, in any order.
    """
    mine = sorted((s for s in history if s.identity == identity), key=lambda s: (s.started, s.run_id))
    same = [session for session in mine if _fits(session.key, key)]
    if not same:
        return Window(differs=tuple(_differences(mine[-1].key, key)) if mine else ())
    counting, pending = counting_and_pending(current_level(same))
    recent, anchor = counting[-WINDOW:], counting[:ANCHOR] if len(counting) >= WINDOW + ANCHOR else []
    return Window(
        tuple(recent), spans_a_day(recent), tuple(anchor), tuple(pending), level=_newest_level(same)
    )


def _fits(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """True if sessions of two keys are compared: the same, or one that has further labelled calls."""
    if old == new:
        return True
    fixed = [name for name in {*old, *new} if name != "workload"]
    return all(old.get(name) == new.get(name) for name in fixed) and extends(new["workload"], old["workload"])


def current_level(sessions: Sequence[Session]) -> list[Session]:
    """Return the current level of the sessions of one test and key (in order of time), one a CI job."""
    newest = _newest_level(sessions)
    members = [s for s, level in zip(sessions, _levels(sessions), strict=True) if level == newest]
    members.sort(key=lambda session: session.run_id != newest)  # its start comes first, whatever its clock
    return _one_per_replicate(members)


def counting_and_pending(level: Sequence[Session]) -> tuple[Sequence[Session], Sequence[Session]]:
    """Return the sessions of a level that count, and the suspects at its end, which do not yet."""
    counting = len(level)
    while counting > 1 and level[counting - 1].suspect:
        counting -= 1
    return level[:counting], level[counting:]


def _levels(sessions: Sequence[Session]) -> list[str]:
    """Return the level of each session: what it starts, else what it was judged in, else by time."""
    latest, levels = FIRST_LEVEL, list[str]()
    for session in sessions:
        if session.starts_level:
            latest = session.run_id
        known = session.level if session.level is not None else latest
        levels.append(session.run_id if session.starts_level else known)
    return levels


def _newest_level(sessions: Sequence[Session]) -> str:
    """Return the level that no other was started from; of several, after a merge, the one begun last."""
    superseded, latest = {FIRST_LEVEL}, FIRST_LEVEL
    for session in sessions:
        if session.starts_level:
            superseded.add(latest if session.level is None else session.level)
            latest = session.run_id
    begun = dict.fromkeys(_levels(sessions))
    leaves = [level for level in begun if level not in superseded]
    return leaves[-1] if leaves else next(reversed(begun), FIRST_LEVEL)


def _one_per_replicate(sessions: Sequence[Session]) -> list[Session]:
    first: dict[str, Session] = {}
    for session in sessions:
        first.setdefault(session.replicate, session)
    return list(first.values())


def spans_a_day(sessions: Sequence[Session]) -> bool:
    """Return whether a day or more lies between the first and the last of some sessions."""
    started = [datetime.fromisoformat(session.started) for session in sessions]
    return max(started) - min(started) >= timedelta(days=1)


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name in new:
        if old.get(name) != new[name]:
            yield f"{name}: {_change(name, old.get(name), new[name])}"


def _change(name: str, old: Any, new: Any) -> str:
    if name == "workload":
        return ", ".join(what_differs(old or [], new))
    return f"{'none' if old is None else old} → {'none' if new is None else new}"


def gated_comparisons(history: Iterable[Session]) -> int:
    """Return how many comparisons the newest session of each test on each engine made."""
    newest: dict[tuple[str, ...], Session] = {}
    for session in history:
        engine = (str(session.key.get(name)) for name in ("backend", "model", "precision"))
        slot = (session.identity, *engine)
        if slot not in newest or newest[slot].started < session.started:
            newest[slot] = session
    return sum(
        metric in series.values
        for session in newest.values()
        for series in session.series.values()
        for metric in session.gated
    )
