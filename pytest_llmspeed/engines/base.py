"""What an engine is: the protocol that built-in and third-party engines keep, and its hashable spec."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, runtime_checkable

from pytest_llmspeed.engines.backend import Backend
from pytest_llmspeed.engines.token_scores import TokenScores
from pytest_llmspeed.metrics.exchange import Event, Exchange, Request
from pytest_llmspeed.system.environment import Hardware

if TYPE_CHECKING:
    from pytest_llmspeed.transport.target import Target

AUTO = "auto"
ANY_OPTION = frozenset({"*"})
"""What an engine declares as `options` that takes whatever its library takes (no library takes a `url`)."""


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


class Engine(Protocol):
    """A running engine.

    `precisions` are those that it can be asked for, `options` the names of its own options
    (`ANY_OPTION` if its library checks them). `device` says what it occupies: of the engines of
    one device a single one is alive at a time; None for an engine that occupies nothing here.
    A class may also have a class method `check(spec)`, which raises `EngineError` for what shows before
    anything is imported (a model that is not there), another, `libraries(spec)`, which names what is
    imported before its load time and memory count, and `prefix_caches`, the values of its option
    `prefix_cache`.

    An engine whose work is done by child processes has two attributes more: `alive`, False once they
    have died, and `root_process`, the process that they descend from (None where that cannot be told).
    `max_concurrency`, an attribute of the class or the engine, says how many requests it serves at a
    time (None: as many as come); an engine without it serves one.
    """

    precisions: ClassVar[tuple[str, ...]]
    options: ClassVar[frozenset[str]]
    device: ClassVar[str | None]

    backend: Backend
    hardware: Hardware

    @classmethod
    def start(cls, spec: EngineSpec) -> Engine:
        """Return the engine, loaded; raises `EngineError` that names the fix. Heavy imports go here."""
        ...

    async def exchange(self, request: Request, on_event: Callable[[Event], None] | None = None) -> Exchange:
        """Answer one request. A failed request is an `Exchange` with its error, not an exception.

        t0 and all stamps are of `pytest_llmspeed.system.clock.now_s`. `on_event`, where given, is
        called in the running loop with each event as it comes, after its stamp, and with all of them
        before this returns. An engine may leave it out: its answers then reach SDK clients whole.
        """
        ...

    async def close(self) -> None:
        """Let go of all that the engine holds."""
        ...


def is_alive(engine: Engine) -> bool:
    """Return False if the engine runs in child processes that have died."""
    return bool(getattr(engine, "alive", True))


@runtime_checkable
class TokenScorer(Protocol):
    """An engine that can say how likely given tokens are: what the quality check asks, beyond answers.

    Its exchanges carry `token_ids`. An attribute `can_score` is False where the server behind it cannot.
    """

    async def score(self, request: Request, token_ids: Sequence[int], top: int) -> TokenScores:
        """Return the scores of `token_ids` as the answer to a request, with the `top` likeliest of each.

        The prompt is made as for `exchange`, so that both see the same tokens before the answer.
        Raises `GenerationError`.
        """
        ...


def scorer_of(engine: Engine) -> TokenScorer | None:
    """Return the engine if it can score tokens."""
    return engine if isinstance(engine, TokenScorer) and getattr(engine, "can_score", True) else None


@runtime_checkable
class Served(Protocol):
    """An engine that is reached over HTTP: loads and SDK clients go to its server, past `exchange`."""

    target: Target

    async def completed(self, found: Exchange) -> Exchange:
        """Return the engine's last word on an answer that went past it: token counts, reasons."""
        ...
