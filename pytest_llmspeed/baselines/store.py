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

from pytest_llmspeed.baselines.renames import read_renames
from pytest_llmspeed.baselines.run_file import read_run_file
from pytest_llmspeed.baselines.sessions import Session
from pytest_llmspeed.errors import StoreError

PART = ".part"
STALE_S = 3600.0


@dataclass(frozen=True, slots=True)
class Stored:
    """The sessions of one environment, and a sentence for each file that could not be read."""

    sessions: tuple[Session, ...] = ()
    problems: tuple[str, ...] = ()
    files: int = 0
    left_out: int = 0
    """The number of run files, and how many of them cannot be read."""

    @property
    def is_unreadable(self) -> bool:
        """True if there are run files, and not one of them can be read."""
        return 0 < self.files == self.left_out


class FolderStore:
    """A store in a local folder. Nothing is created before the first write."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder_of(self, environment: str) -> Path:
        """Return where the run files of an environment are, or would be."""
        return self.root / environment

    def environments(self) -> list[str]:
        """Return the environments that have run files, as far as they can be looked into."""
        try:
            return sorted(folder.name for folder in self.root.iterdir() if _has_run_files(folder))
        except OSError:
            return []

    def load(self, environment: str) -> Stored:
        """Return what is stored for an environment; an unreadable file is named, the others count.

        Raises `StoreError` if the folder is there and cannot be listed.
        """
        sessions: list[Session] = []
        problems: list[str] = []
        paths = run_files(self.folder_of(environment))
        with _no_garbage_collection():
            for path in paths:
                try:
                    sessions += read_run_file(path).sessions
                except StoreError as error:
                    problems.append(f"a baseline file is left out: {error}")
        renames = read_renames(self.root)
        return Stored(
            tuple(renames.all_applied(sessions)),
            (*problems, *renames.problems),
            files=len(paths),
            left_out=len(problems),
        )

    def check_readable(self, named_by: str | None = None) -> None:
        """Raise `StoreError` if this is not a folder that can be listed.

        A folder that does not exist is an empty store, unless the user named it: `named_by` is the
        option or setting that did.
        """
        try:
            os.listdir(self.root)
        except FileNotFoundError as error:
            if named_by:
                raise StoreError(
                    f"{named_by} names {self.root}, which does not exist: correct the path, or create it "
                    "with a first pytest --llmspeed-update-baseline"
                ) from error
        except OSError as error:
            raise StoreError(_unreadable(self.root, error, named_by)) from error

    def check_writable(self) -> None:
        """Raise `StoreError` if a run file could not be written."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.root):
                pass
        except OSError as error:
            raise StoreError(_unwritable(self.root, error)) from error

    def write(self, environment: str, name: str, run: dict[str, Any]) -> Path:
        """Write one run file, read it back and return its path.

        Raises `StoreError` and leaves nothing half done.
        """
        folder = self.root / environment
        target = folder / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(prefix=f".{name}.", suffix=PART, dir=folder)
        except OSError as error:
            raise StoreError(_unwritable(folder, error)) from error
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(json.dumps(run, separators=(",", ":")))  # far faster than json.dump
                file.flush()
                os.fsync(file.fileno())
            _read_back(Path(temporary), target)
            os.chmod(temporary, 0o644)
            os.replace(temporary, target)
            _remove_stale_parts(folder, target)
        except BaseException as error:
            Path(temporary).unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise StoreError(_unwritable(target, error)) from error
            raise
        return target


def folders(root: Path) -> list[Path]:
    """Return the folders in a store, one for each environment; raises `StoreError` if it cannot be listed."""
    try:
        names = sorted(os.listdir(root))
    except OSError as error:
        raise StoreError(_unreadable(root, error)) from error
    return [root / name for name in names if not name.startswith(".") and (root / name).is_dir()]


def run_files(folder: Path) -> list[Path]:
    """Return the paths of the run files in a folder, in order of name; none if there is no folder.

    Raises `StoreError` if the folder cannot be listed: an empty answer would turn the gate off.
    """
    try:
        return sorted(folder / name for name in os.listdir(folder) if _is_run_file(name))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(_unreadable(folder, error)) from error


def _is_run_file(name: str) -> bool:
    return name.endswith(".json") and not name.startswith(".")


def _has_run_files(folder: Path) -> bool:
    try:
        return bool(run_files(folder))
    except StoreError:
        return False


def _read_back(temporary: Path, target: Path) -> None:
    """Raise `StoreError` unless what was written can be read: a baseline that cannot is lost in silence."""
    try:
        read_run_file(temporary)
    except StoreError as error:
        raise StoreError(
            f"{target} was not stored, since it could not be read again ({error}); please report this"
        ) from error


def _remove_stale_parts(folder: Path, written: Path) -> None:
    """Remove what writers that were killed left behind; best effort.

    Ages are taken against a file just written, by the clock of the file system: another writer's
    unfinished file is minutes old at most.
    """
    try:
        now = written.stat().st_mtime
        for name in os.listdir(folder):
            part = folder / name
            if name.startswith(".") and name.endswith(PART) and now - part.lstat().st_mtime > STALE_S:
                part.unlink(missing_ok=True)
    except OSError:
        return


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


def _unreadable(path: Path, error: OSError, named_by: str | None = None) -> str:
    named = f" (named by {named_by})" if named_by else ""
    return (
        f"the baselines in {path}{named} cannot be read: {error.strerror or error}; make it a folder that "
        "this user can read, or set llmspeed_store to another one"
    )


def _unwritable(path: Path, error: OSError) -> str:
    return (
        f"the baseline store cannot be written: {path}: {error.strerror or error}; "
        "free it, or set llmspeed_store to another folder"
    )
