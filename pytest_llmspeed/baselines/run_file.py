"""One run file or JSON report → what stands in it. Reads; changes nothing."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jiter

from pytest_llmspeed.baselines.sessions import Session, sessions_of_run
from pytest_llmspeed.errors import StoreError
from pytest_llmspeed.records.record import READABLE, SCHEMA
from pytest_llmspeed.records.run_shape import check_run

LARGEST_BYTES = 256 << 20
"""A run of thousands of tests is a tenth of this; a file far above it would only fill the memory."""
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
        content = read_regular(path)
    except FileNotFoundError as error:
        raise StoreError(f"{path}: no such file; name {REPORT}, or a folder of them") from error
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}; fix or move it") from error
    return parsed(path, content)


def read_regular(path: Path) -> bytes:
    """Read a regular file whole: a pipe or a device may never end, and opening one must not wait.

    Raises `StoreError` for anything else and for what is far too large, `OSError` as the system does.
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise StoreError(f"{path} is not a regular file; move it out of the store")
        if status.st_size > LARGEST_BYTES:
            size, limit = status.st_size >> 20, LARGEST_BYTES >> 20
            raise StoreError(f"{path} has {size:,} MiB, more than the {limit} MiB of a run file; move it")
        return file.read(LARGEST_BYTES)


def parsed(path: Path, content: bytes) -> RunFile:
    """Return what the content of a file at `path` says; raises `StoreError`."""
    shown = _from_json(path, content)
    schema = shown.get("schema") if isinstance(shown, dict) else None
    if schema is None:
        raise StoreError(
            f'{path} is corrupt: it has no "schema", as {REPORT} has; restore or delete it, or name another'
        )
    if schema not in READABLE:
        raise StoreError(
            f"{path}: its schema is {schema!r}, this version reads {SCHEMA!r}; upgrade pytest-llmspeed"
        )
    try:
        check_run(shown)
        return RunFile(path, shown["run"], tuple(shown["tests"]), tuple(sessions_of_run(shown)))
    except ValueError as error:
        raise StoreError(f"{path} is corrupt: {error}; restore or delete it") from error


def _from_json(path: Path, content: bytes) -> Any:
    try:
        # half a second less than `json` for a store of 2,000 tests
        return jiter.from_json(content, allow_inf_nan=False)
    except ValueError as error:
        raise StoreError(f"{path} is corrupt: it is not JSON ({error}); restore or delete it") from error
