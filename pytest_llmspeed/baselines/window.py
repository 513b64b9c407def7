"""Stored sessions → the window that a new session is compared with.

A *level* is the sessions since the last accepted change: a session that was found faster, or was
accepted as slower, starts a new one. Each session knows the level that it was judged in, so a merged
branch or a clock that lags puts no session of the old code into a new level. The *window* is the last
ten sessions of the level, each of another CI job (of one job the first counts). Suspect sessions at its
end are *pending*: they count once a later session is not suspect.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import geometric_mean, median
from typing import Any

from pytest_llmspeed.baselines.declared import extends, what_differs
from pytest_llmspeed.baselines.sessions import Series, Session
from pytest_llmspeed.regression.second_look import HISTORY
from pytest_llmspeed.regression.session_test import WINDOW

FIRST_LEVEL = "first"
"""The level of a test before any change was accepted."""
ANCHOR = 3
"""The number of first sessions of a level that form its anchor, against which creep is seen."""
OLD = timedelta(days=30)
"""From this age on a baseline is told to be old: drivers, images and machines have moved on."""


@dataclass(frozen=True, slots=True)
class Window:
    """The sessions that count, oldest first; `anchor` are the level's first, once they count no more.

    `older` are those before them, which say how far sessions lie apart. `pending` are the suspects at the
    level's end. `level` is what a session judged by this is of.
    """

    sessions: tuple[Session, ...] = ()
    spans_a_day: bool = False
    anchor: tuple[Session, ...] = ()
    older: tuple[Session, ...] = ()
    pending: tuple[Session, ...] = ()
    level: str = FIRST_LEVEL
    differs: tuple[str, ...] = field(default=())
    """The differences, if the test is stored under another key only: "precision: bf16 → fp16", …"""

    @property
    def facts(self) -> Mapping[str, Any]:
        """The facts recorded with the newest session."""
        return self.sessions[-1].facts if self.sessions else {}

    def values(self, stratum: str, metric: str) -> list[array[float]]:
        """A metric's values of one stratum, one array a session that has any."""
        return values_of(self.sessions, stratum, metric)

    def values_of_all(self, stratum: str, metric: str) -> list[array[float]]:
        """The same with the older sessions before them."""
        return values_of((*self.older, *self.sessions), stratum, metric)

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
        """Return how much older the newest session is than one started at a time; None without sessions."""
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
        tuple(recent),
        spans_a_day(recent),
        tuple(anchor),
        tuple(counting[-HISTORY:-WINDOW]),
        tuple(pending),
        level=_newest_level(same),
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
