"""`llmspeed history [TEST]`: the sessions of tests over time, and where they moved to another level."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from pytest_llmspeed.baselines.renames import read_renames
from pytest_llmspeed.baselines.report_set import read_reports
from pytest_llmspeed.baselines.stored_tests import StoredTest, stored_tests
from pytest_llmspeed.baselines.timeline import LATEST, LevelChange, Timeline, timelines
from pytest_llmspeed.cli.output import Result, counted, listed
from pytest_llmspeed.errors import StoreError, did_you_mean
from pytest_llmspeed.messages.figures import percent, quantity
from pytest_llmspeed.messages.speed import UPDATE
from pytest_llmspeed.regression.change_points import LEAST_SIDE

SCHEMA = "llmspeed-history/1"
BARS = "▁▂▃▄▅▆▇█"
MOST_BARS = 40
NOT_YET = f"the newest {LATEST} sessions are not history yet: what changed there, the gate finds"


def history(place: Path, wanted: str | None) -> Result:
    """Return the history of all tests in a store or a folder of reports, or of those named like `wanted`.

    Raises `StoreError` if there is none, or no such test.
    """
    if not place.exists():
        fill = f"name a store or a folder of reports with --store, or fill it: pytest {UPDATE}"
        raise StoreError(f"{place}: no such folder; {fill}")
    reports = read_reports(place)
    renames = read_renames(place)
    tests = stored_tests(renames.all_applied(reports.sessions))
    found = [timeline for test in _named(tests, wanted) for timeline in timelines(test)]
    if not found:
        raise StoreError(f"{place}: no test measured five requests or more; measure more: rounds=10")
    return Result(
        lines=tuple(_lines(found)),
        shown={"schema": SCHEMA, "timelines": [_shown(timeline) for timeline in found]},
        warnings=(*reports.problems, *renames.problems),
    )


def _named(tests: Sequence[StoredTest], wanted: str | None) -> Sequence[StoredTest]:
    if wanted is None:
        return tests
    fitting = [test for test in tests if wanted in test.identity]
    if not fitting:
        known = list(dict.fromkeys(test.identity for test in tests))
        hint = did_you_mean(wanted, known) if len(known) <= 8 else f"known: {listed(known)}"
        raise StoreError(f"no test is called {wanted!r}; {hint}")
    return fitting


def _lines(found: Sequence[Timeline]) -> Iterator[str]:
    before = None
    for timeline in found:
        if timeline.test is not before:
            yield from ([""] if before else [])
            yield f"{timeline.test.identity}  ({timeline.test.engine}, {timeline.test.environment})"
            before = timeline.test
        yield from _of_timeline(timeline)
    yield ""
    worse = sum(change.is_worse for timeline in found for change in timeline.changes)
    changes = sum(len(timeline.changes) for timeline in found)
    yield f"{counted(changes, 'change')} of level, {worse} for the worse; {NOT_YET}"


def _of_timeline(timeline: Timeline) -> Iterator[str]:
    points = timeline.points
    name = f"{timeline.metric} of {timeline.part}" if timeline.part else timeline.metric
    span = f"{points[0].session.started[:10]} to {points[-1].session.started[:10]}"
    yield f"  {name}: {counted(len(points), 'session')}, {span}"
    yield f"    {_bars([point.low for point in points])}  {_levels(timeline)}"
    if len(points) < 2 * LEAST_SIDE:
        yield f"    too few for a change to show: at least {2 * LEAST_SIDE} sessions are needed"
    for change in timeline.changes:
        yield from _of_change(change, timeline.metric)


def _levels(timeline: Timeline) -> str:
    return " → ".join(quantity(level, timeline.metric) for level, _ in timeline.levels)


def _of_change(change: LevelChange, metric: str) -> Iterator[str]:
    word = "worse" if change.is_worse else "better"
    figures = f"{quantity(change.before, metric)} → {quantity(change.after, metric)}"
    day = change.first_after.started[:10]
    yield f"    {day} {word}: {percent(change.after / change.before)}, {figures} (p = {change.p:.2g})"
    first, last = change.commits
    if first or last:
        yield f"      commits {first or 'unknown'}..{last or 'unknown'}"
    for what in change.changed:
        yield f"      {what}"


def _bars(values: Sequence[float]) -> str:
    """The values as a line of bars, the newest at the right; of long histories the medians of stretches."""
    size = -(-len(values) // MOST_BARS)
    kept = [median(values[first : first + size]) for first in range(0, len(values), size)]
    low, high = min(kept), max(kept)
    span = (high - low) or 1.0
    return "".join(BARS[min(int((value - low) / span * len(BARS)), len(BARS) - 1)] for value in kept)


def _shown(timeline: Timeline) -> dict[str, Any]:
    return {
        "identity": timeline.test.identity,
        "environment": timeline.test.environment,
        "engine": timeline.test.engine,
        "part": timeline.part,
        "metric": timeline.metric,
        "sessions": [
            {
                "started": point.session.started,
                "run": point.session.run_id,
                "commit": point.session.facts.get("commit"),
                "fastest_10%": point.low,
                "median": point.middle,
            }
            for point in timeline.points
        ],
        "changes": [_shown_change(change) for change in timeline.changes],
    }


def _shown_change(change: LevelChange) -> dict[str, Any]:
    return {
        "from_session": change.place,
        "started": change.first_after.started,
        "before": change.before,
        "after": change.after,
        "ratio": change.after / change.before,
        "p": change.p,
        "is_worse": change.is_worse,
        "commits": list(change.commits),
        "changed": list(change.changed),
    }
