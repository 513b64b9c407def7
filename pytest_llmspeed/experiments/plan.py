"""What an experiment is to do, kept in its folder, so that an interrupted one can be taken up again."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pytest_llmspeed.errors import SettingsError
from pytest_llmspeed.experiments.judged import Form
from pytest_llmspeed.experiments.side import Side
from pytest_llmspeed.system.machine import gpu_count

FOLDER = Path(".llmspeed") / "ab"
FILE = "plan.json"
KEPT = 10
"""Experiments whose folders are kept."""
BLOCKS = 5


@dataclass(frozen=True, slots=True)
class Plan:
    """Two sides, the arguments of pytest, the form, and how many blocks at most, for how long at most.

    `cwd` is the folder in which it was begun, from which paths in its sides and arguments start.
    """

    old: Side
    new: Side
    arguments: Sequence[str]
    form: Form
    cwd: Path
    blocks: int = BLOCKS
    limit_s: float | None = None

    def with_commits(self, old: str | None, new: str | None) -> Plan:
        """Return the plan with the commits that the revisions stand for, which may move."""
        return replace(self, old=_at(self.old, old), new=_at(self.new, new))

    def write(self, folder: Path) -> None:
        """Write it into the folder of its experiment, all at once."""
        shown = {
            "old": self.old.to_builtins(),
            "new": self.new.to_builtins(),
            "arguments": list(self.arguments),
            "form": self.form.value,
            "cwd": str(self.cwd),
            "blocks": self.blocks,
            "limit_s": self.limit_s,
        }
        half = folder / f"{FILE}.half"
        half.write_text(json.dumps(shown, indent=1), encoding="utf-8")
        half.replace(folder / FILE)


def form_that_fits(old: Side, new: Side) -> Form:
    """Return how two sides are measured: at once where both fit, on CPUs and where both are servers."""
    fits = gpu_count() is None or all("url" in side.settings for side in (old, new))
    return Form.PAIRS if fits else Form.RUNS


def _at(side: Side, commit: str | None) -> Side:
    return side if commit is None else replace(side, ref=commit)


def read_plan(folder: Path) -> Plan:
    """Return the plan of an experiment; raises `SettingsError` if the folder has none."""
    try:
        shown: Any = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return Plan(
            old=Side.from_builtins(shown["old"]),
            new=Side.from_builtins(shown["new"]),
            arguments=tuple(shown["arguments"]),
            form=Form(shown["form"]),
            cwd=Path(shown["cwd"]),
            blocks=int(shown["blocks"]),
            limit_s=shown["limit_s"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SettingsError(
            f"{folder} holds no experiment that could be taken up ({error}); name a folder of {FOLDER}"
        ) from error


def new_folder(cwd: Path, now: datetime) -> Path:
    """Return a new folder for an experiment; the oldest go, so that ten are kept."""
    root = cwd / FOLDER
    folder = root / f"{now:%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:4]}"
    folder.mkdir(parents=True)
    older = sorted(path for path in root.iterdir() if path.is_dir())[:-KEPT]
    for path in older:
        shutil.rmtree(path, ignore_errors=True)
    return folder


def shown_path(path: Path) -> str:
    """Return a path as it is shortest from here."""
    return min(str(path), os.path.relpath(path), key=len)
