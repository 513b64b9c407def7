"""What a server tells of itself beside its answers: that it is up, its models, its version."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any

from pytest_llmspeed.core.errors import EngineError
from pytest_llmspeed.edges.engines._openai import listed_models
from pytest_llmspeed.edges.engines.model_files import ModelSource
from pytest_llmspeed.edges.engines.recipes import Recipe
from pytest_llmspeed.edges.wire.get import get
from pytest_llmspeed.edges.wire.http import BaseURL

PROBE_TIMEOUT_S = 5.0


class ServerFacts:
    """Questions to the server at `root`, the address without the path of its API."""

    def __init__(self, root: BaseURL, headers: Mapping[str, str]) -> None:
        self._root, self._headers = root, headers

    def is_up(self, path: str) -> bool:
        """True if the server answers a GET of its health path well."""
        return self._get(path) is not None

    def _get(self, path: str) -> bytes | None:
        """The body of a good answer, None for any other."""
        try:
            status, body = get(self._root, path, self._headers, PROBE_TIMEOUT_S)
        except (OSError, http.client.HTTPException):
            return None
        return body if status // 100 == 2 else None

    def served_model(self, source: ModelSource | None) -> str:
        """Return the name by which the server knows the model; raises `EngineError` if it cannot be told."""
        listed = list(listed_models(self._get("/v1/models") or b"") or ())
        ours = (source.name, source.path) if source else ()
        for known in ours:
            if known in listed:
                return known
        if len(listed) == 1:
            return listed[0]
        if source:
            return source.path
        raise EngineError(
            f"the server lists {len(listed)} models ({', '.join(listed[:10])}): name one with llmspeed_model "
            "or model= in the mark"
        )

    def versions(self, recipe: Recipe) -> dict[str, str]:
        """The version of the engine under its name, nothing where it does not tell."""
        for path, *names in recipe.versions:
            try:
                found: Any = json.loads(self._get(path) or b"{}")
                for name in names:
                    found = found[name]
            except (ValueError, KeyError, TypeError):
                continue
            return {recipe.engine: str(found)}
        return {}
