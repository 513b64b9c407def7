"""The text of a prompt file, JSONL or YAML → rows that know their lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from pytest_llmspeed.errors import SettingsError

INSTALL = "pip install 'pytest-llmspeed[quality]'"
MOST_VALUES = 1_000_000
MOST_LEVELS = 64


@dataclass(frozen=True, slots=True)
class PromptRow:
    """One prompt as it stands in a file: its fields, its line, and the lines of its fields.

    A field inside another is named with a dot, as in `expect.number`.
    """

    fields: Mapping[str, Any]
    line: int
    lines: Mapping[str, int] = field(default_factory=dict)

    def line_of(self, name: str) -> int:
        """The line of a field, the row's own where that is not known."""
        return self.lines.get(name, self.line)


def rows_of(text: str, file: str) -> list[PromptRow]:
    """Return the rows of a prompt file; `file` is its name, which says its format.

    Raises `SettingsError` with file and line.
    """
    suffix = file.rpartition(".")[2].lower()
    if suffix == "jsonl":
        rows = list(_rows_of_jsonl(text, file))
    elif suffix in ("yaml", "yml"):
        rows = list(_rows_of_yaml(text, file))
    else:
        raise SettingsError(f"{file}: a prompt file is .jsonl, .yaml or .yml")
    if not rows:
        raise SettingsError(f"{file}: it contains no prompts")
    return rows


def _rows_of_jsonl(text: str, file: str) -> Iterator[PromptRow]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        place = f"{file}:{number}"
        try:
            fields = json.loads(line, object_pairs_hook=_without_repeats)
        except (ValueError, RecursionError) as error:
            raise SettingsError(f"{place}: not JSON: {error}") from error
        yield PromptRow(_mapping(fields, place), number)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the field {twice!r} appears twice")
    return fields


def _rows_of_yaml(text: str, file: str) -> Iterator[PromptRow]:
    try:
        import yaml
    except ImportError as error:
        raise SettingsError(f"{file}: PyYAML is not installed: {INSTALL}") from error
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if not isinstance(node, yaml.SequenceNode):
            raise SettingsError(f"{file}:1: must be a list of prompts, each a mapping")
        _check_size(node, file)
        for child in node.value:
            line = child.start_mark.line + 1
            fields = _mapping(_constructed(loader, child, f"{file}:{line}"), f"{file}:{line}")
            yield PromptRow(fields, line, dict(_field_lines(child)))
    except yaml.YAMLError as error:
        raise SettingsError(_not_yaml(error, text, file)) from error
    except RecursionError as error:
        raise SettingsError(f"{file}: it is nested too deep") from error


def _constructed(loader: Any, node: Any, place: str) -> object:
    """The value of a node; PyYAML raises errors of its own kind for some scalars only."""
    try:
        return loader.construct_object(node, deep=True)
    except (ValueError, TypeError, AttributeError, OverflowError, LookupError) as error:
        raise SettingsError(f"{place}: a value cannot be read: {error}; put quotes around it") from error


def _not_yaml(error: Exception, text: str, file: str) -> str:
    mark, place = getattr(error, "problem_mark", None), getattr(error, "position", 0)
    line = mark.line + 1 if mark else text.count("\n", 0, place) + 1
    what = getattr(error, "problem", None) or getattr(error, "reason", error)
    if (character := getattr(error, "character", None)) is not None:
        what = f"the character U+{character:04X} is not allowed; write it as an escape in double quotes"
    return f"{file}:{line}: not YAML: {what}"


def _check_size(root: Any, file: str) -> None:
    """Raise for aliases that repeat themselves or each other until no memory would hold them."""
    sizes: dict[int, int] = {}
    under_way: set[int] = set()

    def size(node: Any) -> int:
        if id(node) in under_way:
            raise SettingsError(f"{file}:{node.start_mark.line + 1}: an alias refers to its own anchor")
        if id(node) not in sizes:
            under_way.add(id(node))
            sizes[id(node)] = 1 + sum(map(size, _children(node)))
            under_way.discard(id(node))
        return sizes[id(node)]

    if size(root) > MOST_VALUES:
        raise SettingsError(f"{file}: with its aliases it has more than {MOST_VALUES:,} values")


def _children(node: Any) -> Iterator[Any]:
    for child in node.value if isinstance(node.value, list) else ():
        yield from child if isinstance(child, tuple) else (child,)


def _field_lines(node: Any, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Each field of a YAML mapping, by its dotted name, with its line."""
    for key, value in node.value if node.id == "mapping" else ():
        name = f"{prefix}{key.value}"
        yield name, key.start_mark.line + 1
        if value.id == "mapping":
            yield from _field_lines(value, f"{name}.")


def _mapping(fields: object, place: str) -> Mapping[str, Any]:
    if not isinstance(fields, Mapping):
        raise SettingsError(f"{place}: a prompt is a mapping, as in {{'prompt': 'What is 2+3?'}}")
    if mistake := next(_not_plain(fields), None):
        raise SettingsError(f"{place}: {mistake}")
    return fields


def _not_plain(value: object, name: str = "", depth: int = 0) -> Iterator[str]:
    """Yield what in a value JSON cannot hold, or a server would not take."""
    where = f"{name}: " if name else ""
    if depth > MOST_LEVELS:
        yield f"{where}it is nested more than {MOST_LEVELS} levels deep"
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                yield f"{where}the field name {key!r} has to be a text; put quotes around it"
            yield from _not_plain(inner, f"{name}.{key}".lstrip("."), depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _not_plain(inner, name, depth + 1)
    elif isinstance(value, str):
        if broken := next((char for char in value if "\ud800" <= char <= "\udfff"), None):
            yield f"{where}it contains half of a surrogate pair (U+{ord(broken):04X})"
    elif isinstance(value, float) and not isfinite(value):
        yield f"{where}{value} is not a number that can be used"
    elif value is not None and not isinstance(value, bool | int | float):
        yield f"{where}{value!r} is of type {type(value).__name__}; put quotes around it to make it a text"
