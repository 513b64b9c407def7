"""JSON in answers: among code fences of any kind, held against schemas that fetch nothing and never hang."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_llmspeed.quality import patterns
from pytest_llmspeed.quality.contracts import Contract, not_kept
from pytest_llmspeed.quality.schemas import SchemaMistakeError, check_schema

SCHEMA = {"type": "object", "required": ["a"]}


@pytest.mark.parametrize(
    "answer",
    [
        '{"a": 1}',
        '\ufeff{"a": 1}',
        '`{"a": 1}`',
        'Run:\n```bash\nls\n```\nand get\n```json\n{"a": 1}\n```\nDone.',
        '```JSON\n{"a": 1}\n```',
        '```application/json\n{"a": 1}\n```',
        '```json {"a": 1} ```',
        '```{"a": 1}```',
        '```\n{"a": 1}\n```',
        '~~~json\n{"a": 1}\n~~~',
        '````json\n{"a": "x"}\n````',
        '```json\n{"a": "```"}\n```',
        '```json\n{"a": "x\\n```"}\n```',
        '{"a": "```json"}',
        '```json\n{"a": 1}',
        '> ```json\n> {"a": 1}\n> ```',
        '1. Here:\n   ```json\n   {"a": 1}\n   ```',
        '```json\n{"b": 1}\n```\nbetter:\n```json\n{"a": 1}\n```',
    ],
)
def test_the_json_of_an_answer_is_found(answer: str) -> None:
    """Alone, or in a fence of any kind, closed or cut off."""
    assert not_kept(Contract(json_schema=SCHEMA), answer, "stop") == ()


@pytest.mark.parametrize("answer", ["NaN", '{"a": NaN}', '{"a": -Infinity}', '```json\n{"a": Infinity}\n```'])
def test_nan_and_infinity_are_not_json(answer: str) -> None:
    """Python would read them."""
    (found,) = not_kept(Contract(json_schema=SCHEMA), answer, "stop")
    assert "is not a JSON value" in found


@pytest.mark.parametrize(
    "answer", ["[" * 100_000, '{"a":' * 100_000, "1" * 5000, "```" * 1000, "`" * 100_000]
)
def test_hostile_json_is_not_kept(answer: str) -> None:
    """It is one phrase, not an exception."""
    assert len(not_kept(Contract(json_schema=SCHEMA), answer, "stop")) == 1


@pytest.mark.parametrize(
    "reference", ["#/$defs/Missing", "#nowhere", "http://127.0.0.1:9/schema.json", "other.json", "urn:x:y"]
)
@pytest.mark.parametrize("place", ["properties", "allOf", "definitions"])
def test_a_reference_that_leads_nowhere_is_a_mistake(reference: str, place: str) -> None:
    """Wherever it stands, also where only another reference leads; nothing is fetched."""
    wrong: dict[str, Any] = {"$ref": reference}
    schema = {
        "properties": {"properties": {"a": wrong}},
        "allOf": {"allOf": [{"items": wrong}]},
        "definitions": {"$ref": "#/definitions/b", "definitions": {"b": {"not": wrong}}},
    }[place]
    with pytest.raises(SchemaMistakeError, match="cannot be resolved"):
        check_schema(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "integer"}}},
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "definitions": {"A": {}},
            "$ref": "#/definitions/A",
        },
        {"$ref": "https://json-schema.org/draft/2020-12/schema"},
        {"properties": {"$ref": {"type": "string"}}},
        {"const": {"$ref": "#/nowhere"}},
        {"$id": "urn:me", "$ref": "#here", "$defs": {"x": {"$anchor": "here"}}},
        {"properties": {"child": {"$ref": "#"}}},
    ],
)
def test_references_within_a_schema_are_fine(schema: dict[str, Any]) -> None:
    """So are meta-schemas, and what only looks like a reference."""
    check_schema(schema)


def test_a_schema_that_refers_to_itself_without_end_is_one_phrase() -> None:
    """It can be read, but nothing can be held against it."""
    schema = {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}
    check_schema(schema)
    (found,) = not_kept(Contract(json_schema=schema), "{}", "stop")
    assert "refers to itself without end" in found


@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        ({"properties": {"a": {"pattern": "^(a|aa)+$"}}}, '{"a": "%s"}'),
        ({"patternProperties": {"^(a|aa)+$": {}}}, '{"%s": 1}'),
        ({"patternProperties": {"^(a|aa)+$": {}}, "additionalProperties": False}, '{"%s": 1}'),
    ],
)
def test_patterns_of_a_schema_are_given_up_too(
    schema: dict[str, Any], answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are searched in what a model wrote, as those of regex are."""
    monkeypatch.setattr(patterns, "SEARCH_LIMIT_S", 0.05)
    (found,) = not_kept(Contract(json_schema=schema), answer % ("a" * 60 + "!"), "stop")
    assert "took more than 0.05 s" in found


@pytest.mark.parametrize(
    ("schema", "answer", "kept"),
    [
        ({"additionalProperties": False, "properties": {"a": {}}}, '{"a": 1}', True),
        ({"additionalProperties": False, "properties": {"a": {}}}, '{"b": 1}', False),
        ({"additionalProperties": {"type": "string"}}, '{"b": 1}', False),
        (
            {"patternProperties": {"^b": {"type": "string"}}, "additionalProperties": False},
            '{"b1": "x"}',
            True,
        ),
        ({"patternProperties": {"^b": {"type": "string"}}}, '{"b1": 1}', False),
        ({"type": "string", "pattern": "^x"}, '"xy"', True),
        ({"type": "string", "pattern": "^x"}, '"yx"', False),
    ],
)
def test_properties_and_patterns_hold_as_json_schema_says(
    schema: dict[str, Any], answer: str, kept: bool
) -> None:
    """The keywords that search with a limit do what they do without one."""
    assert (not_kept(Contract(json_schema=schema), answer, "stop") == ()) is kept


@pytest.mark.parametrize("schema", [{"pattern": "(["}, {"patternProperties": {"([": {}}}])
def test_a_wrong_pattern_in_a_schema_is_a_mistake(schema: dict[str, Any]) -> None:
    """It is told when the file is read."""
    with pytest.raises(SchemaMistakeError, match=r"regular expression|is not a .regex."):
        check_schema(schema)
