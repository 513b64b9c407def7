"""What an engine is: the base class of built-in and third-party engines, and its hashable spec."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pytest_llmspeed.engines.backend import Backend
from pytest_llmspeed.engines.token_scores import TokenScores
from pytest_llmspeed.errors import EngineError
from pytest_llmspeed.metrics.exchange import Event, Exchange, Request
from pytest_llmspeed.system.environment import Hardware

if TYPE_CHECKING:
    from pytest_llmspeed.transport.target import Target

AUTO = "auto"
ANY_OPTION = frozenset({"*"})
"""The `options` of an engine that passes every option to its library (no library takes a `url`)."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """Which engine is wanted. Two specs are equal if one running engine can serve both.

    `options` are the engine's own; they count in the comparison by their content.
    """

    backend: str
    model: str | None = None
    precision: str = AUTO
    options: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    fingerprint: str = field(default="", repr=False)

    @classmethod
    def of(cls, backend: str, model: str | None, precision: str | None, options: Mapping[str, Any]) -> Self:
        """Return the spec of an engine with its options."""
        fingerprint = json.dumps(dict(options), sort_keys=True, default=repr)
        return cls(backend, model, precision or AUTO, dict(options), fingerprint)

    @property
    def id(self) -> str:
        """A short name for test ids and messages, as in `vllm-bf16`."""
        return self.backend if self.precision == AUTO else f"{self.backend}-{self.precision}"

    def required_model(self) -> str:
        """Return the model; raises `EngineError` if none is named."""
        if self.model:
            return self.model
        raise EngineError(
            f"backend {self.backend!r} needs a model: set llmspeed_model, --llmspeed-model or model= in the "
            "llm_backend mark to a hub id, a folder or a .gguf file"
        )


class Engine(ABC):
    """A running engine: the base class of the built-in ones and of your own.

    A subclass implements `start` and `exchange`. Everything else has a default, which fits an engine that
    runs in this process and serves one request at a time.
    """

    precisions: ClassVar[tuple[str, ...]] = ()
    """The precisions that can be requested, besides "auto"."""
    options: ClassVar[frozenset[str]] = frozenset()
    """The names of the engine's own options; `ANY_OPTION` if its library checks them."""
    prefix_caches: ClassVar[tuple[str, ...] | None] = None
    """The values that the option `prefix_cache` takes; None: they are not checked."""
    needs_model: ClassVar[bool] = False
    """True if a test that names no model is refused at collection."""
    device: ClassVar[str | None] = "local"
    """The device it occupies, where it is the only engine alive at a time; None if it occupies none."""

    max_concurrency: int | None = 1
    """The number of requests the engine serves at a time; None: it has no limit of its own."""
    backend: Backend
    hardware: Hardware

    @classmethod
    def libraries(cls, spec: EngineSpec) -> tuple[str, ...]:  # noqa: ARG003  (for those that need it)
        """Return the modules to import before the load time and memory of an engine count."""
        return ()

    @classmethod
    def check(cls, spec: EngineSpec) -> None:  # noqa: ARG003  (for those that need it)
        """Raise `EngineError` for what shows before anything is imported, such as a missing file."""
        return

    @classmethod
    @abstractmethod
    def start(cls, spec: EngineSpec) -> Self:
        """Return the engine, loaded; raises `EngineError` that names the fix. Heavy imports go here."""

    @abstractmethod
    async def exchange(self, request: Request, on_event: Callable[[Event], None] | None = None) -> Exchange:
        """Answer one request. A failed request is an `Exchange` with its error, not an exception.

        t0 and all stamps are of `pytest_llmspeed.system.clock.now_s`. `on_event`, if given, is called in
        the running loop with each event as it comes, after its stamp, and with all of them before this
        returns. If the engine never calls it, its answers reach SDK clients whole.
        """

    @property
    def can_score(self) -> bool:
        """True if `score` works: by default, if the class implements it."""
        return type(self).score is not Engine.score

    async def score(self, request: Request, token_ids: Sequence[int], top: int) -> TokenScores:
        """Return the scores of `token_ids` as the answer to a request, with the `top` likeliest of each.

        Quality checks use them. The prompt is made as for `exchange`, so that both see the same tokens
        before the answer, and exchanges carry `token_ids`. Raises `GenerationError`.
        """
        raise NotImplementedError

    @property
    def alive(self) -> bool:
        """False once the processes that do the engine's work have died: the next test gets a new engine."""
        return True

    @property
    def root_process(self) -> int | None:
        """The process whose descendants do the work; None if it is unknown, or on another machine."""
        return os.getpid() if self.hardware.remote is None else None

    async def close(self) -> None:  # noqa: B027  (nothing to release is a fine default)
        """Release everything the engine holds."""


class ServedEngine(Engine):
    """An engine reached over HTTP: loads and SDK clients talk to its server, not through `exchange`."""

    max_concurrency = None

    @property
    @abstractmethod
    def target(self) -> Target:
        """The server, and how it is asked."""

    @abstractmethod
    async def completed(self, found: Exchange) -> Exchange:
        """Return an answer that bypassed `exchange`, with the engine's token counts and reasons added."""
