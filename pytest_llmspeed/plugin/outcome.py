"""From a test's state to its record, from its record to a failure, and onto its report and off it."""

from __future__ import annotations

import sysconfig
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_llmspeed.plugin.state import TestState, is_marked, run_of, state_or_none

if TYPE_CHECKING:
    from pytest_llmspeed.engines.base import Engine
    from pytest_llmspeed.metrics.reasons import Explanation
    from pytest_llmspeed.records.record import TestRecord
    from pytest_llmspeed.run.run import Run


PACKAGE = Path(__file__).parents[1]
STDLIB = Path(sysconfig.get_path("stdlib"))


class PerformanceFailure(pytest.fail.Exception):  # type: ignore[misc, name-defined]
    """Fails a test that was measured and found wanting; shown without a traceback."""

    __module__ = "builtins"  # as pytest's own: the summary then says the bare name

    def __init__(self, message: str) -> None:
        from pytest_llmspeed.text.harmless import harmless_lines

        super().__init__(harmless_lines(message), pytrace=False)


def fail_if_wrong(state: TestState) -> None:
    """Fail a test in its set-up for what is wrong with its marks and settings."""
    if state.plan.problems:
        pytest.fail("\n".join(state.plan.problems), pytrace=False)


def without_wait(report: pytest.TestReport, item: pytest.Item) -> None:
    """Take the wait for the device off the duration of a test's set-up: it says nothing about the test."""
    state = state_or_none(item)
    if state is not None and report.when == "setup":
        report.duration = max(0.0, report.duration - state.waited_s)


def conclude(item: pytest.Item, *, body_passed: bool) -> None:
    """Judge what the body of a test measured; its record is then in the test's state.

    That a budgeted test measured nothing is its failure only if the body passed.
    """
    state = _state_now(item)
    if state is None:
        return
    from pytest_llmspeed.metrics.reasons import Reason
    from pytest_llmspeed.plugin.marks import late_problems, overridden_in

    _cut_off(state)
    raw, override = _raw_record(item, state), overridden_in(item)
    counts = raw.measurement.samples or (body_passed and state.must_measure)
    probed = tuple(state.probe.probed.values()) if state.probe else ()
    record = run_of(item.config).results.judge(raw, state.budgets if counts else (), override, probed)
    late = [Reason.AS_WRITTEN(text=text) for text in late_problems(item, state)] if body_passed else []
    unchecked = state.unchecked if counts else ()
    checks = (*record.budgets, *unchecked)
    state.record = replace(record, problems=(*late, *record.problems), budgets=checks)
    _set_properties(item, state.record)


def _state_now(item: pytest.Item) -> TestState | None:
    """The state of a test that is ours, with the marks that were added since it was collected."""
    if state_or_none(item) is None and not is_marked(item):
        return None
    from pytest_llmspeed.plugin.marks import state_of

    return state_of(item)


def check_quality(item: pytest.Item) -> None:
    """Make the quality checks that a test's marks ask for, once its body has passed.

    A check that the body itself has made is not made again.
    """
    state = _state_now(item)
    if state is None or state.probe is None or state.recorder is None or _body_failed(item):
        return
    for plan in state.plan.quality:
        if not state.probe.has_made(plan):
            with state.recorder.turn():
                state.probe.check(plan)


def _set_properties(item: pytest.Item, record: TestRecord) -> None:
    """Set what JUnit shows of the test: the reports of this phase and the next take it from the item.

    Those of an earlier attempt go.
    """
    from pytest_llmspeed.reports.junit import PREFIX, properties

    others = [each for each in item.user_properties if not each[0].startswith(PREFIX)]
    item.user_properties[:] = [*others, *properties(record)]


def note_interrupted(item: pytest.Item) -> None:
    """Keep what an interrupted test had measured, for the report; no phase will report it."""
    if state := state_or_none(item):
        _cut_off(state)
        raw = _raw_record(item, state)
        run_of(item.config).results.records[raw.nodeid] = replace(raw, outcome="interrupted", partial=True)


def _cut_off(state: TestState) -> None:
    """End the measurement: what the body left under way is recorded as far as it came."""
    if state.recorder:
        state.recorder.cut_off()


def fail_on_problems(item: pytest.Item) -> None:
    """Raise `PerformanceFailure` if the body passed and its record has problems."""
    state = state_or_none(item)
    if state and state.record and state.record.problems and not _body_failed(item):
        raise PerformanceFailure("\n".join(map(str, state.record.problems)))


def _body_failed(item: pytest.Item) -> bool:
    """True if the body of a `unittest.TestCase` failed: pytest keeps that back until the report."""
    return bool(getattr(item, "_excinfo", None))


def _raw_record(item: pytest.Item, state: TestState) -> TestRecord:
    """Return what was measured, not judged yet."""
    from pytest_llmspeed.metrics.measurement import Measurement
    from pytest_llmspeed.plugin.parametrize import identity_of, shown_name_of, side_of
    from pytest_llmspeed.records.record import TestRecord

    recorder = state.recorder
    record = TestRecord(
        nodeid=shown_name_of(item),
        identity=identity_of(item),
        side=side_of(item),
        workload=recorder.workload if recorder else (),
        measurement=(
            replace(recorder.measurement, neighbours=recorder.neighbours) if recorder else Measurement()
        ),
    )
    return _on_engine(record, state.engine, run_of(item.config)) if state.engine else record


