"""Workloads and traces that lie in files."""

from __future__ import annotations

from pathlib import Path

from pytest_llmspeed.core.errors import SettingsError
from pytest_llmspeed.core.traces import Trace
from pytest_llmspeed.core.workload_shapes import trace_of, workload_of
from pytest_llmspeed.core.workloads import Workload


def read_workload(path: str | Path, *, turns: int | None = 1, limit: int | None = None) -> Workload:
    """Return the workload of a JSONL or JSON file: OpenAI batch, ShareGPT, or plain rows.

    `turns` limits the turns of a ShareGPT conversation (None: all), `limit` the rows that are read.
    Raises `SettingsError` that names file, line and field.
    """
    return workload_of(_text(path), str(path), turns=turns, limit=limit)


def read_trace(path: str | Path, *, limit: int | None = None) -> Trace:
    """Return the trace of a file: rows of Mooncake or BurstGPT (JSONL or CSV), or plain rows with `at_s`.

    Raises `SettingsError` that names file, line and field.
    """
    return trace_of(_text(path), str(path), limit=limit)


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: it cannot be read: {error}") from error
