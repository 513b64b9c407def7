"""A path that the user named → the runs of that side, and their tests as records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_llmspeed.baselines.run_file import REPORT, RunFile, read_run_file
from pytest_llmspeed.baselines.sessions import Session
from pytest_llmspeed.baselines.store import folders, run_files
from pytest_llmspeed.errors import SettingsError, StoreError
from pytest_llmspeed.metrics.budgets import Budget, parse_budgets
from pytest_llmspeed.metrics.sample import Sample
from pytest_llmspeed.records.columns import columns
from pytest_llmspeed.records.record import TestRecord, test_from_builtins


@dataclass(frozen=True, slots=True)
class Measured:
    """One test of one run: as a session, and as it was written."""

    path: Path
    session: Session
    test: Mapping[str, Any]

    @property
    def ran(self) -> bool:
        """True if requests were measured (of a load none is stored), and the test was not interrupted."""
        measured = self.test["measurement"]
        strata = columns(measured["requests"], ["stratum"])["stratum"]
        return bool(strata or measured.get("loads")) and not self.test.get("partial")

    @property
    def record(self) -> TestRecord:
        """The test as a record; raises `StoreError` where it is none."""
        try:
            return test_from_builtins(_as_reported(self.test))
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            what = f"{type(error).__name__}: {error}"
            raise StoreError(f"{self.path} is corrupt ({what}); restore or delete it") from error


def _as_reported(test: Mapping[str, Any]) -> Mapping[str, Any]:
    """A test of the store in the shape of a report: what the store leaves out is empty."""
    requests = test["measurement"]["requests"]
    if not isinstance(requests, Mapping):
        return test
    fields = columns(requests, Sample.__dataclass_fields__)
    rows = [dict(zip(fields, row, strict=True)) for row in zip(*fields.values(), strict=True)]
    filled = [{**row, "itl_ms": [], "text": "", "flags": row["flags"] or []} for row in rows]
    left_out = {
        "partial": False,
        "budgets": [],
        "comparisons": [],
        "problems": [],
        "advice": [],
        "quality": None,
    }
    return {**left_out, **test, "measurement": {**test["measurement"], "requests": filled}}


@dataclass(frozen=True, slots=True)
class ReportSet:
    """The runs that one path names; `problems` are sentences on files that were left out."""

    path: Path
    files: tuple[RunFile, ...]
    measured: tuple[Measured, ...]
    problems: tuple[str, ...] = ()

    @property
    def sessions(self) -> list[Session]:
        """The sessions of tests that measured something to the end, if only failures."""
        return [each.session for each in self.measured if each.ran]


def read_reports(path: Path) -> ReportSet:
    """Return the report at a path, or all reports in a folder; raises `StoreError` if there is none.

    Of a store too: its folders are the environments.
    """
    if not path.is_dir():
        file = read_run_file(path)
        return ReportSet(path, (file,), tuple(_measured(file)))
    files, measured, problems, paths = list[RunFile](), list[Measured](), list[str](), list[Path]()
    for folder in (path, *folders(path)):
        try:
            paths += run_files(folder)
        except StoreError as error:
            problems.append(f"left out: {error}")
    for each in sorted(paths):
        try:
            file = read_run_file(each)
            measured += _measured(file)
            files.append(file)
        except StoreError as error:
            problems.append(f"left out: {error}")
    if not files:
        found = problems[0] if problems else "it contains no .json file"
        raise StoreError(f"{path}: {found}; name {REPORT}, or a folder of them")
    return ReportSet(path, tuple(files), tuple(measured), tuple(problems))


def _measured(file: RunFile) -> Iterator[Measured]:
    """The tests of a run. One that stored nothing starts no level: it only saw that it was faster."""
    updated = bool(file.run["options"].get("update_baseline"))
    for session, test in zip(file.sessions, file.tests, strict=True):
        starts = session.starts_level and updated
        yield Measured(file.path, replace(session, starts_level=starts), test)


def budgets_of(record: TestRecord) -> tuple[Budget, ...]:
    """Return the budgets that a test had: they say which metrics are compared."""
    return tuple(
        budget for check in record.budgets for budget in _budget(check.name, check.label, check.limit)
    )


def _budget(name: str, label: str | None, limit: float) -> list[Budget]:
    try:
        return parse_budgets({name: limit, "label": label})
    except SettingsError:  # of a version that knows more budgets
        return []
