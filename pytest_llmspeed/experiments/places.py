"""Where the runs of a side take place: its folder, its interpreter, its environment variables."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_llmspeed.errors import SettingsError
from pytest_llmspeed.experiments import child
from pytest_llmspeed.experiments.checkouts import Checkouts, import_path
from pytest_llmspeed.experiments.environments import new_overlay, overlay
from pytest_llmspeed.experiments.side import Side, SideError

SETUP_LIMIT_S = 3600.0
CHECK = "import pytest, pytest_llmspeed.cli"


class SetupError(SideError):
    """The revision of a side could not be set up."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a run of pytest needs. `commit` is the full hash of a checkout."""

    folder: Path
    python: str
    env: Mapping[str, str]
    commit: str | None = None

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Return the command that runs pytest here."""
        return [self.python, "-m", "pytest", *arguments]


def prepared(side: Side, checkouts: Checkouts | None, cwd: Path, say: Callable[[str], None]) -> Place:
    """Return the place of a side, made if need be.

    Raises `SettingsError` for what is not there, `SetupError` if its revision cannot be set up,
    `LLMSpeedError` if its environment cannot be made.
    """
    env = {name: value for name, value in os.environ.items() if name != "GITHUB_STEP_SUMMARY"}
    python = _interpreter(side, say)
    if side.ref is None or checkouts is None:
        place = Place(cwd, python, {**env, **_first_on_path(python), **side.env})
    else:
        place = _checked_out(side, checkouts, python, env, say)
    _check(place, side)
    return place


def _interpreter(side: Side, say: Callable[[str], None]) -> str:
    if side.pip:
        return str(overlay(side.pip, say))
    if side.python is None:
        return sys.executable
    found = shutil.which(Path(side.python).expanduser())
    if found is None:
        raise SettingsError(f"python={side.python}: there is no such program; name an interpreter")
    return os.path.abspath(found)


def _checked_out(
    side: Side, checkouts: Checkouts, python: str, env: Mapping[str, str], say: Callable[[str], None]
) -> Place:
    commit = checkouts.repository.commit(side.ref or "")
    root = checkouts.folder(commit)
    if side.setup is not None:
        python = str(_set_up(side, checkouts, python, env, say))
    folder = root / checkouts.repository.within
    if not folder.is_dir():
        raise SetupError(side.ref, f"{side.ref} has no folder {checkouts.repository.within}")
    own = {"PYTHONPATH": import_path(root), **_first_on_path(python), **side.env}
    return Place(folder, python, {**env, **own}, commit)


def _set_up(
    side: Side, checkouts: Checkouts, python: str, env: Mapping[str, str], say: Callable[[str], None]
) -> Path:
    """Run the set-up of a checkout, in an environment of its own: what it installs changes no other."""
    commit = checkouts.repository.commit(side.ref or "")
    root, folder = checkouts.folder(commit), checkouts.environment(commit)
    own_python = folder / "bin" / "python"
    if own_python.exists():
        return own_python
    say(f"setting up {side.ref}: {side.setup}")
    new_overlay(folder, python, [])
    own = {**env, **_first_on_path(str(own_python)), **side.env, "VIRTUAL_ENV": str(folder)}
    ended = child.run(["sh", "-c", side.setup or ""], root, own, SETUP_LIMIT_S)
    if ended.code != 0:
        shutil.rmtree(folder, ignore_errors=True)
        what = f"the set-up of {side.ref} failed with exit code {ended.code}: {side.setup}"
        raise SetupError(side.ref, f"{what}\n{ended.last_lines}")
    return own_python


def _first_on_path(python: str) -> dict[str, str]:
    """The PATH on which programs of an interpreter's environment come first."""
    return {"PATH": os.pathsep.join([str(Path(python).parent), os.environ.get("PATH", os.defpath)])}


def _check(place: Place, side: Side) -> None:
    """Raise `SettingsError` if an environment of the user's lacks what is needed."""
    if side.python is None:
        return
    ended = child.run([place.python, "-c", CHECK], place.folder, place.env, SETUP_LIMIT_S)
    if ended.code != 0:
        install = shlex.join([place.python, "-m", "pip", "install", "pytest-llmspeed"])
        raise SettingsError(f"python={side.python} has no pytest-llmspeed: {install}\n{ended.last_lines}")
