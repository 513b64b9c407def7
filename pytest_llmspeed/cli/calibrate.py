"""`llmspeed calibrate N`: whole pytest runs of unchanged code, and what they say of this machine."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_llmspeed.baselines.report_set import Measured, budgets_of, read_reports
from pytest_llmspeed.baselines.sessions import Series
from pytest_llmspeed.baselines.stored_tests import slot_of
from pytest_llmspeed.cli.output import Result, counted, named_once, table
from pytest_llmspeed.errors import LLMSpeedError
from pytest_llmspeed.experiments import child
from pytest_llmspeed.judging.comparing import compared_metrics
from pytest_llmspeed.messages.figures import percent, quantity
from pytest_llmspeed.metrics.sample import METRICS
from pytest_llmspeed.regression.calibration import LEAST_SESSIONS, Calibration, calibrate, wilson

SCHEMA = "llmspeed-calibrate/1"
TAIL_LINES = 15
INTERRUPTED = 130
HEADERS = (
    "test",
    "metric",
    "median",
    "spread of 10%",
    "of median",
    "false alarms",
    "seen from",
    "at best",
)
HIGHER = {metric.key for metric in METRICS.values() if metric.better == "higher"}


@dataclass(frozen=True, slots=True)
class CalibratedMetric:
    """One metric of one series of one test, and what its sessions say; None of too few."""

    identity: str
    engine: str
    series: str
    metric: str
    found: Calibration | None


def run(count: int, arguments: Sequence[str], tell: Callable[[str], None]) -> Result:
    """Run pytest `count` times and return what the sessions say; raises `LLMSpeedError` if a run fails.

    After Ctrl-C, what was done is reported. `tell` is given a line for each run.
    """
    runs: list[list[Measured]] = []
    try:
        for measured in _runs(count, arguments):
            runs.append(measured)
            tell(f"run {len(runs)} of {count}: {counted(len(measured), 'test')} measured")
        return result_of(runs)
    except KeyboardInterrupt:
        return _interrupted(runs, count)


def _runs(count: int, arguments: Sequence[str]) -> Iterator[list[Measured]]:
    with tempfile.TemporaryDirectory(prefix="llmspeed-") as made:
        for number in range(1, count + 1):
            yield one_run(Path(made), arguments, number)


def _interrupted(runs: Sequence[Sequence[Measured]], count: int) -> Result:
    """Return what was done before Ctrl-C, if that says something."""
    sentence = f"interrupted after {len(runs)} of {counted(count, 'run')}"
    if len(runs) < LEAST_SESSIONS:
        sentence += f"; at least {LEAST_SESSIONS} are needed"
        return Result((), {"schema": SCHEMA, "runs": len(runs)}, INTERRUPTED, (sentence,))
    return replace(result_of(runs), exit_code=INTERRUPTED, warnings=(sentence,))


def one_run(folder: Path, arguments: Sequence[str], number: int) -> list[Measured]:
    """Run pytest once, in a process of its own and against an empty store; return what it measured."""
    report = folder / f"{number}.json"
    store = folder / f"store{number}"
    store.mkdir()
    ours = (f"--llmspeed-store={store}", *arguments, f"--llmspeed-json={report}")
    code, output = _pytest(ours)
    if code != 0:
        tail = "\n".join(output.strip().splitlines()[-TAIL_LINES:])
        raise LLMSpeedError(
            f"run {number}: pytest ended with exit code {code}, so nothing was calibrated; fix it, "
            f"or leave out what fails: llmspeed calibrate N -- --deselect TEST; its last lines:\n{tail}"
        )
    measured = [each for each in read_reports(report).measured if each.ran] if report.exists() else []
    if not measured:
        raise LLMSpeedError(
            f"run {number}: no test measured anything through llm_client (pytest was given: "
            f"{' '.join(arguments) or 'nothing'}); name tests that do: llmspeed calibrate N -- PATH"
        )
    return measured


def _pytest(arguments: Sequence[str]) -> tuple[int, str]:
    """Run pytest; return its exit code and output. Ctrl-C reaches it once, through us: it may clean up."""
    env = {name: value for name, value in os.environ.items() if name != "GITHUB_STEP_SUMMARY"}
    ended = child.run([sys.executable, "-m", "pytest", *arguments], Path.cwd(), env)
    return ended.code, ended.output


def result_of(runs: Sequence[Sequence[Measured]]) -> Result:
    """Return what some runs of unchanged code say, as lines and as builtins."""
    findings = findings_of(runs)
    usable = [finding for finding in findings if finding.found is not None]
    if not usable:
        raise LLMSpeedError(
            f"no test gave enough figures in {LEAST_SESSIONS} of {len(runs)} runs; "
            "measure at least 5 requests a test: llm_client.measure(…) or rounds(10)"
        )
    failed = sum(_would_have_failed(usable, number) for number in range(len(runs)))
    return Result(
        lines=(*table(named_once(map(_row, findings)), HEADERS), "", *_summary(usable, len(runs), failed)),
        shown={
            "schema": SCHEMA,
            "runs": len(runs),
            "runs_that_would_fail": {"n": failed, "ci": list(wilson(failed, len(runs)))},
            "findings": [_shown(finding) for finding in findings],
        },
    )


def findings_of(runs: Sequence[Sequence[Measured]]) -> list[CalibratedMetric]:
    """Return what the runs say of each metric that the gate compares."""
    tests: dict[tuple[str, ...], list[Measured | None]] = {}
    for number, measured in enumerate(runs):
        for each in measured:
            tests.setdefault(slot_of(each.session), [None] * len(runs))[number] = each
    columns = [column for sessions in tests.values() for column in _columns(sessions)]
    return [_finding(*column, comparisons=len(columns)) for column in columns]


Column = tuple[Measured, str, str, list[Sequence[float]]]
"""A test, one of its series, a metric, and the values of each run (empty where it has none)."""


def _columns(sessions: Sequence[Measured | None]) -> Iterator[Column]:
    first = next(session for session in sessions if session is not None)
    for stratum, shown in first.session.series.items():
        series = [measured.session.series.get(stratum) if measured else None for measured in sessions]
        for metric in compared_metrics(shown, budgets_of(first.record)):
            values = [_values(one, metric) for one in series]
            if any(values):
                yield first, stratum, metric, values


def _values(series: Series | None, metric: str) -> Sequence[float]:
    return series.values.get(metric, ()) if series else ()


def _finding(
    test: Measured, stratum: str, metric: str, values: list[Sequence[float]], *, comparisons: int
) -> CalibratedMetric:
    backend = test.record.backend
    found = calibrate(values, larger_is_worse=metric not in HIGHER, comparisons=comparisons)
    engine = " ".join(filter(None, (backend.name, backend.model, backend.precision))) if backend else ""
    return CalibratedMetric(test.session.identity, engine, stratum, metric, found)


def _would_have_failed(findings: Sequence[CalibratedMetric], number: int) -> bool:
    return any(f.found is not None and f.found.verdicts[number] == "slower" for f in findings)


def _row(calibrated: CalibratedMetric) -> tuple[str, ...]:
    head, found = (calibrated.identity, f"{calibrated.metric} of {calibrated.series}"), calibrated.found
    if found is None:
        return (*head, "–", "–", "–", "too few requests", "–", "–")
    return (
        *head,
        quantity(found.middle, calibrated.metric),
        f"{found.low_sd * 100:.1f}%",
        f"{found.mid_sd * 100:.1f}%",
        f"{found.false_alarms} of {found.judged}",
        percent(found.visible),
        percent(found.visible_at_most),
    )


def _summary(findings: Sequence[CalibratedMetric], runs: int, failed: int) -> Iterator[str]:
    low, high = (f"{bound * 100:.0f}%" for bound in wilson(failed, runs))
    yield (
        f"{runs} runs of the same code, each judged by the others: {failed} would have failed "
        f"(95% interval {low} to {high} of runs)"
    )
    yield (
        "spread: the sd, from run to run, of the fastest 10% and of the median; "
        f"seen from: the smallest slowdown called slower with {runs} stored sessions; at best: with ten"
    )
    yield from _halving([finding.found.sessions_to_halve for finding in findings if finding.found])


def _halving(needed: Sequence[int | None]) -> Iterator[str]:
    """Yield how many stored sessions would halve what is seen, and what helps where none would."""
    known = [sessions for sessions in needed if sessions]
    if known:
        yield (
            f"{len(known)} of {len(needed)} comparisons would see half of that slowdown with "
            f"{max(known)} stored sessions"
        )
    if len(known) < len(needed):
        rest = len(needed) - len(known)
        yield (
            f"{rest} of {len(needed)} comparisons would not see half of that slowdown even with more "
            "sessions: the machine is the limit"
        )


def _shown(calibrated: CalibratedMetric) -> dict[str, Any]:
    shown: dict[str, Any] = {
        name: getattr(calibrated, name) for name in ("identity", "engine", "series", "metric")
    }
    if (found := calibrated.found) is None:
        return {**shown, "reason": "too few requests in too many of the runs"}
    return {
        **shown,
        "median": found.middle,
        "spread": {"low": found.low_sd, "median": found.mid_sd},
        "false_alarms": {"n": found.false_alarms, "of": found.judged, "ci": list(found.interval)},
        "verdicts": [None if verdict is None else verdict.value for verdict in found.verdicts],
        "visible": found.visible,
        "visible_at_most": found.visible_at_most,
        "sessions_to_halve": found.sessions_to_halve,
    }
