"""Workloads and traces that lie in files."""

from __future__ import annotations

import zlib
from pathlib import Path

from pytest_llmspeed.errors import SettingsError
from pytest_llmspeed.load.trace import Trace
from pytest_llmspeed.load.trace_formats import trace_of
from pytest_llmspeed.load.workload import Workload
from pytest_llmspeed.load.workload_formats import workload_of

GZIP = b"\x1f\x8b"
MOST_BYTES = 4 * 2**30
NOT_READ = {
    b"PAR1": "a Parquet file",
    b"PK\x03\x04": "a zip file or a spreadsheet",
    b"\x28\xb5\x2f\xfd": "a zstd file",
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ": "an xz file",
    b"SQLite format 3": "a database",
    b"ARROW1": "an Arrow file",
}


def read_workload(path: str | Path, *, turns: int | None = 1, limit: int | None = None) -> Workload:
    """Return the workload of a JSONL, JSON or CSV file: OpenAI batch, ShareGPT, or plain records.

    `turns` limits the turns of a ShareGPT conversation (None: all), `limit` the records that are read.
    A record that cannot be used is left out; `Workload.notes`, and the load, say how many and which. The
    file may be compressed with gzip. Raises `SettingsError` that names file, line and field.
    """
    return workload_of(_text(path), str(path), turns=turns, limit=limit)


def read_trace(
    path: str | Path,
    *,
    limit: int | None = None,
    unit: str | None = None,
    block_tokens: int | None = None,
) -> Trace:
    """Return the trace of a file: Mooncake, BurstGPT or Azure (JSONL or CSV), or plain records with `at_s`.

    Traces with Mooncake's names that are not in milliseconds and blocks of 512 tokens need `unit` ("s",
    "ms", "us" or "ns") and `block_tokens`, as in `read_trace(path, unit="s", block_tokens=16)` for the
    Qwen (Bailian) traces. A record that cannot be used is left out, counted and named in `Trace.notes`.
    Raises `SettingsError` that names file, line and field, or what is to be said of the file.
    """
    return trace_of(_text(path), str(path), limit=limit, unit=unit, block_tokens=block_tokens)


def _text(path: str | Path) -> str:
    try:
        content = Path(path).read_bytes()
        if content.startswith(GZIP):
            content = _unpacked(content, path)
        for start, kind in NOT_READ.items():
            if content.startswith(start):
                raise SettingsError(f"{path}: it is {kind}; save it as JSON lines or CSV")
        return content.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: it cannot be read: {error}") from error


def _unpacked(content: bytes, path: str | Path) -> bytes:
    import gzip
    import io

    unpacked = gzip.GzipFile(fileobj=io.BytesIO(content)).read(MOST_BYTES + 1)
    if len(unpacked) > MOST_BYTES:
        raise SettingsError(f"{path}: it unpacks to more than {MOST_BYTES / 2**30:g} GiB")
    return unpacked
