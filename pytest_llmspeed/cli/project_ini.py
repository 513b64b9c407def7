"""The settings of a pytest project without pytest: what `llmspeed` commands read of them.

Files and their order are those of pytest's own search: from the working directory upward, in each folder
the first file that configures pytest; a `pyproject.toml` that does not counts where nothing else is found.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import iniconfig

from pytest_llmspeed.errors import SettingsError
from pytest_llmspeed.settings import DEFAULT_STORE

SECTIONS = {
    "pytest.toml": "pytest",
    ".pytest.toml": "pytest",
    "pytest.ini": "pytest",
    ".pytest.ini": "pytest",
    "pyproject.toml": "tool.pytest",
    "tox.ini": "pytest",
    "setup.cfg": "tool:pytest",
}
"""File → the section that configures pytest."""


@dataclass(frozen=True, slots=True)
class ProjectIni:
    """The settings of a project, and the folder that paths in them start from."""

    folder: Path
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def store(self) -> Path:
        """The folder of the baselines, relative to the working directory unless it was named otherwise."""
        named = Path(self.values.get("llmspeed_store") or DEFAULT_STORE)
        return named if named.is_absolute() else Path(_short(self.folder / named))


def _short(path: Path) -> str:
    try:
        return os.path.relpath(path)
    except ValueError:  # on another drive
        return str(path)


def project_ini(folder: Path) -> ProjectIni:
    """Return the settings of the project around a folder; raises `SettingsError` for an unreadable file."""
    without_settings: ProjectIni | None = None
    for base in (folder, *folder.parents):
        for name, section in SECTIONS.items():
            path = base / name
            if not path.is_file():
                continue
            if (values := _read(path, section)) is not None:
                return ProjectIni(base, values)
            if name == "pyproject.toml" and without_settings is None:
                without_settings = ProjectIni(base)
    return without_settings or ProjectIni(folder)


def _read(path: Path, section: str) -> Mapping[str, Any] | None:
    """The settings in a file, None if it does not configure pytest."""
    try:
        found = _read_toml(path, section) if path.suffix == ".toml" else _read_ini(path, section)
    except (OSError, ValueError, iniconfig.ParseError) as error:
        raise SettingsError(f"{path} cannot be read: {error}; fix it, or name the store: --store") from error
    is_always_one = path.name.lstrip(".").startswith("pytest.")
    return {} if found is None and is_always_one else found


def _read_toml(path: Path, section: str) -> Mapping[str, Any] | None:
    table: Any = tomllib.loads(path.read_text(encoding="utf-8"))
    for name in section.split("."):
        table = table.get(name)
        if not isinstance(table, dict):
            return None
    if section == "pytest":
        return dict(table)
    ini_options: Mapping[str, Any] | None = table.get("ini_options")
    return ini_options if ini_options is not None else table or None


def _read_ini(path: Path, section: str) -> Mapping[str, Any] | None:
    found = iniconfig.IniConfig(str(path))
    return dict(found[section].items()) if section in found else None
