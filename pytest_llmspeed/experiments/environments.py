"""Environments that `pip=` asks for: requirements laid over this environment, made once and kept.

An overlay holds only what differs: its packages come first, all others are this environment's. So
`pip="transformers==5.20.0"` takes seconds and keeps torch as it is. `pip` makes it, which counts this
environment's packages as installed; `uv` does not, and would fetch all of them once more.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from importlib.metadata import distributions
from pathlib import Path

from pytest_llmspeed.errors import LLMSpeedError
from pytest_llmspeed.experiments import child
from pytest_llmspeed.experiments.folders import locked

COMPLETE = ".complete"
BENEATH = "_pytest_llmspeed_beneath.pth"
LIMIT_S = 3600.0


def overlay(requirements: str, say: Callable[[str], None]) -> Path:
    """Return the interpreter of the overlay with some requirements, made if need be.

    Raises `LLMSpeedError` with pip's last lines if they cannot be installed.
    """
    wanted = shlex.split(requirements)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    folder = cache / "pytest-llmspeed" / "overlays" / _name(wanted)
    python = folder / "bin" / "python"
    with locked(folder.with_suffix(".lock")):
        if not (folder / COMPLETE).exists():
            shutil.rmtree(folder, ignore_errors=True)  # what a killed process left
            say(f"making an environment with {requirements}, once")
            new_overlay(folder, sys.executable, wanted)
            (folder / COMPLETE).touch()
    return python


def new_overlay(folder: Path, python: str, wanted: list[str]) -> None:
    """Make an environment over that of an interpreter, with some requirements.

    Raises `LLMSpeedError` with pip's last lines if they cannot be installed.
    """
    _done("venv", [python, "-m", "venv", str(folder)])
    (beneath,) = Path(folder, "lib").glob("python*/site-packages")
    asked = "import sysconfig as s; print(s.get_path('purelib')); print(s.get_path('platlib'))"
    paths = _done("python", [python, "-c", asked]).split("\n")[:2]
    lines = [f"import site; site.addsitedir({path!r})" for path in dict.fromkeys(paths)]
    (beneath / BENEATH).write_text("\n".join(lines) + "\n")
    if wanted:
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check"]
        _done("pip", [*pip, *wanted])


def _done(what: str, command: list[str]) -> str:
    """The output of a command that must succeed."""
    ended = child.run(command, Path.cwd(), dict(os.environ), LIMIT_S)
    if ended.code != 0:
        said = f"{shlex.join(command)}\n{ended.last_lines}"
        raise LLMSpeedError(f"{what} failed with exit code {ended.code}: {said}")
    return ended.output


def _name(wanted: list[str]) -> str:
    """A name that changes with the requirements, and with what they are laid over."""
    beneath = sorted(f"{found.name}=={found.version}" for found in distributions())
    said = "\n".join([sys.prefix, sys.version, *wanted, *beneath])
    return hashlib.sha256(said.encode()).hexdigest()[:16]
