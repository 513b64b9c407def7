"""The sessions of a test over time, and where they moved to another level. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from pytest_llmspeed.baselines.sessions import Series, Session
from pytest_llmspeed.baselines.stored_tests import StoredTest
from pytest_llmspeed.baselines.window import part_names
from pytest_llmspeed.metrics.sample import metric_of
from pytest_llmspeed.metrics.stats import quantile_median_unbiased
from pytest_llmspeed.regression.change_points import change_points
from pytest_llmspeed.regression.session_test import LEAST_REQUESTS, LOW
from pytest_llmspeed.system.environment import what_changed

LATEST = 3
"""The newest sessions, which are not history yet: their change is the gate's to find."""


@dataclass(frozen=True, slots=True)
class TimelinePoint:
    """One session of one metric: `low` at the fastest 10% of its requests, `middle` their median."""

    session: Session
    low: float
    middle: float


@dataclass(frozen=True, slots=True)
class LevelChange:
    """From the point `place` on the metric has another level; levels are medians of `low`.

    `last_before` and `first_after` are the sessions on either side: between their commits it changed.
    `changed` says what else is recorded of them and differs, "name: old → new".
    """

    place: int
    before: float
    after: float
    p: float
    last_before: Session
    first_after: Session
    changed: tuple[str, ...]
    is_worse: bool

    @property
    def commits(self) -> tuple[str | None, str | None]:
        """The commits of both sessions; None where none is recorded."""
        return self.last_before.facts.get("commit"), self.first_after.facts.get("commit")


@dataclass(frozen=True, slots=True)
class Timeline:
    """One metric of one series of a test, oldest session first, one for each CI job."""

    test: StoredTest
    part: str
    metric: str
    points: tuple[TimelinePoint, ...]
    changes: tuple[LevelChange, ...]

    @property
    def levels(self) -> Iterator[tuple[float, Sequence[TimelinePoint]]]:
        """Each level with its points."""
        bounds = [0, *(change.place for change in self.changes), len(self.points)]
        for first, last in pairwise(bounds):
            points = self.points[first:last]
            yield median(point.low for point in points), points


def timelines(test: StoredTest) -> Iterator[Timeline]:
    """Yield the timelines of a test: each metric that the gate compares, of each of its series."""
    sessions = list(_one_of_each_job(test.sessions))
    names = part_names(test.newest.series)
    for stratum in test.newest.series:
        for metric in test.newest.gated:
            points = tuple(_points(sessions, stratum, metric))
            if points:
                yield Timeline(test, names[stratum], metric, points, tuple(_changes(points, metric)))


def _one_of_each_job(sessions: Iterable[Session]) -> Iterator[Session]:
    """The first session of each CI job: the others are not independent of it."""
    seen = set[str]()
    for session in sessions:
        if session.replicate not in seen:
            seen.add(session.replicate)
            yield session


def _points(sessions: Iterable[Session], stratum: str, metric: str) -> Iterator[TimelinePoint]:
    for session in sessions:
        series = session.series.get(stratum)
        values = _usable(series, metric)
        if len(values) >= LEAST_REQUESTS:
            yield TimelinePoint(session, low_of(values, metric), median(values))


def low_of(values: Sequence[float], metric: str) -> float:
    """Return the place at which sessions are compared first: the fastest 10% of some values."""
    q = LOW.quantile if metric_of(metric).better == "lower" else 1 - LOW.quantile
    return quantile_median_unbiased(sorted(values), q)


def _usable(series: Series | None, metric: str) -> Sequence[float]:
    return [value for value in series.values.get(metric, ()) if value > 0] if series else []


def _changes(points: Sequence[TimelinePoint], metric: str) -> Iterator[LevelChange]:
    lower_is_better = metric_of(metric).better == "lower"
    for found in change_points([point.low for point in points]):
        before, after = points[found.place - 1].session, points[found.place].session
        changed = what_changed(before.facts, after.facts)
        yield LevelChange(
            place=found.place,
            before=found.before,
            after=found.after,
            p=found.p,
            last_before=before,
            first_after=after,
            changed=tuple(change for change in changed if not change.startswith("commit: ")),
            is_worse=(found.after > found.before) == lower_is_better,
        )
