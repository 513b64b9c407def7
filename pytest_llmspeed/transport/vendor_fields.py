"""What servers take beyond the OpenAI protocol, as data: forced length, plain argmax, a cold prefix cache."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_llmspeed.metrics.exchange import Request

VALUE, SALT = "{value}", "{salt}"
SEED = 0


@dataclass(frozen=True, slots=True)
class VendorFields:
    """The further fields of a request's body that one kind of server takes.

    `owned_by` is what it calls itself in its list of models. `forced` makes an answer `{value}`
    tokens long, nothing where the server has no means. `plain` turns off the penalties that it, or
    the model's own defaults, would change the argmax by. `cold` keeps a request from the prefix
    cache, None where the server has no means; `{salt}` is another one for each request. `token_ids`
    asks for the ids of the output tokens, empty where the server has no means.
    """

    owned_by: str
    forced: Mapping[str, Any] = field(default_factory=dict)
    plain: Mapping[str, Any] = field(default_factory=dict)
    cold: Mapping[str, Any] | None = None
    token_ids: Mapping[str, Any] = field(default_factory=dict)
    seeded: bool = True

    def fields(self, request: Request, *, cold: bool = False) -> dict[str, Any]:
        """Return what is sent with a request beside the fields of the protocol."""
        wanted = dict(self.plain)
        if request.temperature and self.seeded:
            wanted["seed"] = SEED
        if request.output_tokens is not None:
            wanted |= self.forced
        if request.wants_token_ids:
            wanted |= self.token_ids
        if cold:
            wanted |= self.cold or {}
        values = {VALUE: request.output_tokens, SALT: secrets.token_hex(8)}
        return {
            name: values.get(value, value) if isinstance(value, str) else value
            for name, value in wanted.items()
        }


PROTOCOL_ONLY = VendorFields("", seeded=False)
"""For unknown servers, which may reject fields they do not know."""
