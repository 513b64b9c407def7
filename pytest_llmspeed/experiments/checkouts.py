"""Checkouts of git revisions, each in a worktree of its own that goes when the experiment ends."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from pytest_llmspeed.errors import SettingsError
from pytest_llmspeed.experiments.folders import is_held, locked

PREFIX = "llmspeed-checkouts-"
HELD = "held.lock"


@dataclass(frozen=True, slots=True)
class Repository:
    """The git repository around a folder; `within` is the way from its root to that folder."""

    root: Path
    within: Path

    @classmethod
    def around(cls, folder: Path) -> Repository:
        """Return the repository; raises `SettingsError` if there is none."""
        try:
            root = _git(folder, "rev-parse", "--show-toplevel")
        except (OSError, subprocess.CalledProcessError) as error:
            raise SettingsError(f"ref= needs a git repository: {folder} is in none") from error
        return cls(Path(root), folder.resolve().relative_to(Path(root).resolve()))

    def commit(self, revision: str) -> str:
        """Return the full hash that a revision stands for; raises `SettingsError` for an unknown one."""
        try:
            return _git(self.root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        except subprocess.CalledProcessError as error:
            raise SettingsError(f"{self.root} has no commit {revision!r}: name a hash or a tag") from error

    def subject(self, commit: str) -> str:
        """Return "short hash first line of the message"."""
        return _git(self.root, "log", "-1", "--format=%h %s", commit)

    def parent(self, commit: str) -> str:
        """Return the first parent of a commit."""
        return self.commit(f"{commit}~1")

    def between(self, good: str, bad: str) -> list[str]:
        """Return the commits that `bad` has and `good` has not, oldest first."""
        return _git(self.root, "rev-list", "--reverse", "--topo-order", f"{good}..{bad}").split()


class Checkouts:
    """The worktrees of one experiment, made as they are asked for; all are removed when it ends.

    They lie in a temporary folder whose lock this process holds. Those of a process that was killed are
    removed when the next experiment begins.
    """

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self._made: dict[str, Path] = {}
        self._end = ExitStack()

    def __enter__(self) -> Checkouts:
        remove_abandoned(self.repository)
        self._folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._end.enter_context(locked(self._folder / HELD))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        _remove(self._folder, self.repository)
        self._end.close()

    def folder(self, commit: str) -> Path:
        """Return the worktree of a commit."""
        if commit not in self._made:
            path = self._folder / commit[:12]
            _git(self.repository.root, "worktree", "add", "--detach", "--quiet", str(path), commit)
            self._made[commit] = path
        return self._made[commit]

    def environment(self, commit: str) -> Path:
        """The place for the environment that a commit is set up in."""
        return self._folder / f"{commit[:12]}-environment"

    def drop(self, commit: str) -> None:
        """Remove the worktree of a commit with its environment, if they were made."""
        if (path := self._made.pop(commit, None)) is not None:
            shutil.rmtree(self.environment(commit), ignore_errors=True)
            _git(self.repository.root, "worktree", "remove", "--force", str(path))


def remove_abandoned(repository: Repository) -> None:
    """Remove the worktrees of experiments whose process is gone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if folder.stat().st_uid == os.getuid() and not is_held(folder / HELD):
            _remove(folder, repository)


def _remove(folder: Path, repository: Repository) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError, subprocess.CalledProcessError):
        _git(repository.root, "worktree", "prune")


def import_path(checkout: Path) -> str:
    """Return the PYTHONPATH with which Python imports a checkout's packages before those installed."""
    sources = [path for path in (checkout / "src", checkout) if path.is_dir()]
    return os.pathsep.join([*map(str, sources), *filter(None, [os.environ.get("PYTHONPATH")])])


def _git(folder: Path, *arguments: str) -> str:
    found = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return found.stdout.strip()
