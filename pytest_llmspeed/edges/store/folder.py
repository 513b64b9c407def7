"""Run files in a folder: `<root>/<environment>/<started>-<commit>-<id>.json`.

A file is written once, under another name first, and never changed: a reader sees a whole file
or none.
"""

from __future__ import annotations

import gc
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_llmspeed.core.baselines import Session
from pytest_llmspeed.core.errors import StoreError
from pytest_llmspeed.edges.store.renames import read_renames
from pytest_llmspeed.edges.store.run_file import read_run_file


@dataclass(frozen=True, slots=True)
class Stored:
    """The sessions of one environment, and a sentence for each file that could not be read."""

    sessions: tuple[Session, ...] = ()
    problems: tuple[str, ...] = ()


class FolderStore:
    """A store in a local folder. Nothing is created before the first write."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def environments(self) -> list[str]:
        """Return the environments that have run files."""
        try:
            return sorted(folder.name for folder in self.root.iterdir() if any(folder.glob("*.json")))
        except OSError:
            return []

    def load(self, environment: str) -> Stored:
        """Return what is stored for an environment; an unreadable file is named, the others count."""
        sessions: list[Session] = []
        problems: list[str] = []
        with _no_garbage_collection():
            for path in sorted((self.root / environment).glob("*.json")):
                try:
                    sessions += read_run_file(path).sessions
                except StoreError as error:
                    problems.append(f"a baseline file is left out: {error}")
        renames = read_renames(self.root)
        return Stored(tuple(renames.all_applied(sessions)), (*problems, *renames.problems))

    def check_writable(self) -> None:
        """Raise `StoreError` if a run file could not be written."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.root):
                pass
        except OSError as error:
            raise StoreError(_unwritable(self.root, error)) from error

    def write(self, environment: str, name: str, run: dict[str, Any]) -> Path:
        """Write one run file and return its path; raises `StoreError` and leaves nothing half done."""
        folder = self.root / environment
        target = folder / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(prefix=f".{name}.", suffix=".part", dir=folder)
        except OSError as error:
            raise StoreError(_unwritable(folder, error)) from error
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(json.dumps(run, separators=(",", ":")))  # far faster than json.dump
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, target)
        except BaseException as error:
            Path(temporary).unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise StoreError(_unwritable(target, error)) from error
            raise
        return target


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Half of the time to read a large store goes into looking for cycles among its many new objects."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():
            gc.freeze()  # the two together make all objects old, without looking at each
            gc.unfreeze()
        if was_on:
            gc.enable()


def _unwritable(path: Path, error: OSError) -> str:
    return (
        f"the baseline store cannot be written: {path}: {error.strerror or error}; "
        "free it, or set llmspeed_store to another folder"
    )
