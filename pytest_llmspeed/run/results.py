"""What the tests of a run recorded, held against the stored sessions: test by test, then together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from pytest_llmspeed.baselines.history import History
from pytest_llmspeed.baselines.run_file import read_run_file
from pytest_llmspeed.baselines.sessions import Session, session_of_record
from pytest_llmspeed.baselines.store import FolderStore
from pytest_llmspeed.baselines.update import may_be_stored
from pytest_llmspeed.baselines.window import Window
from pytest_llmspeed.judging.case import Case, Policy
from pytest_llmspeed.judging.comparing import compared_metrics
from pytest_llmspeed.judging.consequences import slowdowns
from pytest_llmspeed.judging.deferring import deferred
from pytest_llmspeed.judging.judge import judge
from pytest_llmspeed.judging.suite import JudgedTest, judge_suite
from pytest_llmspeed.metrics.budgets import Budget
from pytest_llmspeed.metrics.reasons import Explanation, Reason
from pytest_llmspeed.quality.answers import Probed
from pytest_llmspeed.quality.snapshot import to_stored
from pytest_llmspeed.records.record import RunRecord, SuiteVerdict, TestRecord
from pytest_llmspeed.regression.verdicts import Verdict
from pytest_llmspeed.reports.stored_side import StoredSide
from pytest_llmspeed.settings import Settings


class Results:
    """The records of a run by test, and their verdicts.

    Stored sessions are read once, when the first test is judged: what is judged does not depend on
    the order of tests, nor on what this run will store.
    """

    def __init__(
        self,
        settings: Settings,
        store: FolderStore,
        facts: RunRecord,
        not_counted: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._settings = settings
        self.facts = facts
        self.history = History(store, not_counted)
        self.records: dict[str, TestRecord] = {}
        self.failed: dict[str, str] = {}
        self.failed_bodies: set[str] = set()
        self.skipped: set[str] = set()
        self.rerun: set[str] = set()
        self.suite: SuiteVerdict | None = None
        self._selected_comparisons = 0
        self._held_against: dict[str, tuple[Window, Session]] = {}
        self._earlier: dict[str, Explanation] = {}

    def judge(
        self,
        record: TestRecord,
        budgets: Sequence[Budget],
        overridden_in: str | None,
        probed: Sequence[Probed] = (),
    ) -> TestRecord:
        """Return the record with its verdicts and, for an update, what the store will keep of its answers."""
        environment = record.environment
        window, now = self._held_against[record.nodeid] = self._hold(record)
        case = Case(
            budgets=budgets,
            window=window,
            now=now,
            comparisons=self._comparisons(environment),
            place=self._shown(self.history.folder(environment)),
            elsewhere=self.history.elsewhere(environment),
            unreadable=self.history.unreadable(environment),
            earlier=self._earlier.get(record.nodeid),
            overridden_in=overridden_in,
            priors={
                metric: self.history.prior(environment, metric)
                for series in now.series.values()
                for metric in compared_metrics(series, budgets)
            },
            quality=probed,
            first=self._first_jobs.get(record.nodeid),
        )
        policy = Policy(
            require_baseline=self._settings.require_baseline,
            strict=self._settings.strict,
            accept=self._settings.accept,
            show_answers=self._settings.show_answers,
            comparing=self._settings.rounds is None,
            storing=self._settings.update,
        )
        judged = replace(judge(record, case, policy), level=window.level)
        if self._settings.defer is not None:
            judged = deferred(judged, case)
        if judged.verdict is Verdict.SLOWER and judged.accepted is None:
            for slowdown in slowdowns(judged, case)[:1]:
                self._earlier.setdefault(record.nodeid, slowdown)
        if not self._settings.update:
            return judged
        kept = (to_stored(each.now, text=self._settings.store_text) for each in probed)
        return replace(judged, snapshots=tuple(kept))

    @cached_property
    def _first_jobs(self) -> dict[str, Session]:
        """The sessions of the first job by node id, if this run is a second look."""
        if self._settings.second_look_file is None:
            return {}
        file = read_run_file(self._settings.second_look_file)
        return {str(test["nodeid"]): session for test, session in zip(file.tests, file.sessions, strict=True)}

    @property
    def wanted_again(self) -> frozenset[str]:
        """The tests that the first job deferred."""
        return frozenset(self._first_jobs)

    def count_selected(self, comparisons: int) -> None:
        """Note how many comparisons the selected tests make; more than are stored raise M."""
        self._selected_comparisons = comparisons

    def judge_suite(self) -> bool:
        """Judge the tests of this run together; return False if that fails the run."""
        tests = [
            JudgedTest(record, *(self._held_against.get(nodeid) or self._hold(record)))
            for nodeid, record in self.records.items()
            if self._counts_in_the_suite(record)
        ]
        if tests:
            comparisons = max(self._comparisons(test.record.environment) for test in tests)
            self.suite = judge_suite(tests, comparisons, self._settings.accept)
        return self.suite is None or not self.suite.fails

    def _counts_in_the_suite(self, record: TestRecord) -> bool:
        """True if a test passed, or failed by its verdicts alone: neither skipped, nor expected to fail."""
        by_verdicts = record.outcome in ("passed", "failed") and record.nodeid not in self.failed_bodies
        compared = bool(record.comparisons) and not any(found.blocks for found in record.comparisons)
        return by_verdicts and compared and record.verdict is not Verdict.INVALID

    def _comparisons(self, environment: str) -> int:
        """M: the comparisons stored for an environment, or of the selected tests if those are more."""
        return max(1, self._selected_comparisons, self.history.comparisons(environment))

    def _hold(self, record: TestRecord) -> tuple[Window, Session]:
        """The stored sessions that a test is held against, and itself as a session."""
        return self.history.window(record), session_of_record(record, self.facts)

    @property
    def finished(self) -> RunRecord:
        """The record of this run with all its tests."""
        tests = (self._accepted(self._after_all(record)) for record in self.records.values())
        return replace(self.facts, tests=tuple(tests), suite=self.suite)

    def _accepted(self, test: TestRecord) -> TestRecord:
        """The test, accepted if it is of a suite whose slowdown was, and has no problem of its own."""
        if self.suite is None or test.problems or not self.suite.concerns(test):
            return test
        return replace(test, accepted=test.accepted or self.suite.accepted)

    def _after_all(self, record: TestRecord) -> TestRecord:
        """The record with what was beside its body: a teardown or subtest that failed, an attempt before."""
        if record.nodeid in self.failed and record.outcome == "passed":
            record = replace(record, outcome=self.failed[record.nodeid])
        if record.nodeid not in self.rerun:
            return record
        advice = (Reason.NOT_STORED_AFTER_RERUN(),) if self._settings.update and not record.problems else ()
        return replace(record, rerun=True, advice=(*record.advice, *advice))

    def repeats(self) -> int:
        """Return how many stored sessions do not count, since one of the same CI job does."""
        stored = [test for test in self.finished.tests if may_be_stored(test)]
        held = (self._held_against.get(test.nodeid) or self._hold(test) for test in stored)
        return sum(
            not now.starts_level and now.replicate in {session.replicate for session in window.sessions}
            for window, now in held
        )

    def stored_sides(self) -> dict[str, StoredSide]:
        """Return the stored sessions of each test, and itself as a session, by node id."""
        sides = {}
        for nodeid, record in self.records.items():
            window, now = self._held_against.get(nodeid) or self._hold(record)
            sides[nodeid] = StoredSide(window.sessions, now, self.history.sessions(record))
        return sides

    def _shown(self, path: Path) -> str:
        """A path as a person would type it here: relative where it lies below the working directory."""
        here = self._settings.cwd.resolve()
        return str(path.relative_to(here) if path.is_relative_to(here) else path)
