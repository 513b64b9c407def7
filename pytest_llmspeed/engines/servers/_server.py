"""Engines that are child processes and serve the OpenAI protocol on this machine."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any, ClassVar, Self

from pytest_llmspeed.engines import gguf
from pytest_llmspeed.engines.backend import Backend
from pytest_llmspeed.engines.base import AUTO, EngineSpec, ServedEngine
from pytest_llmspeed.engines.servers import custom_server, recipes
from pytest_llmspeed.engines.servers._openai import DECLARABLE, OpenAIEngine
from pytest_llmspeed.engines.servers.launch import (
    COMMON_OPTIONS,
    HOST,
    Launch,
    LaunchPlace,
    LaunchRequest,
    launch,
)
from pytest_llmspeed.engines.servers.log_diagnosis import symptom
from pytest_llmspeed.engines.servers.process import ServerProcess, StartError, check_program, new_place
from pytest_llmspeed.engines.servers.reachability import headers_for
from pytest_llmspeed.engines.servers.recipes import Recipe
from pytest_llmspeed.engines.servers.server_facts import ServerFacts
from pytest_llmspeed.engines.servers.tokenize_endpoint import ServerTokenCounter
from pytest_llmspeed.engines.token_counter import TokenCounter
from pytest_llmspeed.engines.token_scores import TokenScores
from pytest_llmspeed.errors import EngineError, hides_our_frames
from pytest_llmspeed.metrics.exchange import Event, Exchange, Request
from pytest_llmspeed.system import clock, machine
from pytest_llmspeed.system.environment import Hardware
from pytest_llmspeed.text.secret import arguments_without_secrets
from pytest_llmspeed.transport.address import BaseURL
from pytest_llmspeed.transport.target import Target

__tracebackhide__ = hides_our_frames

NOWHERE = LaunchPlace(port=1, key="", folder="", container="")
"""A placeholder for the place of a server whose command is only checked."""
LAST_WORDS_S = 0.5
"""How long to wait, after a failed request, for news that the server has exited."""


class ServerEngine(ServedEngine):
    """A server of our own, spoken to over its HTTP interface.

    `url` is the address of its API, `metrics_url` of what it measures itself, None where it has none.
    """

    recipe: ClassVar[Recipe]
    options: ClassVar[frozenset[str]] = COMMON_OPTIONS
    needs_model: ClassVar[bool] = True

    def __init__(
        self,
        process: ServerProcess,
        launched: Launch,
        order: LaunchRequest,
        counter: TokenCounter | None,
        deadline_s: float,
    ) -> None:
        spec, recipe, source = order.spec, order.recipe, order.source
        root, headers = _reached(launched.place, order)
        api, facts = root.below("/v1"), ServerFacts(root, headers, deadline_s)
        precision, source_of_precision = _precision(order)
        served = facts.served_model(source)
        self._process, self._launched, self._recipe = process, launched, recipe
        vendor_fields = replace(recipe.vendor_fields, plain=launched.body)
        self._client = OpenAIEngine(api, Backend("openai", served), headers, counter, vendor_fields)
        self._counter = ServerTokenCounter(root, recipe.count, headers) if recipe.count else None
        self._outlived_s = float("-inf")
        self.url = str(api)
        self.metrics_url = f"{root}{recipe.metrics}" if recipe.metrics else None
        self.hardware = Hardware(gpus=machine.gpus(order.gpus))
        self.backend = Backend(
            name=spec.backend,
            model=source.name if source else served,
            revision=source.fingerprint if source else None,
            precision=precision,
            precision_source=source_of_precision,
            prefix_cache=order.prefix_cache,
            options=_shown(spec),
            versions=facts.versions(recipe),
        )

    @classmethod
    def recipe_for(cls, spec: EngineSpec) -> Recipe:  # noqa: ARG003  (two engines have several)
        """Return how a server of `spec` is launched; raises `EngineError`."""
        return cls.recipe

    @classmethod
    def check(cls, spec: EngineSpec) -> None:
        """Raise `EngineError` for an option, a model or a program that cannot be used."""
        check_program(launch(cls._order(spec), NOWHERE))

    @classmethod
    def _order(cls, spec: EngineSpec) -> LaunchRequest:
        if os.name != "posix":
            raise EngineError(f"backend {spec.backend!r} needs Linux or macOS; on Windows use 'openai'")
        if cls.needs_model:
            spec.required_model()
        return LaunchRequest.of(spec, cls.recipe_for(spec))

    @classmethod
    def start(cls, spec: EngineSpec) -> Self:
        """Return the server, up; raises `EngineError` that says why it is not, with the end of its log."""
        order = cls._order(spec)
        tokenizer = order.options.tokenizer
        counter = TokenCounter.load(tokenizer) if tokenizer else None
        deadline_s = clock.now_s() + order.options.start_timeout_s
        process, launched = _running(order, deadline_s)
        try:
            return cls(process, launched, order, counter, deadline_s)
        except BaseException:
            process.stop()
            raise

    @property
    def alive(self) -> bool:
        """True while the server runs."""
        return self._process.alive

    @property
    def root_process(self) -> int | None:
        """The process whose descendants do the work, None where that cannot be told."""
        return self._process.root_process

    async def exchange(self, request: Request, on_event: Callable[[Event], None] | None = None) -> Exchange:
        """Send one streamed request; a failure is in `Exchange.error`, with how the server died if it did."""
        written = self._process.log_bytes
        found = await self._client.exchange(request, on_event)
        if self._counter:
            found = await self._counter.counted(found)
        found = await self._with_its_death(found)
        if found.error is None or not self.alive:
            return found
        shown = symptom(self._process.log(written), None)
        return found.failed(f"{found.error}; its log shows: {shown.sentence}") if shown else found

    @property
    def can_score(self) -> bool:
        """True if the server gives the ids of an answer's tokens, and their log-probabilities."""
        return self._client.can_score

    async def score(self, request: Request, token_ids: Sequence[int], top: int) -> TokenScores:
        """Return how likely given tokens are as the answer to a request; raises `GenerationError`."""
        return await self._client.score(request, token_ids, top)

    @property
    def target(self) -> Target:
        """The server that a load sends its requests to."""
        return self._client.target

    async def completed(self, found: Exchange) -> Exchange:
        """An answer that came over the wire, its tokens counted; how the server died, if it did."""
        found = await self._client.completed(found)
        if self._counter:
            found = await self._counter.counted(found)
        return await self._with_its_death(found)

    async def _with_its_death(self, found: Exchange) -> Exchange:
        """Return a failure with the server's end, if it ended; after a broken connection, wait for that.

        Not for what began before the server was last seen to have outlived such a failure: a load has many.
        """
        if found.error is None:
            return found
        if not found.error.startswith("HTTP ") and found.started_s > self._outlived_s:
            deadline_s = clock.now_s() + LAST_WORDS_S
            while self.alive and clock.now_s() < deadline_s:
                await asyncio.sleep(0.02)
            self._outlived_s = clock.now_s()
        if self.alive:
            return found
        death, _ = self._process.explained(f"exited during the request, {self._process.ending}")
        return found.failed(f"{found.error}; {death}")

    async def close(self) -> None:
        """End the server with all its processes; raises `EngineError` if something is left of it."""
        await self._client.close()
        if self._counter:
            self._counter.close()
        await asyncio.to_thread(self._process.stop)