def _on_engine(record: TestRecord, engine: Engine, run: Run) -> TestRecord:
    """The record with what is known of the engine."""
    running = run.pool.running(engine)
    return replace(
        record,
        environment=run.environment_of(engine),
        backend=replace(engine.backend, load_s=running.load_s),
        measurement=replace(record.measurement, peak_memory_mib=running.peak_memory_mib),
    )


def point_at_the_test(
    report: pytest.TestReport, item: pytest.Item, raised: pytest.ExceptionInfo[BaseException]
) -> None:
    """Let a failure without a traceback that is ours name the line of the test, not one of the plugin."""
    crash = getattr(report.longrepr, "reprcrash", None)
    error = raised.value
    if crash is None or not isinstance(error, pytest.fail.Exception) or error.pytrace:
        return
    if any(Path(str(entry.path)).is_relative_to(PACKAGE) for entry in list(raised.traceback)[-2:]):
        path, line, _ = item.reportinfo()
        report.longrepr.reprcrash = replace(crash, path=str(path), lineno=(line or 0) + 1)  # type: ignore[union-attr]


def show_only_the_users_lines(raised: pytest.ExceptionInfo[BaseException]) -> None:
    """Take our frames, the standard library's and the cause off an error whose message says it all.

    Any other exception may be a bug of ours, and keeps its frames.
    """
    from pytest_llmspeed.errors import LLMSpeedError

    if not isinstance(raised.value, LLMSpeedError):
        return
    raised.value.__cause__ = None  # this suppresses the context too
    theirs = raised.traceback.filter(lambda entry: not _is_inside(Path(str(entry.path))))
    if theirs:
        raised.traceback = theirs


def _is_inside(path: Path) -> bool:
    """True of a file of ours or of the standard library, whose folder holds installed packages too."""
    if path.is_relative_to(PACKAGE):
        return True
    return "site-packages" not in path.parts and path.is_relative_to(STDLIB)


def attach(report: pytest.TestReport, item: pytest.Item) -> None:
    """Put the record on its report, as builtins, so that it crosses from a worker to the controller."""
    state = state_or_none(item)
    if state is not None:
        from pytest_llmspeed.plugin.parametrize import shown_name_of

        report.llmspeed_name = shown_name_of(item)  # type: ignore[attr-defined]
    ends_here = report.when == "call" or (report.when == "setup" and report.failed)
    if state is not None and report.when == "setup" and report.skipped:
        report.llmspeed = None  # type: ignore[attr-defined]
    if state is None or not ends_here:
        return
    from pytest_llmspeed.records.record import test_to_builtins
    from pytest_llmspeed.text.harmless import encodable_all, harmless_lines

    record = state.record or _raw_record(item, state)
    text = run_of(item.config).settings.json_text
    shown = test_to_builtins(replace(record, outcome=_outcome(report)), text=text)
    ours = _says(report, record.problems)
    between = {
        "level": record.level,
        "snapshots": encodable_all(record.snapshots),
        "body_failed": report.failed and not ours,
    }
    report.llmspeed = {**shown, **between}  # type: ignore[attr-defined]
    problems = () if ours else record.problems
    told = [*problems, *record.advice]
    if report.failed and told:
        report.sections.append(("llmspeed", harmless_lines("\n".join(map(str, told)))))


def _says(report: pytest.TestReport, problems: Sequence[Explanation]) -> bool:
    """True if the failure is ours, which says the problems itself."""
    from pytest_llmspeed.text.harmless import harmless_lines

    return bool(problems) and report.longreprtext == harmless_lines("\n".join(map(str, problems)))


def _outcome(report: pytest.TestReport) -> str:
    """The outcome of a test as the phase that ends it says."""
    if hasattr(report, "wasxfail"):
        return "xfailed" if report.skipped else "xpassed"
    if report.failed and report.when != "call":
        return "error"
    return report.outcome


def collect(report: pytest.TestReport, run: Run, *, each_worker: bool) -> None:
    """Take the record off a report; note what failed, also beside the body: a teardown, a subtest.

    An attempt that pytest-rerunfailures follows by another has an outcome of its own. `each_worker` says
    that all workers run all tests: each worker's run of a test is a record.
    """
    from pytest_llmspeed.records.record import test_from_builtins

    shown: dict[str, Any] | None = getattr(report, "llmspeed", None)
    name = _name(report, each_worker=each_worker)
    if shown is None and hasattr(report, "llmspeed"):
        run.results.skipped.add(name)
    if shown is not None:
        run.results.records[name] = replace(test_from_builtins(shown), nodeid=name)
    attempt: str = report.outcome
    if attempt == "rerun":
        run.results.rerun.add(name)
    if report.failed:
        run.results.failed[name] = "failed" if report.when == "call" else "error"
    if report.failed and report.when == "call" and (shown is None or shown["body_failed"]):
        run.results.failed_bodies.add(name)


def _name(report: pytest.TestReport, *, each_worker: bool) -> str:
    """Return what names a run of a test among all of this session, as the reports show it."""
    name: str = getattr(report, "llmspeed_name", report.nodeid)
    worker = getattr(report, "worker_id", None)
    return f"[{worker}] {name}" if each_worker and worker else name


def is_complete(exitstatus: int) -> bool:
    """True if a run came to its end, whatever its tests said."""
    return exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)


def finish(run: Run, *, complete: bool) -> list[str]:
    """Judge the suite and write what is to be written; return a sentence for each failure of the run."""
    from pytest_llmspeed.reports.rows import of_suite

    failures = []
    if complete and not run.results.judge_suite():
        tests, sentence = next(of_suite(run.results.suite))
        failures.append(": ".join([*tests, sentence]))
    return failures + run.output.write(may_store=complete)
