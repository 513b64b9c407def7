"""What a server tells of itself beside its answers: that it is up, its models, its version."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pytest_llmspeed.engines.model_files import ModelSource
from pytest_llmspeed.engines.servers.reachability import listed_models
from pytest_llmspeed.engines.servers.recipes import Recipe
from pytest_llmspeed.errors import EngineError
from pytest_llmspeed.system import clock
from pytest_llmspeed.text.harmless import harmless
from pytest_llmspeed.transport.address import BaseURL
from pytest_llmspeed.transport.client import get
from pytest_llmspeed.transport.parser import TransportError

PROBE_TIMEOUT_S = 5.0
LIST_TIMEOUT_S = 60.0


class ServerFacts:
    """Questions to the server at `root`, the address without the path of its API; none after `deadline_s`."""

    def __init__(self, root: BaseURL, headers: Mapping[str, str], deadline_s: float) -> None:
        self._root, self._headers, self._deadline_s = root, headers, deadline_s

    def is_up(self, path: str) -> bool:
        """Return True if the server answers a GET of its health path well."""
        return self._get(path) is not None

    def _get(self, path: str) -> bytes | None:
        """The body of a good answer, None for any other."""
        try:
            return self._asked(path, PROBE_TIMEOUT_S)
        except TransportError:
            return None

    def _asked(self, path: str, most_s: float) -> bytes | None:
        """The body of a good answer, None for a bad status; raises `TransportError`."""
        timeout_s = min(most_s, max(self._deadline_s - clock.now_s(), 0.0))
        status, body = get(self._root, path, self._headers, timeout_s)
        return body if status // 100 == 2 else None

    def served_model(self, source: ModelSource | None) -> str:
        """Return the name by which the server knows the model; raises `EngineError` if it cannot be told."""
        try:
            answer = self._asked("/v1/models", LIST_TIMEOUT_S)
        except TransportError as error:
            raise EngineError(f"the server is up, but does not list its models: {error}") from error
        listed = list(listed_models(answer or b"") or ())
        ours = (source.name, source.path) if source else ()
        for known in ours:
            if known in listed:
                return known
        if len(listed) == 1:
            return listed[0]
        if source:
            return source.path
        names = ", ".join(harmless(name, 100) for name in listed[:10])
        raise EngineError(
            f"the server lists {len(listed)} models ({names}): name one with llmspeed_model "
            "or model= in the mark"
        )

    def versions(self, recipe: Recipe) -> dict[str, str]:
        """The version of the engine under its name, nothing where it does not tell."""
        for path, *names in recipe.versions:
            try:
                found: Any = json.loads(self._get(path) or b"{}")
                for name in names:
                    found = found[name]
            except (ValueError, LookupError, TypeError, RecursionError):
                continue
            return {recipe.engine: harmless(found, 100)}
        return {}
