"""Timed traces: requests with the moments at which they came, to be replayed.

A row of a trace that was published without its texts has lengths only; its prompt is then made of
words. Where it names the blocks that its prompt is made of (Mooncake), prompts that share a block
share its text, so that a prefix cache finds what it would have found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from pytest_llmspeed.errors import SettingsError
from pytest_llmspeed.load.synthetic import words
from pytest_llmspeed.load.workload import Conversation, Turn, Workload

BLOCK_TOKENS = 512
"""Tokens of one block of the Mooncake traces."""


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One request: when it came, in seconds, and either the turn itself or its lengths in tokens."""

    at_s: float
    turn: Turn | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    blocks: tuple[int, ...] = ()
    block_tokens: int = BLOCK_TOKENS


@dataclass(frozen=True, slots=True)
class Trace(Workload):
    """Requests in the order in which they came, the first at second 0."""

    rows: tuple[TraceRow, ...]
    remarks: tuple[str, ...] = ()

    @classmethod
    def from_rows(cls, rows: Sequence[TraceRow]) -> Trace:
        """Rows in any order, with times that may begin anywhere."""
        if not rows:
            raise SettingsError("the trace has no requests")
        ordered = sorted(rows, key=lambda row: row.at_s)
        start_s = ordered[0].at_s
        return cls(tuple(replace(row, at_s=row.at_s - start_s) for row in ordered))

    def faster(self, factor: float) -> Trace:
        """The same requests, `factor` times as many a second."""
        if not factor > 0:
            raise SettingsError(f"faster({factor!r}): the factor must be positive")
        return replace(self, rows=tuple(replace(row, at_s=row.at_s / factor) for row in self.rows))

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on records of the file that are left out or changed."""
        return self.remarks

    @property
    def offsets_s(self) -> tuple[float, ...]:
        """The time at which each request is due."""
        return tuple(row.at_s for row in self.rows)

    @property
    def per_s(self) -> float | None:
        """The mean request rate; None if all requests came at one moment."""
        last_s = self.rows[-1].at_s
        return (len(self.rows) - 1) / last_s if last_s > 0 else None

    @property
    def turns_each(self) -> int | None:
        """One."""
        return 1

    def conversation(self, place: int) -> Conversation:
        """The request at a place as a conversation of one turn."""
        row = self.rows[place % len(self.rows)]
        return (row.turn or Turn(_text(row, place), output_tokens=row.output_tokens),)

    def described(self) -> Any:
        """Its rows."""
        return [
            [
                "trace 1",
                row.at_s,
                row.input_tokens,
                row.output_tokens,
                row.blocks,
                "None" if row.turn is None else row.turn.described(),
                *([] if row.block_tokens == BLOCK_TOKENS else [row.block_tokens]),
            ]
            for row in self.rows
        ]


def _text(row: TraceRow, place: int) -> str:
    """Words: of each whole block those that the block always has, the rest of the row's own."""
    needed = -(-row.input_tokens // row.block_tokens)
    shared = [words(Random(f"block {block}"), row.block_tokens) for block in row.blocks[:needed]]
    text = " ".join(shared).split(" ")[: row.input_tokens] if shared else []
    missing = row.input_tokens - len(text)
    return " ".join([*text, *words(Random(f"row {place}"), missing).split(" ")] if missing > 0 else text)
