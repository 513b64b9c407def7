"""The text of a file → a workload or a trace, whatever known shape its rows have.

A row that cannot be used is an error that names the file, the row and the field.

    {"body": {"messages": […]}}                         a line of an OpenAI batch
    {"conversations": [{"from": "human", "value": …}]}  ShareGPT, also as one JSON array
    {"prompt": …} or {"messages": […]}                  plain, with output_tokens or max_tokens
    {"timestamp": 120, "input_length": …, "output_length": …, "hash_ids": […]}     Mooncake, ms
    {"Timestamp": 0.1, "Request tokens": …, "Response tokens": …}                  BurstGPT, s, JSON or CSV
    {"at_s": 0.1, "prompt": …}                          a plain row with its time
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_llmspeed.core.errors import SettingsError
from pytest_llmspeed.core.traces import Trace, TraceRow
from pytest_llmspeed.core.workloads import Conversation, Listed, Turn, Workload

NOT_SENT = ("model", "stream", "stream_options", "n")
"""Fields of a batch's body that are the load's own affair."""
PEOPLE = ("human", "user")
CSV_HEAD = "Timestamp,"


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of a file, and where it stands."""

    where: str
    fields: Mapping[str, Any]

    def refused(self, field: str, why: str) -> SettingsError:
        return SettingsError(f"{self.where}, field {field!r}: {why}")

    def number(self, *names: str, least: float = 0) -> float:
        """The first of some fields that is there, as a number."""
        name = next((name for name in names if name in self.fields), None)
        if name is None:
            raise self.refused(names[0], "it is missing")
        try:
            value = float(self.fields[name])
        except (TypeError, ValueError):
            raise self.refused(name, f"{self.fields[name]!r} is no number") from None
        if not value >= least:
            raise self.refused(name, f"{value:g} is less than {least:g}")
        return value

    def count(self, name: str) -> int | None:
        """A field that holds a count of tokens, None where it is not there."""
        return int(self.number(name, least=1)) if self.fields.get(name) is not None else None


def workload_of(text: str, name: str, *, turns: int | None = 1, limit: int | None = None) -> Workload:
    """Return the workload that a file holds; raises `SettingsError` with file, row and field.

    `turns` limits the turns of each ShareGPT conversation (None: all that people said), `limit` the rows.
    """
    rows = list(_rows(text, name))[:limit]
    conversations = [conversation for row in rows if (conversation := _conversation(row, turns))]
    if not conversations:
        raise SettingsError(f"{name}: it holds no prompt")
    return Listed(tuple(conversations))


def trace_of(text: str, name: str, *, limit: int | None = None) -> Trace:
    """Return the trace that a file holds; raises `SettingsError` with file, row and field."""
    rows = list(_rows(text, name))[:limit]
    if not rows:
        raise SettingsError(f"{name}: it holds no request")
    return Trace.from_rows([_trace_row(row) for row in rows])


def _rows(text: str, name: str) -> Iterator[_Row]:
    if text.lstrip().startswith("["):
        yield from _array(text, name)
    elif text.startswith(CSV_HEAD):
        for number, record in enumerate(csv.DictReader(io.StringIO(text)), start=2):
            yield _Row(f"{name}, line {number}", record)
    else:
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                yield _Row(f"{name}, line {number}", _object(line, f"{name}, line {number}"))


def _array(text: str, name: str) -> Iterator[_Row]:
    found = _json(text, name)
    for number, fields in enumerate(found, start=1):
        if not isinstance(fields, Mapping):
            raise SettingsError(f"{name}, entry {number}: {fields!r:.60} is no JSON object")
        yield _Row(f"{name}, entry {number}", fields)


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise SettingsError(f"{where}: it is no JSON: {error}") from error


def _object(line: str, where: str) -> Mapping[str, Any]:
    fields = _json(line, where)
    if not isinstance(fields, Mapping):
        raise SettingsError(f"{where}: {line:.60} is no JSON object")
    return fields


