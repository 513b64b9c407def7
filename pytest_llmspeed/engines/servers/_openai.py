"""Any server that speaks the OpenAI protocol, by its URL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import ClassVar, Self

from pytest_llmspeed.engines.backend import Backend
from pytest_llmspeed.engines.base import AUTO, EngineSpec, ServedEngine
from pytest_llmspeed.engines.servers.reachability import (
    KEY_VARIABLE,
    TLS_OPTIONS,
    api_key,
    base_url,
    found_server,
    headers_for,
    only_model,
    own_headers,
    secrets_of,
)
from pytest_llmspeed.engines.servers.recipes import vendor_fields_of
from pytest_llmspeed.engines.servers.scoring import ServerScorer
from pytest_llmspeed.engines.token_counter import TokenCounter
from pytest_llmspeed.engines.token_scores import TokenScores
from pytest_llmspeed.errors import GenerationError, hides_our_frames
from pytest_llmspeed.metrics.exchange import Event, Exchange, Request
from pytest_llmspeed.system import processes
from pytest_llmspeed.system.environment import Hardware, is_this_machine
from pytest_llmspeed.transport.address import BaseURL
from pytest_llmspeed.transport.client import HTTPClient
from pytest_llmspeed.transport.send import ask
from pytest_llmspeed.transport.target import Target
from pytest_llmspeed.transport.vendor_fields import PROTOCOL_ONLY, VendorFields

__tracebackhide__ = hides_our_frames

DECLARABLE = ("fp32", "fp16", "bf16", "fp8", "int8", "int4", "awq", "gptq", "gguf")
"""A server's precision is its own: it can be declared here, to tell baselines apart, not chosen."""


class OpenAIEngine(ServedEngine):
    """A server at a URL, reached over connections of our own.

    Options: `url` (with its path, as in http://127.0.0.1:8000/v1; a query goes with every request),
    `api_key_env` (the environment variable that holds the key), `headers` (further ones of each
    request), `ca_file`, `verify`, `client_cert` and `client_key` (of https), `tokenizer` (a folder or
    hub id, to count tokens where the server does not), `prefix_cache` (unknown unless declared "cold"
    or "warm"; a server known to have a way to keep a request from its cache is told so for "cold").
    """

    precisions: ClassVar[tuple[str, ...]] = DECLARABLE
    options: ClassVar[frozenset[str]] = TLS_OPTIONS | {
        "url",
        "api_key_env",
        "headers",
        "tokenizer",
        "prefix_cache",
    }
    prefix_caches: ClassVar[tuple[str, ...] | None] = ("cold", "warm")
    device: ClassVar[str | None] = None

    def __init__(
        self,
        base: BaseURL,
        backend: Backend,
        headers: Mapping[str, str],
        counter: TokenCounter | None,
        vendor_fields: VendorFields = PROTOCOL_ONLY,
    ) -> None:
        self._client = HTTPClient(base)
        self._counter = counter
        cold = backend.prefix_cache == "cold"
        self._target = Target(base, headers, backend.model, vendor_fields, cold, secrets_of(base, headers))
        self._scorer = ServerScorer(self._target)
        self.backend = backend
        self.hardware = Hardware(remote=base.host)

    @classmethod
    def check(cls, spec: EngineSpec) -> None:
        """Raise `EngineError` for an address that cannot be used."""
        base_url(spec.options)

    @classmethod
    def start(cls, spec: EngineSpec) -> Self:
        """Return a client of the server, once that has answered; raises `EngineError`."""
        base, own = base_url(spec.options), own_headers(spec.options.get("headers"))
        headers = headers_for(base, api_key(spec.options.get("api_key_env", KEY_VARIABLE)), own)
        served = found_server(base, headers)
        tokenizer = spec.options.get("tokenizer")
        counter = TokenCounter.load(tokenizer) if tokenizer else None
        model = spec.model or only_model(served)
        shown = {name: spec.options[name] for name in TLS_OPTIONS if spec.options.get(name) is not None}
        backend = Backend(
            name="openai",
            model=model,
            precision=None if spec.precision == AUTO else spec.precision,
            prefix_cache=spec.options.get("prefix_cache", "unknown"),
            options={"url": str(served.base), **shown, **({"headers": sorted(own)} if own else {})},
        )
        return cls(served.base, backend, headers, counter, vendor_fields_of((served.models or {}).get(model)))

    @property
    def target(self) -> Target:
        """The server, and how it is asked."""
        return self._target

    @property
    def root_process(self) -> int | None:
        """The process that listens at the address, if that is on this machine."""
        base = self._target.base
        return processes.listener(base.port) if is_this_machine(base.host) else None

    async def exchange(self, request: Request, on_event: Callable[[Event], None] | None = None) -> Exchange:
        """Send one streamed request; failures are in `Exchange.error`."""
        target = self.target
        found = await ask(
            self._client,
            request,
            target.headers,
            target.model,
            on_event=on_event,
            further=target.further(request),
        )
        return await self.completed(found)

    async def completed(self, found: Exchange) -> Exchange:
        """Return an answer that came over the wire, its tokens counted, its error without our secrets."""
        if found.error:
            found = replace(found, error=self.target.explained(found.error))
        return self._counter.counted(found) if self._counter else found

    @cached_property
    def can_score(self) -> bool:
        """True if the server gives the ids of an answer's tokens, and their log-probabilities."""
        return bool(self.target.vendor_fields.token_ids) and self._scorer.is_offered()

    async def score(self, request: Request, token_ids: Sequence[int], top: int) -> TokenScores:
        """Return how likely given tokens are as the answer to a request; raises `GenerationError`."""
        try:
            return await self._scorer.score(request, token_ids, top)
        except GenerationError as error:
            raise GenerationError(self.target.explained(str(error))) from None

    async def close(self) -> None:
        """Close the idle connections."""
        self._client.close()
        self._scorer.close()