def _running(order: LaunchRequest, deadline_s: float) -> tuple[ServerProcess, Launch]:
    """A server that answers; if another process was quicker to its free port, the second one."""
    try:
        return _up(order, deadline_s)
    except StartError as error:
        if order.options.port or error.symptom is None or error.symptom.name != "port taken":
            raise
    return _up(order, deadline_s)


def _up(order: LaunchRequest, deadline_s: float) -> tuple[ServerProcess, Launch]:
    launched = launch(order, new_place(order.options.port))
    facts = ServerFacts(*_reached(launched.place, order), deadline_s)
    process = ServerProcess(launched)
    try:
        process.wait_until_up(lambda: facts.is_up(launched.health), deadline_s, order.options.start_timeout_s)
    except BaseException:
        process.stop()
        raise
    return process, launched


def _reached(place: LaunchPlace, order: LaunchRequest) -> tuple[BaseURL, dict[str, str]]:
    """The address of a server of ours, without the path of its API, and the headers of our requests."""
    root = BaseURL("http", HOST, place.port, "")
    return root, headers_for(root, place.key, order.options.headers)


def _precision(order: LaunchRequest) -> tuple[str | None, str | None]:
    """The precision that is recorded, and "asked" where nothing but the request is known of it."""
    if order.weights or order.spec.precision == AUTO:
        return order.weights, None
    return order.spec.precision, "asked"


