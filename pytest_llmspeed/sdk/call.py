"""What passes between an SDK client and who answers it: the call, its reply, and the note of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from pytest_llmspeed.metrics.exchange import Exchange, Request


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request of a caller. `path` is the whole path, with its query.

    Header names are in lower case. `timeout_s` is how long the caller waits for anything to arrive.
    `label` is what the call is measured under.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    timeout_s: float | None
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of a reply; its body follows in pieces."""

    status: int
    headers: tuple[tuple[str, str], ...]


class Emit(Protocol):
    """Takes the head of a reply, then the pieces of its body; never blocks."""

    def __call__(self, item: Head | bytes) -> None:
        """Take in the next of them."""
        ...

    @property
    def is_full(self) -> bool:
        """True while the caller has so much to read that more should wait."""
        ...


class Answerer(Protocol):
    """Whoever answers the calls of SDK clients."""

    @property
    def base_url(self) -> str:
        """The address that the clients are given."""
        ...

    @property
    def api_key(self) -> str:
        """The key that the clients are given."""
        ...

    async def serve(self, call: Call, emit: Emit) -> None:
        """Answer one call. Raises `TransportError` and `TimeoutError`; where cancelled, it stops."""
        ...


class SentCall(Protocol):
    """A measured request on its way."""

    def finish_later(self, make: Callable[[], Exchange]) -> None:
        """Note that it has ended, once. `make` says what came of it, when somebody looks."""
        ...


OnSend = Callable[[Request, str | None, Callable[[], Exchange]], SentCall]
"""Notes that a request with a label is sent; the last argument makes the exchange so far, from any thread."""