def _conversation(row: _Row, turns: int | None) -> Conversation:
    if "body" in row.fields:
        return (_batch_turn(row),)
    if "conversations" in row.fields:
        return tuple(_shared_turns(row))[:turns]
    return (_plain_turn(row),)


def _batch_turn(row: _Row) -> Turn:
    body = row.fields["body"]
    if not isinstance(body, Mapping):
        raise row.refused("body", f"{body!r:.60} is no JSON object")
    inner = _Row(row.where, body)
    known = ("messages", "prompt", "max_tokens", "max_completion_tokens", "temperature", *NOT_SENT)
    extra = {name: value for name, value in body.items() if name not in known}
    limit = inner.count("max_completion_tokens") or inner.count("max_tokens")
    drawn = inner.number("temperature") if body.get("temperature") is not None else None
    return Turn(_prompt(inner), max_tokens=limit, extra_body=extra, temperature=drawn)


def _plain_turn(row: _Row) -> Turn:
    return Turn(_prompt(row), max_tokens=row.count("max_tokens"), output_tokens=row.count("output_tokens"))


def _prompt(row: _Row) -> str | tuple[Mapping[str, Any], ...]:
    if "messages" in row.fields:
        messages = row.fields["messages"]
        if not isinstance(messages, list) or not messages:
            raise row.refused("messages", "it is no list of messages")
        if not all(isinstance(message, Mapping) and "role" in message for message in messages):
            raise row.refused("messages", "a message is an object with a role")
        return tuple(messages)
    prompt = row.fields.get("prompt")
    if not isinstance(prompt, str) or not prompt:
        raise row.refused("prompt", "neither it nor 'messages' holds a prompt")
    return prompt


def _shared_turns(row: _Row) -> Iterator[Turn]:
    """What people said in a ShareGPT conversation; a system text goes before the first."""
    said = row.fields["conversations"]
    if not isinstance(said, list):
        raise row.refused("conversations", "it is no list")
    before: list[Mapping[str, Any]] = []
    for each in said:
        who, text = _who_and_text(row, each)
        if who == "system":
            before.append({"role": "system", "content": text})
        elif who in PEOPLE and text:
            yield Turn((*before, {"role": "user", "content": text}) if before else text)
            before = []


def _who_and_text(row: _Row, said: Any) -> tuple[str, str]:
    if not isinstance(said, Mapping):
        raise row.refused("conversations", f"{said!r:.60} is no JSON object")
    who, text = said.get("from") or said.get("role"), said.get("value", said.get("content"))
    if not isinstance(who, str) or not isinstance(text, str):
        raise row.refused("conversations", "an entry has 'from' and 'value', both texts")
    return who, text


def _trace_row(row: _Row) -> TraceRow:
    for field, reader in _TRACE_SHAPES.items():
        if field in row.fields:
            return reader(row)
    raise row.refused(
        "timestamp", f"none of {', '.join(_TRACE_SHAPES)} is there, which say when a request came"
    )


def _mooncake(row: _Row) -> TraceRow:
    blocks = row.fields.get("hash_ids") or ()
    if not isinstance(blocks, Sequence) or not all(isinstance(block, int) for block in blocks):
        raise row.refused("hash_ids", "it is a list of whole numbers")
    return TraceRow(
        at_s=row.number("timestamp") / 1000,
        input_tokens=int(row.number("input_length", least=1)),
        output_tokens=int(row.number("output_length", least=1)),
        blocks=tuple(blocks),
    )


def _burst_gpt(row: _Row) -> TraceRow:
    return TraceRow(
        at_s=row.number("Timestamp"),
        input_tokens=int(row.number("Request tokens", least=1)),
        output_tokens=max(1, int(row.number("Response tokens"))),
    )


def _timed(row: _Row) -> TraceRow:
    return TraceRow(at_s=row.number("at_s"), turn=_plain_turn(row))


_TRACE_SHAPES: dict[str, Callable[[_Row], TraceRow]] = {
    "at_s": _timed,
    "timestamp": _mooncake,
    "Timestamp": _burst_gpt,
}