def _shown(spec: EngineSpec) -> dict[str, Any]:
    """The options as they are recorded: of variables and headers the names, of arguments no keys."""
    named = {name: sorted(spec.options[name]) for name in ("env", "headers") if spec.options.get(name)}
    given = {
        name: arguments_without_secrets(spec.options[name])
        for name in ("command", "extra_args", "container_args")
        if spec.options.get(name)
    }
    return {**spec.options, **given, **named}


class VLLMServer(ServerEngine):
    """vLLM's OpenAI server."""

    recipe: ClassVar[Recipe] = recipes.VLLM
    precisions: ClassVar[tuple[str, ...]] = tuple(recipe.precisions)
    options: ClassVar[frozenset[str]] = COMMON_OPTIONS | recipe.options.keys()


class SGLangServer(ServerEngine):
    """SGLang's server."""

    recipe: ClassVar[Recipe] = recipes.SGLANG
    precisions: ClassVar[tuple[str, ...]] = tuple(recipe.precisions)
    options: ClassVar[frozenset[str]] = COMMON_OPTIONS | recipe.options.keys()


class TensorRTLLMServer(ServerEngine):
    """TensorRT-LLM's `trtllm-serve`."""

    recipe: ClassVar[Recipe] = recipes.TENSORRT_LLM
    precisions: ClassVar[tuple[str, ...]] = tuple(recipe.precisions)
    options: ClassVar[frozenset[str]] = COMMON_OPTIONS | recipe.options.keys()


class LlamaCppServer(ServerEngine):
    """llama.cpp's `llama-server` where there is one, else the server of llama-cpp-python."""

    precisions: ClassVar[tuple[str, ...]] = gguf.PRECISIONS
    options: ClassVar[frozenset[str]] = (
        COMMON_OPTIONS | recipes.LLAMA_SERVER.options.keys() | recipes.LLAMA_CPP_PYTHON.options.keys()
    )

    @classmethod
    def recipe_for(cls, spec: EngineSpec) -> Recipe:
        """Return the recipe of the program that `executable` names, or of the one that is there."""
        named = spec.options.get("executable")
        if named:
            is_python = PurePath(str(named)).name.startswith("python")
        else:
            is_python = shutil.which(recipes.LLAMA_SERVER.program[0]) is None
        return recipes.LLAMA_CPP_PYTHON if is_python else recipes.LLAMA_SERVER


class OwnServer(ServerEngine):
    """The user's own command or container image."""

    precisions: ClassVar[tuple[str, ...]] = DECLARABLE
    options: ClassVar[frozenset[str]] = COMMON_OPTIONS | frozenset(custom_server.OPTIONS)
    needs_model: ClassVar[bool] = False

    @classmethod
    def recipe_for(cls, spec: EngineSpec) -> Recipe:
        """Return the recipe that the options describe."""
        return custom_server.own_server(spec.options, cls.precisions)
