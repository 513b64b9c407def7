"""The text of a prompt file, JSONL or YAML → rows that know their lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_llmspeed.core.errors import SettingsError

INSTALL = "pip install 'pytest-llmspeed[quality]'"


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt as it stands in a file: its fields, its line, and the lines of its fields.

    A field inside another is named with a dot, as in `expect.number`.
    """

    fields: Mapping[str, Any]
    line: int
    lines: Mapping[str, int] = field(default_factory=dict)

    def line_of(self, name: str) -> int:
        """The line of a field, the row's own where that is not known."""
        return self.lines.get(name, self.line)


def rows_of(text: str, file: str) -> list[Row]:
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
        raise SettingsError(f"{file}: it holds no prompts")
    return rows


def _rows_of_jsonl(text: str, file: str) -> Iterator[Row]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except ValueError as error:
            raise SettingsError(f"{file}:{number}: not JSON: {error}") from error
        yield Row(_mapping(fields, f"{file}:{number}"), number)


def _rows_of_yaml(text: str, file: str) -> Iterator[Row]:
    try:
        import yaml
    except ImportError as error:
        raise SettingsError(f"{file}: PyYAML is not installed: {INSTALL}") from error
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if not isinstance(node, yaml.SequenceNode):
            raise SettingsError(f"{file}:1: it has to be a list of prompts, each a mapping")
        for child in node.value:
            line = child.start_mark.line + 1
            fields = _mapping(loader.construct_object(child, deep=True), f"{file}:{line}")
            yield Row(fields, line, dict(_field_lines(child)))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = 1 if mark is None else mark.line + 1
        raise SettingsError(f"{file}:{line}: not YAML: {getattr(error, 'problem', error)}") from error
    finally:
        loader.dispose()


def _field_lines(node: Any, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Each field of a YAML mapping, by its dotted name, with its line."""
    for key, value in node.value:
        name = f"{prefix}{key.value}"
        yield name, key.start_mark.line + 1
        if value.id == "mapping":
            yield from _field_lines(value, f"{name}.")


def _mapping(fields: object, place: str) -> Mapping[str, Any]:
    if not isinstance(fields, Mapping):
        raise SettingsError(f"{place}: a prompt is a mapping, as in {{'prompt': 'What is 2+3?'}}")
    return fields
