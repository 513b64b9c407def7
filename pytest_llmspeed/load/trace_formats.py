"""The text of a file → a trace, whatever known shape its records have.

    {"timestamp": 120, "input_length": …, "output_length": …, "hash_ids": […]}   Mooncake: ms, blocks of 512
    {"Timestamp": 0.1, "Request tokens": …, "Response tokens": …}                BurstGPT: s, JSON or CSV
    TIMESTAMP,ContextTokens,GeneratedTokens                                      Azure: dates, CSV
    {"at_s": 0.1, "prompt": …}                                                   a plain record with its time

Other traces have Mooncake's names too, but other units and blocks: how many blocks a prompt has tells
their size, and a file of which that leaves doubts is refused until the call says what it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pytest_llmspeed.errors import SettingsError
from pytest_llmspeed.load.file_rows import MOST_TOKENS, FileRow, Reading
from pytest_llmspeed.load.trace import BLOCK_TOKENS, Trace, TraceRow
from pytest_llmspeed.load.workload_formats import plain_turn

UNITS_S = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
COMMON_BLOCKS = (16, 32, 64, 128, 256, 512, 1024)
NOT_MOONCAKE = ("chat_id", "parent_chat_id")
"""Columns of the Qwen (Bailian) traces, which are in seconds and blocks of 16."""
FITTING = 0.9


def trace_of(
    text: str,
    name: str,
    *,
    limit: int | None = None,
    unit: str | None = None,
    block_tokens: int | None = None,
) -> Trace:
    """Return the trace that a file holds; raises `SettingsError` with file, line and field.

    `unit` is that of its numbers of time, `block_tokens` the size of the blocks of its prompts.
    """
    _check(unit, block_tokens)
    reading = Reading(name)
    read = reading.read(text, limit, lambda row: _read(row, unit, reading))
    if not read:
        reading.refuse("it contains no request")
    rows = [found for found, _ in read]
    raw = [(found, row) for found, row in read if row is not None]
    if raw:
        scale_s, size = _scale(raw, name, unit, block_tokens)
        rows = [replace(f, at_s=f.at_s * scale_s, block_tokens=size) if r else f for f, r in read]
    return replace(Trace.from_rows(rows), remarks=reading.notes)


def _check(unit: str | None, block_tokens: int | None) -> None:
    if unit is not None and unit not in UNITS_S:
        raise SettingsError(f"unit={unit!r}: must be one of {', '.join(UNITS_S)}")
    if block_tokens is not None and not (isinstance(block_tokens, int) and 1 <= block_tokens <= MOST_TOKENS):
        raise SettingsError(f"block_tokens={block_tokens!r}: must be a whole number")


def _scale(
    raw: Sequence[tuple[TraceRow, FileRow]], name: str, unit: str | None, block_tokens: int | None
) -> tuple[float, int]:
    """Return the unit in seconds, and the tokens of a block, of records with Mooncake's names."""
    counts = [(found.input_tokens, len(found.blocks)) for found, _ in raw if found.blocks]
    others = any(column in row.fields for _, row in raw for column in NOT_MOONCAKE)
    sizes = [size for size in COMMON_BLOCKS if counts and _fit(counts, size)]
    is_mooncake = bool(counts) and BLOCK_TOKENS in sizes and not others
    if block_tokens is None and counts and not is_mooncake:
        block_tokens = sizes[0] if len(sizes) == 1 and unit is not None else None
        if block_tokens is None:
            raise _doubts(name, others, sizes)
    if unit is None and not is_mooncake:
        raise _doubts(name, others, [block_tokens] if block_tokens else sizes or [BLOCK_TOKENS])
    return UNITS_S[unit or "ms"], block_tokens or BLOCK_TOKENS


