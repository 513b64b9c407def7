"""The one object of a run: settings, engines, stored sessions, and what the tests recorded."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from pathlib import Path

from pytest_llmspeed.baselines import update
from pytest_llmspeed.baselines.history import History
from pytest_llmspeed.baselines.sessions import Session, Window, session_of_test
from pytest_llmspeed.baselines.store import FolderStore
from pytest_llmspeed.engines.base import Engine
from pytest_llmspeed.engines.pool import Pool
from pytest_llmspeed.engines.registry import Registry
from pytest_llmspeed.errors import StoreError
from pytest_llmspeed.judging.judge import Case, Policy, compared_metrics, judge, slowdowns
from pytest_llmspeed.judging.suite import Judged, judge_suite
from pytest_llmspeed.messages import speed, store
from pytest_llmspeed.metrics.budgets import Budget
from pytest_llmspeed.quality.answers import Baseline, PlannedCheck, Probed
from pytest_llmspeed.quality.prompt_sets import QualitySets
from pytest_llmspeed.quality.snapshot import to_stored
from pytest_llmspeed.records.record import (
    RunRecord,
    SuiteVerdict,
    TestRecord,
    run_to_builtins,
    test_to_stored,
)
from pytest_llmspeed.regression.verdicts import Verdict
from pytest_llmspeed.reports.files import append_lines, write_lines, write_report
from pytest_llmspeed.reports.markdown import markdown
from pytest_llmspeed.reports.terminal import closing_section
from pytest_llmspeed.settings import Settings
from pytest_llmspeed.system import clock, machine
from pytest_llmspeed.system.environment import environment_name


class Run:
    """One pytest invocation, or one worker of it.

    Stored sessions are read once, when the first test is judged: what is judged does not depend on
    the order of tests, nor on what this run will store.
    """

    def __init__(self, settings: Settings, backends: Mapping[str, str], folder: Path) -> None:
        self.settings = settings
        self.folder = folder
        self.registry = Registry(backends)
        self.pool = Pool(self.registry)
        self.store = FolderStore(settings.store_folder)
        self.quality_sets = QualitySets(settings, folder)
        self.records: dict[str, TestRecord] = {}
        self.failed: dict[str, str] = {}
        self.failed_bodies: set[str] = set()
        self.skipped: set[str] = set()
        self.rerun: set[str] = set()
        self.collected: set[str] | None = None
        self.stored_files: list[Path] = []
        self.history = History(self.store)
        self._suite: SuiteVerdict | None = None
        self._selected_comparisons = 0
        self._held_against: dict[str, tuple[Window, Session]] = {}
        self._write_problems: list[str] = []
        self._not_stored: str | None = None
        self._earlier: dict[str, str] = {}
        self._started = clock.wall()

    @cached_property
    def facts(self) -> RunRecord:
        """What is known of this run without its tests."""
        here = machine.machine()
        return RunRecord(
            started=self._started.isoformat(),
            run_id=uuid.uuid4().hex[:8],
            job=machine.ci_job(),
            commit=machine.commit(self.folder),
            facts={
                "cpu": here.cpu,
                "cpus": here.cpus,
                "memory_mib": here.memory_mib,
                "system": here.system,
                "arch": here.arch,
                "python": here.python,
            },
            options=self.settings.shown,
        )

    @cached_property
    def store_problems(self) -> tuple[str, ...]:
        """Why no test can be compared with the store, if there is a reason."""
        named = self.settings.origin("store")
        try:
            self.store.check_readable(None if named is None or self.settings.update else named.place)
        except StoreError as error:
            return (str(error),)
        return ()

    def _shown(self, path: Path) -> str:
        """A path as a person would type it here: relative where it lies below the working directory."""
        here = self.settings.cwd.resolve()
        return str(path.relative_to(here) if path.is_relative_to(here) else path)

    @staticmethod
    def load_libraries() -> None:
        """Import what the judgement needs: before an engine starts, whose memory would seem to hold it."""
        for library in ("numpy", "scipy.special", "scipy.stats"):
            import_module(library)

    def environment_of(self, engine: Engine) -> str:
        """The environment that a session on `engine` belongs to."""
        return environment_name(self.settings.environment, engine.hardware, machine.machine())

    def answers(self, engine: Engine, identity: str, plan: PlannedCheck) -> Baseline:
        """The stored answers that a check of a test on `engine` is compared with."""
        return self.history.answers(self.environment_of(engine), identity, engine.backend, plan)

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
        )
        policy = Policy(
            require_baseline=self.settings.require_baseline,
            strict=self.settings.strict,
            accept=self.settings.accept,
            show_answers=self.settings.show_answers,
            comparing=self.settings.rounds is None,
            storing=self.settings.update,
        )
        judged = replace(judge(record, case, policy), level=window.level)
        if judged.verdict is Verdict.SLOWER and judged.accepted is None:
            self._earlier.setdefault(record.nodeid, next(iter(slowdowns(judged, case)), ""))
        if not self.settings.update:
            return judged
        kept = (to_stored(each.now, text=self.settings.store_text) for each in probed)
        return replace(judged, snapshots=tuple(kept))

    def count_selected(self, comparisons: int) -> None:
        """Note how many comparisons the selected tests make; more than are stored raise M."""
        self._selected_comparisons = comparisons

    def judge_suite(self) -> bool:
        """Judge the tests of this run together; return False if that fails the run."""
        tests = [
            Judged(record, *(self._held_against.get(nodeid) or self._hold(record)))
            for nodeid, record in self.records.items()
            if self._counts_in_the_suite(record)
        ]
        if tests:
            comparisons = max(self._comparisons(each.record.environment) for each in tests)
            self._suite = judge_suite(tests, comparisons, self.settings.accept)
        return self._suite is None or not self._suite.fails

    def _counts_in_the_suite(self, record: TestRecord) -> bool:
        """True if a test passed, or failed by its verdicts alone: neither skipped, nor expected to fail."""
        by_verdicts = record.outcome in ("passed", "failed") and record.nodeid not in self.failed_bodies
        return by_verdicts and bool(record.comparisons) and record.verdict is not Verdict.INVALID

    def _comparisons(self, environment: str) -> int:
        """M: the comparisons stored for an environment, or of the selected tests if those are more."""
        return max(1, self._selected_comparisons, self.history.comparisons(environment))

    def _hold(self, record: TestRecord) -> tuple[Window, Session]:
        """The stored sessions that a test is held against, and itself as a session."""
        return self.history.window(record), self._session(record)

    def _session(self, record: TestRecord) -> Session:
        facts = self.facts
        run = {
            "started": facts.started,
            "id": facts.run_id,
            "job": facts.job,
            "commit": facts.commit,
            "environment": facts.facts,
        }
        return session_of_test(test_to_stored(record), run)

    @property
    def finished(self) -> RunRecord:
        """The record of this run with all its tests."""
        tests = (self._accepted(self._after_all(record)) for record in self.records.values())
        return replace(self.facts, tests=tuple(tests), suite=self._suite)

    def _accepted(self, test: TestRecord) -> TestRecord:
        """The test, accepted if it is of a suite whose slowdown was, and has no problem of its own."""
        if self._suite is None or test.problems or not self._suite.concerns(test):
            return test
        return replace(test, accepted=test.accepted or self._suite.accepted)

    def _after_all(self, record: TestRecord) -> TestRecord:
        """The record with what was beside its body: a teardown or subtest that failed, an attempt before."""
        if record.nodeid in self.failed and record.outcome == "passed":
            record = replace(record, outcome=self.failed[record.nodeid])
        if record.nodeid not in self.rerun:
            return record
        said = (store.not_stored_after_rerun(),) if self.settings.update and not record.problems else ()
        return replace(record, rerun=True, advice=(*record.advice, *said))

    def write(self, *, may_store: bool) -> bool:
        """Write baselines, if asked for and allowed, and the reports; return False if any of it failed.

        A step summary is nobody's order: one that cannot be written is told, and fails nothing.
        """
        if self.settings.update:
            self._not_stored = self._what_is_not_stored() if may_store else store.update_stopped()
        writers = [self._write_baselines] if self.settings.update and may_store else []
        writers += [self._write_json, self._write_markdown]
        done = [self._is_done(writer) for writer in writers]
        self._is_done(self._add_to_step_summary)
        return all(done)

    def _what_is_not_stored(self) -> str | None:
        """The line on an update that stores less than all of its tests, None if it stores them all."""
        refused = update.refused(self.finished)
        if self.skipped:
            refused["skipped"] = sorted(self.skipped | set(refused.get("skipped", ())))
        stored = len(self.records.keys() - {test for tests in refused.values() for test in tests})
        return store.update_outcome(stored, refused) if refused or not stored else None

    def _is_done(self, writer: Callable[[], None]) -> bool:
        """Let something be written; return False, and keep the reason for the reports, if it cannot be."""
        try:
            writer()
        except StoreError as error:
            self._write_problems.append(str(error))
            return False
        return True

    def _write_baselines(self) -> None:
        self.stored_files = update.write(update.plan(self.finished), self.store)

    def _write_json(self) -> None:
        if path := self.settings.json_file:
            write_report(path, run_to_builtins(self.finished, text=self.settings.json_text))

    def _write_markdown(self) -> None:
        if path := self.settings.markdown_file:
            write_lines(path, self.markdown())

    def _add_to_step_summary(self) -> None:
        if self.records and self.settings.step_summary:
            append_lines(self.folder / self.settings.step_summary, self.markdown())

    def markdown(self) -> Iterator[str]:
        """The lines of the markdown report."""
        return markdown(
            self.finished.tests, suite=self._suite, stored=self.stored_files, problems=self._problems
        )

    def closing_section(self, *, verbose: bool) -> Iterator[str]:
        """The lines of the closing section; none where no test was measured."""
        return closing_section(
            self.finished.tests,
            suite=self._suite,
            verbose=verbose,
            stored=self.stored_files,
            problems=self._problems,
        )

    @property
    def _problems(self) -> list[str]:
        """What could not be read or written, and what is stored of tests that are gone."""
        said = [store.gone(lost)] if (lost := self._gone()) else []
        if self.stored_files and (repeats := self._repeats()):
            said.append(speed.same_job(repeats, self.facts.job))
        if self.settings.rounds is not None and self.records:
            said.append(speed.smoke_run(self.settings.rounds))
        untold = [self._not_stored] if self._not_stored and not self._write_problems else []
        return [*self.history.problems, *self._write_problems, *untold, *said]

    def _repeats(self) -> int:
        """How many stored sessions do not count, since one of the same CI job does."""
        stored = [test for test in self.finished.tests if update.may_be_stored(test)]
        held = (self._held_against.get(test.nodeid) or self._hold(test) for test in stored)
        return sum(
            not now.starts_level and now.replicate in {session.replicate for session in window.sessions}
            for window, now in held
        )

    def _gone(self) -> list[str]:
        """The stored tests that no longer exist; of a file that was not looked into nothing is known."""
        collected = self.collected or set()
        files = {identity.partition("::")[0] for identity in collected}
        lost = ((identity, identity.partition("::")[0]) for identity in self.history.gone(collected))
        return [
            test for test, file in lost if collected and (file in files or not (self.folder / file).exists())
        ]

    def close(self) -> None:
        """Stop all engines."""
        self.pool.close()
