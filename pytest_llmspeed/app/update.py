"""Verdicts and flags → the run files to write; then the writing, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pytest_llmspeed.core.record import RunRecord, TestRecord, run_to_stored
from pytest_llmspeed.core.verdicts import CONSEQUENCES
from pytest_llmspeed.edges.store.folder import FolderStore


@dataclass(frozen=True, slots=True)
class Write:
    """One run file to be written."""

    environment: str
    name: str
    run: RunRecord


def plan(run: RunRecord) -> Iterator[Write]:
    """Yield one run file for each environment that has sessions to store.

    Nothing is stored of a suite that became slower as a whole, nor of a test that is slower beside
    the others, unless that is accepted.
    """
    stored = [test for test in map(partial(_by_the_suite, run), run.tests) if may_be_stored(test)]
    for environment in dict.fromkeys(test.environment for test in stored):
        tests = tuple(test for test in stored if test.environment == environment)
        yield Write(environment, _name(run), replace(run, tests=tests))


def _by_the_suite(run: RunRecord, test: TestRecord) -> TestRecord:
    """The test as it is stored after the suite verdict: refused, unless that is accepted."""
    refused = run.suite is not None and run.suite.fails and run.suite.concerns(test)
    return replace(test, problems=("slower as a suite",)) if refused else test


def may_be_stored(test: TestRecord) -> bool:
    """True if the test passed in all phases at once, on a quiet machine, with a verdict for the store."""
    if (
        test.outcome != "passed"
        or test.partial
        or test.rerun
        or test.verdict is None
        or test.problems
        or test.was_disturbed
    ):
        return False
    return test.accepted is not None or CONSEQUENCES[test.verdict].stored


def write(writes: Iterable[Write], store: FolderStore) -> list[Path]:
    """Write the run files, without answers; return their paths. Raises `StoreError`."""
    return [store.write(each.environment, each.name, run_to_stored(each.run)) for each in writes]


def _name(run: RunRecord) -> str:
    started = run.started.partition("+")[0].replace("-", "").replace(":", "").replace(".", "")
    return f"{started}-{run.commit or 'nocommit'}-{run.run_id}.json"
