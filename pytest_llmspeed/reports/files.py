"""Reports as files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pytest_llmspeed.errors import StoreError


def check_writable(path: Path) -> None:
    """Raise `StoreError` if a report could not be written to `path`; nothing is created or changed."""
    existing = next((part for part in (path, *path.parents) if part.exists()), path)
    reason = None
    if path.is_dir():
        reason = "it is a folder"
    elif existing != path and not existing.is_dir():
        reason = f"{existing} is not a folder"
    elif not os.access(existing, os.W_OK):
        reason = f"no permission to write to {existing}"
    if reason:
        raise StoreError(f"the report cannot be written to {path}: {reason}")


def write_report(path: Path, report: dict[str, Any]) -> None:
    """Write the JSON report, its folder created where missing; raises `StoreError`."""
    _write(path, json.dumps(report, indent=1, ensure_ascii=True) + "\n", "w")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a report of lines, its folder created where missing; raises `StoreError`."""
    _write(path, _joined(lines), "w")


def append_lines(path: Path, lines: Iterable[str]) -> None:
    """Add lines to a file that others write to too; raises `StoreError`."""
    _write(path, _joined(lines), "a")


def _joined(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _write(path: Path, text: str, mode: Literal["w", "a"]) -> None:
    """Write text of any kind: an answer or an error may hold half of a surrogate pair."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open(mode, encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError as error:
        raise StoreError(f"the report cannot be written to {path}: {error.strerror or error}") from error
