"""What a mark, a call or the ini file says of a quality check → the check that is planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from pytest_llmspeed.errors import SettingsError, did_you_mean
from pytest_llmspeed.quality.answers import Limits, PlannedCheck
from pytest_llmspeed.quality.prompt_files import general_prompt_set, read_prompt_set
from pytest_llmspeed.quality.prompts import PromptSet
from pytest_llmspeed.settings import Settings

LIMITS = tuple(each.name for each in fields(Limits))
SHARES = ("min_top1", "min_score")


class QualitySets:
    """The sets of prompts of one run, each file read once. `root` is what their names start from."""

    def __init__(self, settings: Settings, root: Path) -> None:
        self._settings, self._root = settings, root
        self._read: dict[Path | None, PromptSet] = {}

    def plan(self, prompts: str | Path | None, folder: Path, asked: Mapping[str, Any]) -> PlannedCheck:
        """Return the check of a prompt file, `folder` being what its path starts from.

        Without a file it is that of the ini file, without one there the general set. `asked` holds
        limits and `scorer`. Raises `SettingsError`.
        """
        given = {name: value for name, value in asked.items() if value is not None}
        scorer = given.pop("scorer", None)
        if scorer is not None and not callable(scorer):
            raise SettingsError(f"scorer={scorer!r}: must be a function of prompt and answer")
        return PlannedCheck(self._prompt_set(prompts, folder), _limits(given), scorer)

    def _prompt_set(self, prompts: str | Path | None, folder: Path) -> PromptSet:
        path = self._path(prompts, folder)
        if path not in self._read:
            self._read[path] = (
                general_prompt_set() if path is None else read_prompt_set(path, self._name(path))
            )
        return self._read[path]

    def _path(self, prompts: str | Path | None, folder: Path) -> Path | None:
        if prompts is not None:
            return (folder / prompts).resolve()
        configured = self._settings.ini.get("quality")
        return (self._settings.ini_folder / configured).resolve() if configured else None

    def _name(self, path: Path) -> str:
        root = self._root.resolve()
        return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name


def _limits(given: Mapping[str, Any]) -> Limits:
    for name, value in given.items():
        if name not in LIMITS:
            raise SettingsError(
                f"a quality check takes no {name!r}; {did_you_mean(name, (*LIMITS, 'scorer'))}"
            )
        if name == "quality_vs":
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise SettingsError(f"{name}={value!r}: must be a number, 0 or more")
        if name in SHARES and value > 1:
            raise SettingsError(f"{name}={value!r}: must be between 0 and 1")
    if "quality_vs" in given and not {"max_kl", "min_top1"} & given.keys():
        raise SettingsError(
            f"quality_vs={given['quality_vs']!r}: another precision gives other answers; set "
            "how far they may differ, as in max_kl=0.05, min_top1=0.9"
        )
    return Limits(**given)
