"""Whom requests are sent to, and how they are asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_llmspeed.core.exchange import Request
from pytest_llmspeed.edges.wire.dialects import PROTOCOL_ONLY, Dialect
from pytest_llmspeed.edges.wire.http import BaseURL


@dataclass(frozen=True, slots=True)
class Target:
    """A server, and how it is asked: headers, model, what it takes beyond the protocol, whether `cold`."""

    base: BaseURL
    headers: Mapping[str, str] = field(repr=False)
    model: str | None = None
    dialect: Dialect = PROTOCOL_ONLY
    cold: bool = False

    def further(self, request: Request) -> dict[str, Any]:
        """Return the fields of a request's body beyond the protocol."""
        return self.dialect.fields(request, cold=self.cold)
