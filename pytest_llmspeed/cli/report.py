"""`llmspeed report RUN.json… -o FILE.html`: the HTML report of a run, beside the runs before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_llmspeed.baselines.report_set import Measured, read_reports
from pytest_llmspeed.baselines.run_file import RunFile
from pytest_llmspeed.baselines.sessions import Session
from pytest_llmspeed.cli.output import Result, counted
from pytest_llmspeed.errors import StoreError
from pytest_llmspeed.records.record import RunRecord, SuiteVerdict, suite_from_builtins
from pytest_llmspeed.reports.files import write_lines
from pytest_llmspeed.reports.html.page import html_report
from pytest_llmspeed.reports.stored_side import StoredSide

SCHEMA = "llmspeed-report/1"


def report(paths: Sequence[Path], target: Path) -> Result:
    """Write the HTML report of the newest of some runs; the others are shown as its stored sessions.

    Raises `StoreError` for a path without a report, or a target that cannot be written.
    """
    sets = [read_reports(path) for path in paths]
    measured = [each for found in sets for each in found.measured]
    if not measured:
        raise StoreError(f"{paths[0]}: no test in it; name a report of tests that were measured")
    newest = max(measured, key=lambda each: (each.session.started, each.session.run_id)).session
    now = [each for each in measured if each.session.run_id == newest.run_id]
    before = sorted(
        (each.session for each in measured if each.session.run_id != newest.run_id),
        key=lambda session: (session.started, session.run_id),
    )
    file = next(file for found in sets for file in found.files if file.run["id"] == newest.run_id)
    run = RunRecord(
        started=newest.started,
        run_id=newest.run_id,
        job=newest.job,
        commit=file.run["commit"],
        facts=file.run.get("environment") or {},
        options=file.run.get("options") or {},
        tests=tuple(each.record for each in now),
        suite=_suite(file),
    )
    write_lines(target, [html_report(run, dict(_stored(now, before)))])
    return Result(
        lines=(f"{target}: {counted(len(now), 'test')}, {counted(len(_runs(before)), 'earlier run')}",),
        shown={"schema": SCHEMA, "file": str(target), "tests": len(now), "earlier": len(_runs(before))},
        warnings=tuple(problem for found in sets for problem in found.problems),
    )


def _suite(file: RunFile) -> SuiteVerdict | None:
    """What the tests of a run say together, None where its file does not say; raises `StoreError`."""
    try:
        return suite_from_builtins(file.run.get("suite_verdict"))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"run.suite_verdict: {type(error).__name__}: {error}"
        raise StoreError(f"{file.path} is corrupt ({what}); restore or delete it") from error


def _stored(now: Sequence[Measured], before: Sequence[Session]) -> Iterator[tuple[str, StoredSide]]:
    for each in now:
        session = each.session
        mine = [s for s in before if s.identity == session.identity and s.key == session.key]
        yield str(each.test["nodeid"]), StoredSide(mine[-10:], session, mine)


def _runs(sessions: Sequence[Session]) -> set[str]:
    return {session.run_id for session in sessions}