def _fit(counts: Sequence[tuple[int, int]], size: int) -> bool:
    """True if the prompts have as many blocks of a size as they are long, the last one whole or not."""
    fitting = sum(tokens // size <= blocks <= -(-tokens // size) for tokens, blocks in counts)
    return fitting >= FITTING * len(counts)


def _doubts(name: str, others: bool, sizes: Sequence[int]) -> SettingsError:
    """Return the error that says how to read a trace that is not sure to be Mooncake's."""
    if others:
        looks, unit, size = "its chat_id columns are those of the Qwen (Bailian) traces", "'s'", 16
    else:
        size = sizes[0] if sizes else 0
        looks, unit = f"its blocks seem to have {size} tokens", "…"
        if size in (0, BLOCK_TOKENS):
            looks = "its blocks do not show their size"
    blocks = f", block_tokens={size or '…'}" if size != BLOCK_TOKENS else ""
    return SettingsError(
        f"{name}: it has the names of a Mooncake trace (milliseconds, blocks of {BLOCK_TOKENS} tokens) but "
        f"need not be one: {looks}; say what it is: read_trace(…, unit={unit}{blocks}), "
        f"with unit= one of {', '.join(UNITS_S)}"
    )


def _read(row: FileRow, unit: str | None, reading: Reading) -> tuple[TraceRow, FileRow | None]:
    """The request of a record; with the record itself where its unit is still to be found out."""
    if "at_s" in row.fields:
        return TraceRow(at_s=row.number("at_s"), turn=plain_turn(row, reading)), None
    if "timestamp" in row.fields:
        return _mooncake(row), row
    for field, reader in _TABLES.items():
        if field in row.fields:
            return reader(row, UNITS_S[unit or "s"], reading), None
    known = ", ".join(("at_s", "timestamp", *_TABLES))
    raise row.refused("timestamp", f"a request needs its arrival time in one of {known}")


def _mooncake(row: FileRow) -> TraceRow:
    blocks = row.fields.get("hash_ids") or ()
    if isinstance(blocks, str):  # a cell of a table
        try:
            blocks = json.loads(blocks)
        except (ValueError, RecursionError):
            raise row.refused("hash_ids", "must be a list of whole numbers") from None
    if not isinstance(blocks, Sequence) or not all(type(block) is int for block in blocks):
        raise row.refused("hash_ids", "must be a list of whole numbers")
    at, tokens = row.number("timestamp"), row.tokens("input_length")
    if len(blocks) > tokens:
        raise row.refused("hash_ids", f"{len(blocks)} blocks for {tokens} tokens")
    return TraceRow(at, None, tokens, row.tokens("output_length"), tuple(blocks))


def _burst_gpt(row: FileRow, unit_s: float, reading: Reading) -> TraceRow:
    return TraceRow(
        at_s=row.number("Timestamp") * unit_s,
        input_tokens=row.tokens("Request tokens"),
        output_tokens=_at_least_one(row, "Response tokens", reading),
    )


def _azure(row: FileRow, unit_s: float, reading: Reading) -> TraceRow:
    return TraceRow(
        at_s=_moment_s(row, "TIMESTAMP", unit_s),
        input_tokens=row.tokens("ContextTokens"),
        output_tokens=_at_least_one(row, "GeneratedTokens", reading),
    )


def _at_least_one(row: FileRow, name: str, reading: Reading) -> int:
    """The tokens of an answer; of one that failed when the trace was taken, one."""
    tokens = row.tokens(name, least=0)
    if tokens == 0:
        reading.note(f"{name!r} is 0, so one token is requested")
    return max(1, tokens)


def _moment_s(row: FileRow, name: str, unit_s: float) -> float:
    """A date, or a number of the unit, in seconds."""
    given: Any = row.fields[name]
    try:
        moment = datetime.fromisoformat(given.strip())
    except (AttributeError, ValueError):
        return row.number(name) * unit_s
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


_TABLES: dict[str, Callable[[FileRow, float, Reading], TraceRow]] = {
    "Timestamp": _burst_gpt,
    "TIMESTAMP": _azure,
}
