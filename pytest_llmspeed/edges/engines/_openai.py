"""Any server that speaks the OpenAI protocol, by its URL."""

from __future__ import annotations

import http.client
import json
import os
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Self

from pytest_llmspeed.core.environment import Hardware
from pytest_llmspeed.core.errors import EngineError, GenerationError
from pytest_llmspeed.core.exchange import Event, Exchange, Request
from pytest_llmspeed.core.quality.scores import TokenScores
from pytest_llmspeed.core.record import Backend
from pytest_llmspeed.edges.engines.base import AUTO, EngineSpec
from pytest_llmspeed.edges.engines.server_scoring import ServerScorer
from pytest_llmspeed.edges.engines.tokens import TokenCounter
from pytest_llmspeed.edges.wire.dialects import PROTOCOL_ONLY, Dialect, dialect_of
from pytest_llmspeed.edges.wire.get import get
from pytest_llmspeed.edges.wire.http import BaseURL, HTTPClient
from pytest_llmspeed.edges.wire.stream import ask
from pytest_llmspeed.edges.wire.target import Target

KEY_VARIABLE = "OPENAI_API_KEY"
PROBE_TIMEOUT_S = 10.0
DECLARABLE = ("fp32", "fp16", "bf16", "fp8", "int8", "int4", "awq", "gptq", "gguf")
"""A server's precision is its own: it can be declared here, to tell baselines apart, not chosen."""


class OpenAIEngine:
    """A server at a URL, reached over connections of our own.

    Options: `url` (with its path, as in http://127.0.0.1:8000/v1), `api_key_env` (the environment
    variable that holds the key), `tokenizer` (a folder or hub id, to count tokens where the server
    does not), `prefix_cache` (unknown unless declared "cold" or "warm"; a server known to have a way
    to keep a request from its cache is told so for "cold").
    """

    precisions: ClassVar[tuple[str, ...]] = DECLARABLE
    options: ClassVar[frozenset[str]] = frozenset({"url", "api_key_env", "tokenizer", "prefix_cache"})
    prefix_caches: ClassVar[tuple[str, ...]] = ("cold", "warm")
    device: ClassVar[str | None] = None
    max_concurrency: ClassVar[int | None] = None

    def __init__(
        self,
        base: BaseURL,
        backend: Backend,
        key: str | None,
        counter: TokenCounter | None,
        dialect: Dialect = PROTOCOL_ONLY,
    ) -> None:
        self._client = HTTPClient(base)
        self._counter = counter
        self._secrets = [secret for secret in (key, base.password) if secret and len(secret) > 3]
        cold = backend.prefix_cache == "cold"
        self.target = Target(base, headers_for(base, key), backend.model, dialect, cold)
        self._scorer = ServerScorer(self.target)
        self.backend = backend
        self.hardware = Hardware(remote=base.host)

    @classmethod
    def start(cls, spec: EngineSpec) -> Self:
        """Return a client of the server, once that has answered; raises `EngineError`."""
        base = _base_url(spec.options.get("url"))
        key = _api_key(spec.options.get("api_key_env", KEY_VARIABLE))
        served = _served_models(base, headers_for(base, key))
        tokenizer = spec.options.get("tokenizer")
        counter = TokenCounter.load(tokenizer) if tokenizer else None
        model = spec.model or _only(served, base)
        backend = Backend(
            name="openai",
            model=model,
            precision=None if spec.precision == AUTO else spec.precision,
            prefix_cache=spec.options.get("prefix_cache", "unknown"),
            options={"url": str(base)},
        )
        return cls(base, backend, key, counter, dialect_of((served or {}).get(model)))

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
        """An answer that came over the wire, its tokens counted, our secrets out of its error."""
        if found.error:
            found = replace(found, error=self._without_secrets(found.error))
        return self._counter.counted(found) if self._counter else found

    @cached_property
    def can_score(self) -> bool:
        """True if the server gives the ids of an answer's tokens, and their log-probabilities."""
        return bool(self.target.dialect.token_ids) and self._scorer.is_offered()

    async def score(self, request: Request, token_ids: Sequence[int], top: int) -> TokenScores:
        """Return how likely given tokens are as the answer to a request; raises `GenerationError`."""
        try:
            return await self._scorer.score(request, token_ids, top)
        except GenerationError as error:
            raise GenerationError(self._without_secrets(str(error))) from error

    def _without_secrets(self, error: str) -> str:
        for secret in self._secrets:
            error = error.replace(secret, "***")
        return error

    async def close(self) -> None:
        """Close the idle connections."""
        self._client.close()
        self._scorer.close()


def _api_key(variable: str) -> str | None:
    """The key in an environment variable; raises `EngineError`, without the key, for an unusable one."""
    key = os.environ.get(variable, "").strip()
    if not key.isascii() or any(character.isspace() for character in key):
        raise EngineError(
            f"the environment variable {variable} holds no API key: it has spaces or odd characters"
        )
    return key or None


def _base_url(url: object) -> BaseURL:
    if not url:
        raise EngineError(
            "backend 'openai' needs the address of a server: set llmspeed_url, --llmspeed-url or "
            "url= in the llm_backend mark, as in http://127.0.0.1:8000/v1"
        )
    try:
        return BaseURL.parse(str(url))
    except ValueError as error:
        raise EngineError(f"llmspeed_url: {error}") from error


def headers_for(base: BaseURL, key: str | None) -> dict[str, str]:
    """Return the headers of our requests, with the key or the login of the address."""
    headers = {
        "content-type": "application/json",
        "accept": "text/event-stream, application/json",
        "user-agent": "pytest-llmspeed",
    }
    if key:
        headers["authorization"] = f"Bearer {key}"
    elif base.user is not None:
        login = f"{base.user}:{base.password or ''}".encode()
        headers["authorization"] = f"Basic {b64encode(login).decode()}"
    return headers


def _served_models(base: BaseURL, headers: dict[str, str]) -> dict[str, str] | None:
    """The models that the server lists and who it says owns them, None where it lists none.

    Raises `EngineError` if the server is away.
    """
    try:
        status, body = get(base, "/models", headers, PROBE_TIMEOUT_S)
    except TimeoutError as error:
        raise EngineError(
            f"the server at {base} accepted the connection but did not answer GET /models "
            f"within {PROBE_TIMEOUT_S:g} s: is it still loading, or hung?"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        raise EngineError(
            f"no server answers at {base} ({_why(error)}): start it, or correct llmspeed_url"
        ) from error
    if status in (401, 403):
        raise EngineError(
            f"the server at {base} answers HTTP {status}: it wants an API key; put it into "
            f"the environment variable {KEY_VARIABLE} (or the one that api_key_env= names)"
        )
    return listed_models(body) if status == 200 else None


def _why(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def listed_models(body: bytes) -> dict[str, str] | None:
    """Return the models of an answer to GET /models, each with its owner; None if it is no such list."""
    try:
        listed: Any = json.loads(body)["data"]
        return {str(model["id"]): str(model.get("owned_by")) for model in listed}
    except (AttributeError, ValueError, KeyError, TypeError):
        return None


def _only(served: dict[str, str] | None, base: BaseURL) -> str:
    """The single model that a server lists, where none was configured."""
    if served and len(served) == 1:
        return next(iter(served))
    if served:
        some = ", ".join(list(served)[:10]) + (", …" if len(served) > 10 else "")
        raise EngineError(
            f"the server at {base} has {len(served)} models; say which with llmspeed_model or "
            f"model= in the mark: {some}"
        )
    raise EngineError(
        f"the server at {base} does not list its models; name one with llmspeed_model or model="
    )
