"""What a prompt expects of its answer, and which of it an answer does not keep."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

LEAST_REPEATS = 4
LEAST_LOOP_CHARS = 32
"""An answer that ends in four or more repeats of anything, this long together, runs in a loop."""

_NUMBER = re.compile(r"[-+−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?")
_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Number:
    """The last number of the answer, within `tolerance`."""

    value: float
    tolerance: float = 0.0


@dataclass(frozen=True, slots=True)
class Choice:
    """Of `options` the answer names `correct` and no other."""

    options: tuple[str, ...]
    correct: str


@dataclass(frozen=True, slots=True)
class Contract:
    """What an answer has to keep; what is None, empty or False asks nothing.

    Its fields are those of `expect` in a prompt file. Letters of either case are the same for
    `contains` and `choice`; `equals` leaves out space around the answer only. Lengths are in characters.
    """

    equals: str | None = None
    contains: tuple[str, ...] = ()
    regex: str | None = None
    json_schema: Mapping[str, Any] | None = None
    number: Number | None = None
    choice: Choice | None = None
    finish_reason: str | None = None
    min_chars: int | None = None
    max_chars: int | None = None
    no_repetition: bool = False

    @property
    def asks(self) -> bool:
        """True if it asks anything."""
        return self != Contract()


def not_kept(contract: Contract, text: str, finish_reason: str | None) -> tuple[str, ...]:
    """Return what of a contract an answer does not keep, one phrase each; none where it keeps all."""
    return tuple(_not_kept(contract, text, finish_reason))


def _not_kept(contract: Contract, text: str, finish_reason: str | None) -> Iterator[str]:
    if contract.equals is not None and text.strip() != contract.equals.strip():
        yield f"it is not {contract.equals!r}"
    for part in contract.contains:
        if part.casefold() not in text.casefold():
            yield f"it does not contain {part!r}"
    if contract.regex is not None and not re.search(contract.regex, text):
        yield f"nothing in it matches {contract.regex!r}"
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


def _no_such_json(schema: Mapping[str, Any], text: str) -> str | None:
    from jsonschema import validators
    from jsonschema.exceptions import best_match

    fenced = _FENCED.search(text)
    try:
        value = json.loads(fenced.group(1) if fenced else text)
    except (ValueError, RecursionError) as error:
        return f"it is not JSON: {error}"
    validator = validators.validator_for(schema)(schema)
    misfit = best_match(validator.iter_errors(value))
    return None if misfit is None else f"its JSON does not fit the schema: {misfit.message}"


def _no_such_number(wanted: Number, text: str) -> str | None:
    found = numbers_in(text)
    if not found:
        return f"there is no number in it, {wanted.value:g} is expected"
    if abs(found[-1] - wanted.value) <= wanted.tolerance:
        return None
    return f"its last number is {found[-1]:g}, not {wanted.value:g}"


def numbers_in(text: str) -> list[float]:
    """Return the numbers in a text, in order; commas between groups of three digits are left out."""
    return [float(found.replace(",", "").replace("−", "-")) for found in _NUMBER.findall(text)]


def _no_such_choice(wanted: Choice, text: str) -> str | None:
    named = [option for option in wanted.options if _names(text, option)]
    if named == [wanted.correct]:
        return None
    return f"it names {' and '.join(map(repr, named)) or 'none of the options'}, not {wanted.correct!r} alone"


def _names(text: str, option: str) -> bool:
    """True if an option stands in a text, not as a part of a longer word of Latin letters or digits."""
    word = rf"(?<![A-Za-z0-9]){re.escape(option)}(?![A-Za-z0-9])"
    return re.search(word, text, re.IGNORECASE) is not None


def loop_of(text: str) -> str | None:
    """Return what an answer repeats at its end until it is cut off, None where it does not."""
    for length in range(1, len(text) // LEAST_REPEATS + 1):
        tail = text[-max(LEAST_REPEATS * length, LEAST_LOOP_CHARS) :]
        if len(tail) >= LEAST_LOOP_CHARS and tail[length:] == tail[:-length] and tail.strip():
            return tail[:length]
    return None
