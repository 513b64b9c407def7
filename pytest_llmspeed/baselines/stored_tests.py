"""Sessions → the tests that they are of; which tests of two sides are the same, which runs are needed.

A *stored test* is all sessions of one identity under one key in one environment: what one window
is taken from. Pure functions only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_llmspeed.baselines.declared import what_differs
from pytest_llmspeed.baselines.sessions import Series, Session
from pytest_llmspeed.baselines.window import ANCHOR, counting_and_pending, current_level
from pytest_llmspeed.regression.second_look import HISTORY
from pytest_llmspeed.system.environment import what_changed

RunId = tuple[str, str]
"""Environment and run: a run that measured in two environments has a file in each."""


@dataclass(frozen=True, slots=True)
class StoredTest:
    """All sessions of one test under one key in one environment, oldest first; never empty."""

    sessions: tuple[Session, ...]

    @property
    def identity(self) -> str:
        """The test."""
        return self.newest.identity

    @property
    def environment(self) -> str:
        """The environment it ran in."""
        return self.newest.environment

    @property
    def newest(self) -> Session:
        """Its last session."""
        return self.sessions[-1]

    @property
    def level(self) -> list[Session]:
        """The sessions of its current level, oldest first, one for each CI job."""
        return current_level(self.sessions)

    @property
    def counting(self) -> Sequence[Session]:
        """Those of its current level that count: all but the suspects at its end."""
        return counting_and_pending(self.level)[0]

    @property
    def place(self) -> dict[str, Any]:
        """Environment and key, to tell it from others of the same test."""
        workload = " + ".join(self.newest.key["workload"])
        return {"environment": self.environment, **self.newest.key, "workload": workload}

    @property
    def engine(self) -> str:
        """Backend, model and precision in a few words."""
        named = (self.newest.key.get(name) for name in ("backend", "model", "precision"))
        return " ".join(str(value) for value in named if value)


def slot_of(session: Session) -> tuple[str, str, str]:
    """Return what the sessions of one stored test have in common."""
    return session.environment, session.identity, json.dumps(session.key, sort_keys=True)


def stored_tests(sessions: Iterable[Session]) -> list[StoredTest]:
    """Return the tests that some sessions, in any order, are of; sorted by environment and identity."""
    slots: dict[tuple[str, str, str], list[Session]] = {}
    for session in sorted(sessions, key=lambda s: (s.started, s.run_id)):
        slots.setdefault(slot_of(session), []).append(session)
    return [StoredTest(tuple(slots[slot])) for slot in sorted(slots)]


@dataclass(frozen=True, slots=True)
class Pair:
    """A test on both sides; `differs` says what of environment and key is not the same."""

    old: StoredTest
    new: StoredTest
    differs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pairing:
    """The tests of two sides: those on both, and those on one only."""

    pairs: tuple[Pair, ...]
    only_old: tuple[str, ...]
    only_new: tuple[str, ...]


def paired(old: Sequence[StoredTest], new: Sequence[StoredTest]) -> Pairing:
    """Return which tests of two sides belong together.

    The same environment and key go together; what is left of a test goes with the nearest of the
    other side that is left, and the pair says what differs.
    """
    left = {slot_of(test.newest): test for test in old}
    twins = {slot: left.pop(slot, None) for slot in [slot_of(test.newest) for test in new]}
    pairs, alone = [], []
    for test in new:
        partner = twins[slot_of(test.newest)] or _nearest(test, left.values())
        if partner is None:
            alone.append(test.identity)
        else:
            pairs.append(Pair(partner, test, tuple(_differences(partner, test))))
    used = {slot_of(pair.old.newest) for pair in pairs}
    unused = [test.identity for slot, test in left.items() if slot not in used]
    return Pairing(tuple(pairs), _once(unused), _once(alone))


def _differences(old: StoredTest, new: StoredTest) -> list[str]:
    """Return what of environment and key is not the same; of the workload only what differs in it."""
    before, now = ({**test.place, "workload": None} for test in (old, new))
    workload = what_differs(old.newest.key["workload"], new.newest.key["workload"])
    return what_changed(before, now) + ([f"workload: {', '.join(workload)}"] if workload else [])


def _nearest(test: StoredTest, others: Iterable[StoredTest]) -> StoredTest | None:
    """The one of the same identity from which the least differs, of these the newest."""
    same = [other for other in others if other.identity == test.identity]
    newest_first = sorted(same, key=lambda other: other.newest.started, reverse=True)
    return min(newest_first, key=lambda other: len(what_changed(other.place, test.place)), default=None)


def aligned(old: Session, now: Session) -> Session:
    """Return the old session with its series under the names of the new one's.

    Names follow from what a call declares, so that of `measure` and `load` another declaration is
    another name. Series of one kind and label that have no namesake belong together in their order.
    """
    unmatched = [name for name in now.series if name not in old.series]
    renamed: dict[str, Series] = {}
    for name, series in old.series.items():
        twin = None
        if name not in now.series:
            twin = next((each for each in unmatched if _kind(now.series[each]) == _kind(series)), None)
        if twin is not None:
            unmatched.remove(twin)
        renamed[twin or name] = series
    return replace(old, series=renamed)


def _kind(series: Series) -> tuple[str | None, bool, bool]:
    return series.label, series.of_load, series.free


def _once(identities: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(identities))


def needed_runs(sessions: Iterable[Session]) -> set[RunId]:
    """Return the runs without which some window, level or anchor would not be what it is."""
    tests = stored_tests(sessions)
    needed = {_run(session) for test in tests for session in _needed(test)}
    while more := {run for test in tests for run in _first_of_their_job(test, needed)} - needed:
        needed |= more
    return needed


def _needed(test: StoredTest) -> list[Session]:
    """The anchor with the start of the level, the window with what is pending, and the newest."""
    counting, pending = counting_and_pending(test.level)
    return [*counting[:ANCHOR], *counting[-HISTORY:], *pending, test.newest]


def _first_of_their_job(test: StoredTest, needed: set[RunId]) -> Iterable[RunId]:
    """The sessions that count for a CI job of which a later one is kept: else that one would count."""
    first: Mapping[str, Session] = {session.replicate: session for session in test.level}
    for session in test.sessions:
        if _run(session) in needed and session.replicate in first:
            yield _run(first[session.replicate])


def _run(session: Session) -> RunId:
    return session.environment, session.run_id
