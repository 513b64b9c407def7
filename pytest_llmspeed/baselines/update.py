"""Verdicts and flags → the run files to write; then the writing, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pytest_llmspeed.baselines.store import FolderStore
from pytest_llmspeed.metrics.reasons import Reason
from pytest_llmspeed.records.record import RunRecord, TestRecord, run_to_stored
from pytest_llmspeed.regression.verdicts import CONSEQUENCES

BY_THE_SUITE = Reason.SLOWER_AS_A_SUITE()


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
    return replace(test, problems=(BY_THE_SUITE,)) if refused else test


def refused(run: RunRecord) -> dict[str, list[str]]:
    """Return the tests of a run that an update does not store: reason → node ids."""
    reasons: dict[str, list[str]] = {}
    for test in (_by_the_suite(run, test) for test in run.tests):
        if (reason := why_not_stored(test)) is not None:
            reasons.setdefault(reason, []).append(test.nodeid)
    return reasons


def may_be_stored(test: TestRecord) -> bool:
    """True if the test passed in all phases at once, on a quiet machine, with a verdict for the store."""
    return why_not_stored(test) is None


def why_not_stored(test: TestRecord) -> str | None:
    """Return in a word or two why an update does not store a test; None if it does."""
    reasons = (
        ("interrupted", test.partial),
        (test.outcome, test.outcome != "passed"),
        ("passed only when run again", test.rerun),
        (str(BY_THE_SUITE), test.problems == (BY_THE_SUITE,)),
        ("failed", bool(test.problems)),
        ("machine busy", test.was_disturbed),
        ("faster with a shorter prompt", test.follows_a_shorter_prompt and test.accepted is None),
        ("nothing to compare", test.verdict is None),
        (str(test.verdict), not _has_a_verdict_for_the_store(test)),
    )
    return next((reason for reason, holds in reasons if holds), None)


def _has_a_verdict_for_the_store(test: TestRecord) -> bool:
    return test.accepted is not None or (test.verdict is not None and CONSEQUENCES[test.verdict].stored)


def write(writes: Iterable[Write], store: FolderStore) -> list[Path]:
    """Write the run files, without answers; return their paths. Raises `StoreError`."""
    return [store.write(each.environment, each.name, run_to_stored(each.run)) for each in writes]


def _name(run: RunRecord) -> str:
    started = run.started.partition("+")[0].replace("-", "").replace(":", "").replace(".", "")
    return f"{started}-{run.commit or 'nocommit'}-{run.run_id}.json"
