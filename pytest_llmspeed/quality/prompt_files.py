"""Prompt files on disk, and the general set that comes with the package → prompt sets."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from stat import S_ISREG

from pytest_llmspeed.errors import SettingsError
from pytest_llmspeed.quality.prompt_rows import rows_of
from pytest_llmspeed.quality.prompts import PromptSet, prompts_of

GENERAL = "general"
MOST_BYTES = 64 * 1024 * 1024


def read_prompt_set(path: Path, name: str) -> PromptSet:
    """Return the prompts of a file as a set of that name; raises `SettingsError` with file, line, field."""
    try:
        status = path.stat()
        if not S_ISREG(status.st_mode):  # a pipe or a device would be waited for without end
            raise SettingsError(f"prompt file {path} cannot be read: it is not a regular file")
        if status.st_size > MOST_BYTES:
            raise SettingsError(f"prompt file {path} has {status.st_size:,} bytes, more than {MOST_BYTES:,}")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else f"it is not UTF-8 ({error})"
        raise SettingsError(f"prompt file {path} cannot be read: {why}") from error
    return PromptSet(name, prompts_of(rows_of(text, path.name), name))


def general_prompt_set() -> PromptSet:
    """Return the set that is used where none is named: some 30 prompts over the usual tasks."""
    file = files("pytest_llmspeed.quality") / "data" / f"{GENERAL}.jsonl"
    return PromptSet(GENERAL, prompts_of(rows_of(file.read_text(encoding="utf-8"), file.name), GENERAL))
