"""The text of a file → its records, each with its place. One that cannot be used is left out and counted."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite
from typing import Any, NoReturn, TypeVar

from pytest_llmspeed.errors import SettingsError

MOST_TOKENS = 10_000_000
"""No prompt, answer or block has more tokens."""
MOST_NOTES = 10
LONGEST_CELL = 2**31 - 1
SEPARATORS = ",;\t|"
T = TypeVar("T")


class RecordError(SettingsError):
    """A record that cannot be used: where it stands, and why."""


@dataclass(frozen=True, slots=True)
class FileRow:
    """A record of a file, and where it stands."""

    where: str
    fields: Mapping[str, Any]

    def refused(self, name: str, why: str) -> RecordError:
        """Return the error that names the record and one of its fields."""
        return RecordError(f"{self.where}, field {name!r}: {why}")

    def number(self, name: str, least: float = 0) -> float:
        """Return a field as a number, which a text may hold too; raises `RecordError`."""
        value = self.fields.get(name)
        if value is None:
            raise self.refused(name, "it is missing")
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = float("nan")
        if isinstance(value, bool) or not isfinite(number):
            raise self.refused(name, f"{value!r:.60} is not a number")
        if number < least:
            raise self.refused(name, f"{number:g} is less than {least:g}")
        return number

    def tokens(self, name: str, least: int = 1) -> int:
        """Return a field as a count of tokens; raises `RecordError`."""
        number = self.number(name, least)
        if number != int(number) or number > MOST_TOKENS:
            raise self.refused(name, f"{number:g} is not a count of tokens")
        return int(number)

    def optional_tokens(self, name: str) -> int | None:
        """Return a field as a count of tokens, None if it is not there."""
        return None if self.fields.get(name) is None else self.tokens(name)


@dataclass(slots=True)
class Reading:
    """What became of the records of a file: `notes` say what was left out or changed, once a kind."""

    name: str
    total: int = 0
    bad: list[RecordError] = field(default_factory=list)
    changes: Counter[str] = field(default_factory=Counter)

    def note(self, change: str) -> None:
        """Count a change that was made to a record."""
        self.changes[change] += 1

    def read(self, text: str, limit: int | None, read_row: Callable[[FileRow], T]) -> list[T]:
        """Return what `read_row` makes of each record that can be used."""
        found = []
        for row in islice(_rows(text, self.name), limit):
            self.total += 1
            try:
                if isinstance(row, RecordError):
                    raise row
                found.append(read_row(row))
            except RecordError as error:
                self.bad.append(error)
        return found

    def refuse(self, empty: str) -> NoReturn:
        """Raise `SettingsError`: no record of the file can be used."""
        if not self.bad:
            raise SettingsError(f"{self.name}: {empty}")
        more = f" (and {len(self.bad) - 1} more)" if len(self.bad) > 1 else ""
        raise SettingsError(f"{self.bad[0]}{more}") from self.bad[0]

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence for each kind of change, the records that were left out first."""
        left_out = (
            [f"{self.name}: {len(self.bad)} of {self.total} records left out, the first: {self.bad[0]}"]
            if self.bad
            else []
        )
        changed = [
            f"{self.name}: {change} (records: {count})" for change, count in self.changes.most_common()
        ]
        more = [f"{self.name}: {len(changed) - MOST_NOTES} more kinds of changes"]
        return (*left_out, *changed[:MOST_NOTES], *(more if len(changed) > MOST_NOTES else ()))


def _rows(text: str, name: str) -> Iterator[FileRow | RecordError]:
    start = text.lstrip()[:1]
    if start == "[":
        return _array(text, name)
    if start and start != "{" and any(mark in text.lstrip().split("\n", 1)[0] for mark in SEPARATORS):
        return _table(text.lstrip(), name)
    return _lines(text, name)


def _array(text: str, name: str) -> Iterator[FileRow | RecordError]:
    listed = _json(text, name)
    return _objects(((f"{name}, entry {number}", entry) for number, entry in enumerate(listed, start=1)))


def _objects(entries: Iterable[tuple[str, Any]]) -> Iterator[FileRow | RecordError]:
    for where, entry in entries:
        if isinstance(entry, Mapping):
            yield FileRow(where, entry)
        else:
            yield RecordError(f"{where}: {entry!r:.60} is not a JSON object")


def _lines(text: str, name: str) -> Iterator[FileRow | RecordError]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield from _objects([(f"{name}, line {number}", _json(line, f"{name}, line {number}"))])
        except RecordError as error:
            yield error


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{where}: it is not JSON: {error}") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _table(text: str, name: str) -> Iterator[FileRow | RecordError]:
    """The rows of a CSV file under its heading; an empty cell is a field that is not there."""
    heading = text.split("\n", 1)[0]
    separator = max(SEPARATORS, key=heading.count)
    before = csv.field_size_limit(LONGEST_CELL)
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True)
        for record in reader:
            where = f"{name}, line {reader.line_num}"
            cells = {key.strip(): value for key, value in record.items() if key and value not in (None, "")}
            if cells:
                yield FileRow(where, cells)
    except csv.Error as error:
        yield RecordError(f"{name}, line {reader.line_num}: it cannot be read as CSV: {error}")
    finally:
        csv.field_size_limit(before)
