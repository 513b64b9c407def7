"""A recipe and what was asked for → the command, environment and files of one server."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from pytest_llmspeed.engines import gguf
from pytest_llmspeed.engines.base import AUTO, EngineSpec
from pytest_llmspeed.engines.model_files import ModelSource
from pytest_llmspeed.engines.servers.reachability import own_headers
from pytest_llmspeed.engines.servers.recipes import PYTHON, LaunchFragment, Recipe, filled
from pytest_llmspeed.errors import EngineError, did_you_mean
from pytest_llmspeed.text.secret import Secret, secret_values
from pytest_llmspeed.transport.vendor_fields import VALUE

HOST = "127.0.0.1"
START_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The options that all servers share."""

    executable: str | None = None
    extra_args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
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
    if isinstance(value, list | tuple):
        return tuple(str(word) for word in value)
    try:
        return tuple(shlex.split(value))
    except (AttributeError, ValueError) as error:
        raise EngineError(
            f"{option}={value!r}: it is a list of words, or a text that a shell would split ({error})"
        ) from error


def _environment(value: Any, option: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise EngineError(f"{option}={value!r}: it maps names of environment variables to values")
    return {str(name): Secret(content) for name, content in value.items()}


def port_number(value: Any, option: str) -> int:
    """A port; raises `EngineError`."""
    if not isinstance(value, int) or not 0 < value < 2**16:
        raise EngineError(f"{option}={value!r}: a port is a number from 1 to 65535")
    return value


def _seconds(value: Any, option: str) -> float:
    if not isinstance(value, int | float) or not value > 0:
        raise EngineError(f"{option}={value!r}: it is a positive number of seconds")
    return float(value)


def _headers(value: Any, option: str) -> dict[str, str]:  # noqa: ARG001  (there is one such option)
    return own_headers(value)


READERS = {
    "extra_args": words,
    "env": _environment,
    "headers": _headers,
    "port": port_number,
    "start_timeout_s": _seconds,
}


@dataclass(frozen=True, slots=True)
class LaunchPlace:
    """What is decided anew at each start: where a server listens, its key, its folder, its container."""

    port: int
    key: str
    folder: str
    container: str


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """What was asked for: read once, before anything is started. No `source`: the server knows its model.

    `weights` is what a GGUF file holds that the engine runs as it is.
    """

    spec: EngineSpec
    recipe: Recipe
    options: ServerOptions
    source: ModelSource | None
    weights: str | None = None

    @classmethod
    def of(cls, spec: EngineSpec, recipe: Recipe) -> Self:
        """Return the order that a spec is; raises `EngineError` for what cannot be had."""
        source = ModelSource.find(spec.model) if spec.model else None
        weights = _weights(spec, recipe, source) if source and recipe.needs_gguf else None
        return cls(spec, recipe, ServerOptions.of(spec.options), source, weights)

    @property
    def prefix_cache(self) -> str:
        """The prefix cache: as requested, else the recipe's default."""
        known = self.recipe.prefix_cache
        asked = self.options.prefix_cache or next(iter(known))
        if asked not in known:
            raise EngineError(f"prefix_cache={asked!r}: {did_you_mean(str(asked), known)}")
        return asked

    @property
    def gpus(self) -> int:
        """The number of GPUs that it takes; None if it takes none."""
        count = self.spec.options.get("tensor_parallel")
        return count if isinstance(count, int) else 1


def _weights(spec: EngineSpec, recipe: Recipe, source: ModelSource) -> str:
    """The type of a GGUF file's weights; raises `EngineError` for no such file, and for another type."""
    if not source.is_gguf:
        raise EngineError(f"model {spec.model!r}: {recipe.engine} takes a .gguf file; download one first")
    return gguf.checked(Path(source.path), spec.precision, spec.model)


@dataclass(frozen=True, slots=True)
class Launch:
    """One server to be started. `end` ends its container, `body` goes into each request.

    `secrets` are what its log may show and nobody else.
    """

    name: str
    command: tuple[str, ...] = field(repr=False)
    env: Mapping[str, str] = field(repr=False)
    files: Mapping[str, str] = field(repr=False)
    end: tuple[str, ...]
    body: Mapping[str, Any]
    place: LaunchPlace
    health: str
    install: str
    secrets: tuple[str, ...] = field(default=(), repr=False)


def launch(order: LaunchRequest, place: LaunchPlace) -> Launch:
    """Return how a server is started at `place`; raises `EngineError` for what it cannot have."""
    recipe, options = order.recipe, order.options
    known = _placeholders(order.source, options, place)
    way = sum((way.filled(known | value) for way, value in _ways(order)), LaunchFragment())
    config = json.dumps(_nested(way.config), indent=1)
    return Launch(
        name=order.spec.backend,
        command=(*_program(recipe, options, known), *way.arguments, *options.extra_args),
        env={**way.env, **options.env},
        files={recipe.config_file: config} if recipe.config_file else {},
        end=tuple(filled(word, known) for word in recipe.container),
        body=way.body,
        place=place,
        health=recipe.health,
        install=recipe.install,
        secrets=(place.key, *secret_values(options.env), *secret_values(options.headers)),
    )


def _placeholders(source: ModelSource | None, options: ServerOptions, place: LaunchPlace) -> dict[str, Any]:
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


def _ways(order: LaunchRequest) -> Iterator[tuple[LaunchFragment, dict[str, Any]]]:
    """Yield the fragments in force for a request, each with what its value stands for."""
    recipe, spec = order.recipe, order.spec
    yield recipe.base, {}
    yield recipe.key, {}
    if spec.precision != AUTO:
        yield recipe.precisions[spec.precision], {}
    yield recipe.prefix_cache[order.prefix_cache], {}
    for name in sorted(spec.options.keys() - COMMON_OPTIONS):
        value = spec.options[name]
        if name not in recipe.options:
            raise EngineError(f"{recipe.engine} does not support {name}={value!r}: leave it out")
        if value is not None and value is not False:
            yield recipe.options[name], {VALUE: value}


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
