"""What a prompt expects of its answer, and which of it an answer does not keep."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_llmspeed.quality.choices import named_options
from pytest_llmspeed.quality.fenced_json import json_values
from pytest_llmspeed.quality.numbers import last_number
from pytest_llmspeed.quality.patterns import PatternError, matches
from pytest_llmspeed.quality.schemas import misfit

LEAST_REPEATS = 4
LEAST_LOOP_CHARS = 32
LOOP_WINDOW_CHARS = 8192
"""An answer that ends in four or more repeats of anything, this long together, runs in a loop.

Only its last characters are searched: the search takes quadratic time.
"""


@dataclass(frozen=True, slots=True)
class Number:
    """The last number of the answer, within `tolerance`."""

    value: float
    tolerance: float = 0.0


@dataclass(frozen=True, slots=True)
class MultipleChoice:
    """Of `options` the answer names `correct` and no other."""

    options: tuple[str, ...]
    correct: str


@dataclass(frozen=True, slots=True)
class Contract:
    """What an answer has to keep; what is None, empty or False asks nothing.

    Its fields are those of `expect` in a prompt file. Letters of either case and width are the same for
    `contains` and `choice`; `equals` leaves out space around the answer only. Lengths are in characters.
    Accents compare alike however they are encoded.
    """

    equals: str | None = None
    contains: tuple[str, ...] = ()
    regex: str | None = None
    json_schema: Mapping[str, Any] | None = None
    number: Number | None = None
    choice: MultipleChoice | None = None
    finish_reason: str | None = None
    min_chars: int | None = None
    max_chars: int | None = None
    no_repetition: bool = False

    @property
    def asks(self) -> bool:
        """True if it asks anything."""
        return self != Contract()


def not_kept(contract: Contract, text: str, finish_reason: str | None) -> tuple[str, ...]:
    """Return what an answer breaks of its contract, one phrase each; empty if it keeps all."""
    return tuple(_not_kept(contract, unicodedata.normalize("NFC", text), finish_reason))


def _not_kept(contract: Contract, text: str, finish_reason: str | None) -> Iterator[str]:
    if contract.equals is not None and text.strip() != _composed(contract.equals).strip():
        yield f"it is not {contract.equals!r}"
    for part in contract.contains:
        if _folded(part) not in _folded(text):
            yield f"it does not contain {part!r}"
    if contract.regex is not None and (why := _no_such_match(contract.regex, text)):
        yield why
    if contract.json_schema is not None and (why := _no_such_json(contract.json_schema, text)):
        yield why
    if contract.number is not None and (why := _no_such_number(contract.number, text)):
        yield why
    if contract.choice is not None and (why := _no_such_choice(contract.choice, text)):
        yield why
    if contract.finish_reason is not None and finish_reason != contract.finish_reason:
        yield f"it ended with {finish_reason!r}, not {contract.finish_reason!r}"
    if contract.min_chars is not None and len(text) < contract.min_chars:
        yield f"it has {len(text)} characters, fewer than {contract.min_chars}"
    if contract.max_chars is not None and len(text) > contract.max_chars:
        yield f"it has {len(text)} characters, more than {contract.max_chars}"
    if contract.no_repetition and (unit := loop_of(text)):
        yield f"it repeats {unit!r} without end"


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _folded(text: str) -> str:
    """A text as `contains` compares it: neither case, nor width, nor the way an accent is encoded counts."""
    return _composed(unicodedata.normalize("NFKC", text).casefold())


def _no_such_match(pattern: str, text: str) -> str | None:
    try:
        return None if matches(pattern, text) else f"nothing in it matches {pattern!r}"
    except PatternError as error:
        return str(error)


def _no_such_json(schema: Mapping[str, Any], text: str) -> str | None:
    """None if any JSON value in the answer fits; else what is wrong with the likeliest one."""
    values, error = json_values(text)
    if not values:
        return f"it is not JSON: {error}"
    misfits = [misfit(schema, value) for value in values]
    return None if None in misfits else misfits[0]


def _no_such_number(wanted: Number, text: str) -> str | None:
    readings = last_number(text)
    if not readings:
        return f"there is no number in it, {wanted.value:g} is expected"
    if any(abs(reading - wanted.value) <= wanted.tolerance for reading in readings):
        return None
    return f"its last number is {readings[0]:g}, not {wanted.value:g}"


def _no_such_choice(wanted: MultipleChoice, text: str) -> str | None:
    named = named_options(text, wanted.options)
    if named == [wanted.correct]:
        return None
    return f"it names {' and '.join(map(repr, named)) or 'none of the options'}, not {wanted.correct!r} alone"


def loop_of(text: str) -> str | None:
    """Return what an answer repeats at its end until it is cut off, None where it does not."""
    text = text[-LOOP_WINDOW_CHARS:]
    for length in range(1, len(text) // LEAST_REPEATS + 1):
        tail = text[-max(LEAST_REPEATS * length, LEAST_LOOP_CHARS) :]
        if len(tail) >= LEAST_LOOP_CHARS and tail[length:] == tail[:-length] and tail.strip():
            return tail[:length]
    return None
