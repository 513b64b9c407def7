"""JSON schemas of prompt files: checked whole when the file is read, applied without network or hangs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from pytest_llmspeed.quality.patterns import PatternError, compiled, matches

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class SchemaMistakeError(ValueError):
    """A schema that cannot be used, and why."""


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raise `SchemaMistakeError` for a schema that no answer could be held against.

    Every reference has to lead somewhere within the schema, or to a published meta-schema: nothing is
    fetched, neither here nor while a test is measured.
    """
    from jsonschema import validators
    from jsonschema.exceptions import SchemaError

    try:
        validators.validator_for(schema).check_schema(schema)
        for each in _subschemas(schema):
            _check_patterns(each)
    except SchemaError as error:
        raise SchemaMistakeError(f"it is not a JSON schema: {error.message}") from error
    except PatternError as error:
        raise SchemaMistakeError(str(error)) from error
    except RecursionError as error:
        raise SchemaMistakeError("it is nested too deep") from error


def misfit(schema: Mapping[str, Any], value: object) -> str | None:
    """Return why a JSON value does not fit a schema; None where it fits."""
    from jsonschema.exceptions import best_match
    from jsonschema_specifications import REGISTRY

    # the registry of meta-schemas, instead of jsonschema's own, which fetches what it does not know
    validator = _validator_class(_dialect(schema))(schema, registry=REGISTRY)
    try:
        found = best_match(validator.iter_errors(value))
    except PatternError as error:
        return str(error)
    except RecursionError:
        return "its JSON cannot be checked: it is nested too deep, or the schema refers to itself without end"
    return None if found is None else f"its JSON does not fit the schema: {found.message}"


def _dialect(schema: Mapping[str, Any]) -> Any:
    from jsonschema import validators

    return validators.validator_for(schema)


@lru_cache(maxsize=16)
def _validator_class(dialect: Any) -> Any:
    """The validator of a dialect whose patterns are searched with a time limit."""
    from jsonschema import validators

    limited = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
    }
    known = {keyword: check for keyword, check in limited.items() if keyword in dialect.VALIDATORS}
    return validators.extend(dialect, known)


def _pattern(validator: Any, pattern: str, instance: Any, _: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if validator.is_type(instance, "string") and not matches(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, _: Any) -> Iterator[Any]:
    if validator.is_type(instance, "object"):
        for pattern, schema in patterns.items():
            for name, value in instance.items():
                if matches(pattern, name):
                    yield from validator.descend(value, schema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if not validator.is_type(instance, "object"):
        return
    patterns = schema.get("patternProperties", ())
    others = [
        name
        for name in instance
        if name not in schema.get("properties", {})
        and not any(matches(pattern, name) for pattern in patterns)
    ]
    if validator.is_type(allowed, "object"):
        for name in others:
            yield from validator.descend(instance[name], allowed, path=name)
    elif not allowed and others:
        yield ValidationError(f"these properties are not allowed: {', '.join(map(repr, others))}")


def _subschemas(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The schema and all within it, also where only a reference leads; raises for one that leads nowhere."""
    from jsonschema_specifications import REGISTRY
    from referencing import Resource
    from referencing.exceptions import NoSuchAnchor, Unresolvable
    from referencing.jsonschema import DRAFT202012

    root = Resource.from_contents(schema, default_specification=DRAFT202012)
    left = [(root, REGISTRY.resolver_with_root(root))]
    seen: set[int] = set()
    while left:
        resource, resolver = left.pop()
        if id(resource.contents) in seen or not isinstance(resource.contents, Mapping):
            continue
        seen.add(id(resource.contents))
        yield resource.contents
        left += [(inner, resolver.in_subresource(inner)) for inner in resource.subresources()]
        for keyword in REFERENCES:
            reference = resource.contents.get(keyword)
            if not isinstance(reference, str):
                continue
            try:
                found = resolver.lookup(reference)
            except (Unresolvable, NoSuchAnchor) as error:
                raise SchemaMistakeError(
                    f"its {keyword} {reference!r} cannot be resolved; references must stay within the schema "
                    "(nothing is fetched)"
                ) from error
            left.append((DRAFT202012.create_resource(found.contents), found.resolver))


def _check_patterns(schema: Mapping[str, Any]) -> None:
    properties = schema.get("patternProperties")
    named = list(properties) if isinstance(properties, Mapping) else []
    for pattern in (schema.get("pattern"), *named):
        if isinstance(pattern, str):
            compiled(pattern)
