"""One run file or JSON report → what stands in it. Reads; changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import jiter

from pytest_llmspeed.core.baselines import Session, sessions_of_run
from pytest_llmspeed.core.errors import StoreError
from pytest_llmspeed.core.record import SCHEMA

FACTS = ("started", "id", "job", "commit", "environment", "options")
REPORT = "a report of pytest --llmspeed-json"


@dataclass(frozen=True, slots=True)
class RunFile:
    """One run as it was written: `run` and `tests` in builtins, `sessions` in the order of `tests`."""

    path: Path
    run: Mapping[str, Any]
    tests: tuple[Mapping[str, Any], ...]
    sessions: tuple[Session, ...]


def read_run_file(path: Path) -> RunFile:
    """Return what a file says; raises `StoreError` that names the file, what is wrong, and the fix."""
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise StoreError(f"{path}: no such file; name {REPORT}, or a folder of them") from error
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}; mend or move it") from error
    return _parsed(path, _from_json(path, content))


def _from_json(path: Path, content: bytes) -> Any:
    try:
        return jiter.from_json(content)  # half a second less than `json` for a store of 2,000 tests
    except ValueError as error:
        raise StoreError(f"{path} is corrupt: it is not JSON ({error}); restore or delete it") from error


def _parsed(path: Path, content: Any) -> RunFile:
    schema = content.get("schema") if isinstance(content, dict) else None
    if schema is None:
        raise StoreError(
            f'{path} is corrupt: it has no "schema", as {REPORT} has; restore or delete it, or name another'
        )
    if schema != SCHEMA:
        raise StoreError(
            f"{path}: its schema is {schema!r}, this version reads {SCHEMA!r}; upgrade pytest-llmspeed"
        )
    try:
        sessions = tuple(sessions_of_run(content))
        _check(content["run"])
        return RunFile(path, content["run"], tuple(content["tests"]), sessions)
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        what = f"{type(error).__name__}: {error}"
        raise StoreError(f"{path} is corrupt ({what}); restore or delete it") from error


def _check(run: Mapping[str, Any]) -> None:
    """Raise `KeyError` for a fact that is missing, `ValueError` for a date without its time zone."""
    if missing := [name for name in FACTS if name not in run]:
        raise KeyError(missing[0])
    if datetime.fromisoformat(run["started"]).tzinfo is None:
        raise ValueError(f"started {run['started']!r} has no time zone")
