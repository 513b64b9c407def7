"""What a record says of the engine that a test ran on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_llmspeed.metrics.exchange import plain_text


@dataclass(frozen=True, slots=True)
class Backend:
    """The engine that a test ran on.

    `precision_source` is "asked" where nothing but the request is known of the precision. `load_s` is
    how long its start took, its libraries imported; None where it was running already. These two,
    `versions` and `options` are recorded, the rest is keyed.
    """

    name: str
    model: str | None = None
    revision: str | None = None
    precision: str | None = None
    prefix_cache: str = "unknown"
    options: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    precision_source: str | None = None
    load_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("name", "model", "revision", "precision", "prefix_cache", "precision_source"):
            object.__setattr__(self, name, plain_text(getattr(self, name)))
