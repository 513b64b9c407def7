"""What is stored, read once for each environment, and what the judgement takes from it."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_llmspeed.baselines.sessions import Session
from pytest_llmspeed.baselines.store import FolderStore
from pytest_llmspeed.baselines.window import Window, current_level, gated_comparisons, window
from pytest_llmspeed.engines.backend import Backend
from pytest_llmspeed.errors import StoreError
from pytest_llmspeed.metrics.reasons import Explanation, Reason
from pytest_llmspeed.metrics.sample import metric_of
from pytest_llmspeed.quality.answers import Baseline, PlannedCheck
from pytest_llmspeed.quality.snapshot import baseline_of
from pytest_llmspeed.records.record import TestRecord
from pytest_llmspeed.regression.session_test import Prior
from pytest_llmspeed.regression.suite_test import learned_prior, teachers


@dataclass
class _Environment:
    """The sessions of one environment by identity, and what was derived from them."""

    by_identity: dict[str, list[Session]]
    comparisons: int
    problems: tuple[str, ...]
    unreadable: Explanation | None = None
    priors: dict[str, Prior] = field(default_factory=dict)


class History:
    """A store as the judgement sees it. Nothing that this run writes is seen in it.

    `not_counted` is entered around each read: what is read is not part of an engine's memory.
    """

    def __init__(
        self,
        store: FolderStore,
        not_counted: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._store, self._not_counted = store, not_counted
        self._loaded: dict[str, _Environment] = {}

    def window(self, record: TestRecord) -> Window:
        """The stored sessions that a test is compared with."""
        sessions = self._of(record.environment).by_identity.get(record.identity, ())
        return window(sessions, record.identity, record.key)

    def sessions(self, record: TestRecord) -> list[Session]:
        """All stored sessions of a test under its key, oldest first."""
        stored = self._of(record.environment).by_identity.get(record.identity, ())
        return sorted((s for s in stored if s.key == record.key), key=lambda s: (s.started, s.run_id))

    def answers(self, environment: str, identity: str, backend: Backend, plan: PlannedCheck) -> Baseline:
        """The stored answers that a check of a test is compared with, those of its level's beginning.

        They are of the same model in the same precision, or of the precision that the check names.
        """
        wanted = {"backend": backend.name, "model": backend.model, "revision": backend.revision}
        wanted |= {"precision": backend.precision}
        if vs := plan.limits.quality_vs:  # the file of a quantised model has a name and a hash of its own
            wanted = {"backend": backend.name, "precision": vs}
        stored = self._of(environment).by_identity.get(identity, ())
        fitting = [s for s in stored if all(s.key.get(name) == value for name, value in wanted.items())]
        by_time = sorted(fitting, key=lambda s: (s.started, s.run_id))
        # of several keys, each with levels of its own: only time orders them
        level = current_level([replace(session, level=None) for session in by_time])
        kept = [snapshot for session in level for snapshot in session.snapshots]
        try:
            return baseline_of([each for each in kept if each["prompts"] == plan.prompt_set.name])
        except (LookupError, TypeError, ValueError, ArithmeticError, struct.error, zlib.error) as error:
            what = f"the stored answers of {identity} to {plan.prompt_set.name!r} are corrupt"
            raise StoreError(f"{what} ({error!r}); restore or delete the run files of that test") from error

    def comparisons(self, environment: str) -> int:
        """Return how many comparisons the gate makes in an environment, by what is stored."""
        return self._of(environment).comparisons

    def prior(self, environment: str, metric: str) -> Prior:
        """Return how far sessions differ in a metric, learned from the stored tests if there are enough."""
        found = self._of(environment)
        if metric not in found.priors:
            found.priors[metric] = learned_prior(list(_lessons(found, metric)))
        return found.priors[metric]

    def elsewhere(self, environment: str) -> tuple[str, ...]:
        """Return where else baselines are stored, if an environment has none."""
        if self._of(environment).by_identity:
            return ()
        return tuple(name for name in self._store.environments() if name != environment)

    def folder(self, environment: str) -> Path:
        """The folder that an environment's baselines are in, or would be."""
        return self._store.folder_of(environment)

    def unreadable(self, environment: str) -> Explanation | None:
        """Return why no baseline of an environment can be read although some are stored; None otherwise."""
        return self._of(environment).unreadable

    def gone(self, collected: set[str]) -> list[str]:
        """The tests that were not collected, of the newest run file of each environment looked at.

        An older one may hold tests long gone beside those that are still needed.
        """
        return sorted(
            {identity for found in self._loaded.values() for identity in _newest(found)} - collected
        )

    @property
    def problems(self) -> list[str]:
        """A sentence for each run file that could not be read."""
        return [problem for found in self._loaded.values() for problem in found.problems]

    def _of(self, environment: str) -> _Environment:
        if environment not in self._loaded:
            with self._not_counted():
                self._loaded[environment] = self._load(environment)
        return self._loaded[environment]

    def _load(self, environment: str) -> _Environment:
        try:
            stored = self._store.load(environment)
        except StoreError as error:
            return _Environment({}, 0, (), Reason.AS_WRITTEN(text=str(error)))
        by_identity: dict[str, list[Session]] = {}
        for session in stored.sessions:
            by_identity.setdefault(session.identity, []).append(session)
        unreadable = (
            Reason.NO_RUN_FILE_READABLE(place=str(self.folder(environment)), files=stored.files)
            if stored.is_unreadable
            else None
        )
        return _Environment(by_identity, gated_comparisons(stored.sessions), stored.problems, unreadable)


def _newest(found: _Environment) -> Iterator[str]:
    """The tests of the newest run file of an environment."""
    sessions = [session for stored in found.by_identity.values() for session in stored]
    newest = max(((s.started, s.run_id) for s in sessions), default=None)
    return (s.identity for s in sessions if (s.started, s.run_id) == newest)


def _lessons(found: _Environment, metric: str) -> Iterator[Sequence[Sequence[float]]]:
    """The sessions of some tests, signed so that larger is worse; of less than a day none is a lesson."""
    for identity in teachers(sorted(found.by_identity)):
        for taught in _windows(found.by_identity[identity]):
            for stratum in taught.sessions[-1].series if taught.spans_a_day else ():
                values = taught.values(stratum, metric)
                upright = metric_of(metric).better == "lower"
                yield values if upright else [[1 / value for value in session] for session in values]


def _windows(sessions: Sequence[Session]) -> Iterator[Window]:
    """The current window of each key that a test was stored under."""
    keys = {json.dumps(session.key, sort_keys=True): session for session in sessions}
    for session in keys.values():
        yield window(sessions, session.identity, session.key)
