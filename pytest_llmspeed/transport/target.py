"""Whom requests are sent to, and how they are asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_llmspeed.metrics.exchange import Request
from pytest_llmspeed.text.secret import masked
from pytest_llmspeed.transport.address import BaseURL
from pytest_llmspeed.transport.vendor_fields import PROTOCOL_ONLY, VendorFields

NO_SUCH_PATH = ("HTTP 404", "HTTP 405")


@dataclass(frozen=True, slots=True)
class Target:
    """A server, and how it is asked: headers, model, what it takes beyond the protocol, whether `cold`.

    `secrets` are what no message may show of all that.
    """

    base: BaseURL
    headers: Mapping[str, str] = field(repr=False)
    model: str | None = None
    vendor_fields: VendorFields = PROTOCOL_ONLY
    cold: bool = False
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def further(self, request: Request) -> dict[str, Any]:
        """Return the fields of a request's body beyond the protocol."""
        return self.vendor_fields.fields(request, cold=self.cold)

    def explained(self, error: str) -> str:
        """Return the error of a request without secrets that it echoes; of a wrong address, with the fix."""
        shown = masked(error, self.secrets)
        if not shown.startswith(NO_SUCH_PATH) or self.base.has_version or "model" in shown.lower():
            return shown
        meant = self.base.below(f"{self.base.path}/v1")
        return f"{shown} (from {self.base}: does the address lack /v1, as in {meant}?)"
