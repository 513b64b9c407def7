"""A recipe and what was asked for → the command, environment and files of one server."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from pytest_llmspeed.core.errors import EngineError, did_you_mean
from pytest_llmspeed.edges.engines.base import AUTO, EngineSpec
from pytest_llmspeed.edges.engines.model_files import ModelSource
from pytest_llmspeed.edges.engines.recipes import PYTHON, VALUE, Recipe, Way, filled

HOST = "127.0.0.1"
START_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The options that all servers share."""

    executable: str | None = None
    extra_args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    port: int | None = None
    start_timeout_s: float = START_TIMEOUT_S
    prefix_cache: str | None = None
    tokenizer: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Return the shared ones among a spec's options; raises `EngineError` naming a senseless one."""
        given = {name: options[name] for name in COMMON_OPTIONS if options.get(name) is not None}
        for name, read in READERS.items():
            if name in given:
                given[name] = read(given[name], name)
        return cls(**given)


COMMON_OPTIONS = frozenset(ServerOptions.__dataclass_fields__)


def words(value: Any, option: str) -> tuple[str, ...]:
    """A command or list of arguments as words, a text split as a shell would; raises `EngineError`."""
    if isinstance(value, str):
        return tuple(shlex.split(value))
    if isinstance(value, list | tuple):
        return tuple(str(word) for word in value)
    raise EngineError(f"{option}={value!r}: it is a list of words, or a text that a shell would split")


def _environment(value: Any, option: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise EngineError(f"{option}={value!r}: it maps names of environment variables to values")
    return {str(name): str(content) for name, content in value.items()}


def _port(value: Any, option: str) -> int:
    if not isinstance(value, int) or not 0 < value < 2**16:
        raise EngineError(f"{option}={value!r}: a port is a number from 1 to 65535")
    return value


def _seconds(value: Any, option: str) -> float:
    if not isinstance(value, int | float) or not value > 0:
        raise EngineError(f"{option}={value!r}: it is a positive number of seconds")
    return float(value)


READERS = {"extra_args": words, "env": _environment, "port": _port, "start_timeout_s": _seconds}


@dataclass(frozen=True, slots=True)
class Place:
    """What is decided anew at each start: where a server listens, its key, its folder, its container."""

    port: int
    key: str
    folder: str
    container: str


@dataclass(frozen=True, slots=True)
class Launch:
    """One server to be started. `end` ends its container, `body` goes into each request.

    `fixed_port` is True where the user chose the port.
    """

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    files: Mapping[str, str]
    end: tuple[str, ...]
    body: Mapping[str, Any]
    place: Place
    install: str
    fixed_port: bool = False


def launch(recipe: Recipe, spec: EngineSpec, source: ModelSource | None, place: Place) -> Launch:
    """Return how a server of `spec` is started at `place`; raises `EngineError` for what it cannot have."""
    options = ServerOptions.of(spec.options)
    known = _placeholders(source, options, place)
    way = sum((way.filled(known | value) for way, value in _ways(recipe, spec, options)), Way())
    config = json.dumps(_nested(way.config), indent=1)
    return Launch(
        name=spec.backend,
        command=(*_program(recipe, options, known), *way.arguments, *options.extra_args),
        env={**way.env, **options.env},
        files={recipe.config_file: config} if recipe.config_file else {},
        end=tuple(filled(word, known) for word in recipe.container),
        body=way.body,
        place=place,
        install=recipe.install,
        fixed_port=options.port is not None,
    )


def _placeholders(source: ModelSource | None, options: ServerOptions, place: Place) -> dict[str, Any]:
    return {
        PYTHON: options.executable or sys.executable,
        "{host}": HOST,
        "{port}": place.port,
        "{key}": place.key,
        "{folder}": place.folder,
        "{container}": place.container,
        "{model}": source.path if source else "",
        "{name}": source.name if source else "",
    }


def _program(recipe: Recipe, options: ServerOptions, known: Mapping[str, Any]) -> list[str]:
    program = [filled(word, known) for word in recipe.program]
    if options.executable and PYTHON not in recipe.program:
        program[0] = options.executable
    return program


def _ways(recipe: Recipe, spec: EngineSpec, options: ServerOptions) -> Iterator[tuple[Way, dict[str, Any]]]:
    """All that is in force for a spec, each with what its value stands for."""
    yield recipe.base, {}
    yield recipe.key, {}
    if spec.precision != AUTO:
        yield recipe.precisions[spec.precision], {}
    yield recipe.prefix_cache[prefix_cache(recipe, options)], {}
    for name in sorted(spec.options.keys() - COMMON_OPTIONS):
        value = spec.options[name]
        if name not in recipe.options:
            raise EngineError(f"{recipe.engine} has no means for {name}={value!r}: leave it out")
        if value is not None and value is not False:
            yield recipe.options[name], {VALUE: value}


def prefix_cache(recipe: Recipe, options: ServerOptions) -> str:
    """Whether the server keeps prefixes of prompts: as asked, else its recipe's default."""
    asked = options.prefix_cache or next(iter(recipe.prefix_cache))
    if asked not in recipe.prefix_cache:
        raise EngineError(f"prefix_cache={asked!r}: {did_you_mean(str(asked), recipe.prefix_cache)}")
    return asked


def _nested(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Entries with dotted names as nested mappings."""
    whole: dict[str, Any] = {}
    for name, entry in entries.items():
        *outer, last = name.split(".")
        inner = whole
        for part in outer:
            inner = inner.setdefault(part, {})
        inner[last] = entry
    return whole
