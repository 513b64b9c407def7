"""What an SDK caller asks for: the JSON of its request → Request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_llmspeed.metrics.exchange import Endpoint, Request
from pytest_llmspeed.sdk.call import Call

MEASURED: dict[str, Endpoint] = {
    "/chat/completions": "chat",
    "/completions": "completions",
    "/responses": "responses",
}
PROMPTS = {"chat": "messages", "completions": "prompt", "responses": "input"}
LIMITS = ("max_completion_tokens", "max_output_tokens", "max_tokens")
ELSEWHERE = frozenset({"model", "stream", "stream_options", "temperature", *PROMPTS.values(), *LIMITS})
WHO_ASKS = frozenset(
    {
        "conversation",
        "metadata",
        "previous_response_id",
        "prompt_cache_key",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
    }
)
"""Fields about the caller. They shape no answer, and differ from run to run."""
NEUTRAL: dict[str, Any] = {
    "echo": False,
    "frequency_penalty": 0,
    "logprobs": False,
    "n": 1,
    "parallel_tool_calls": True,
    "presence_penalty": 0,
    "response_format": {"type": "text"},
    "tool_choice": "auto",
    "tools": [],
}
"""Fields that frameworks send although they are the protocol's defaults."""
DEFAULT_TEMPERATURE = 1.0
RETRIES = "x-stainless-retry-count"


@dataclass(frozen=True, slots=True)
class SDKRequest:
    """A measured call. `asks_usage` is False where a streamed answer would come without its counts."""

    request: Request
    body: Mapping[str, Any]
    notes: frozenset[str]
    label: str | None = None

    @classmethod
    def of(cls, call: Call, default_timeout_s: float) -> SDKRequest | None:
        """Return what a call asks, None if it is of a kind that is not measured.

        Raises ValueError where the body is not a JSON object.
        """
        endpoint = _endpoint(call.path)
        if endpoint is None or call.method != "POST":
            return None
        body = json.loads(call.body)
        if not isinstance(body, dict):
            raise ValueError("the body is not a JSON object")
        notes = frozenset({"retry"} if call.headers.get(RETRIES, "0") != "0" else ())
        request = _request(endpoint, body, call.timeout_s or default_timeout_s)
        return cls(request, body, notes, call.label)

    @property
    def streams(self) -> bool:
        """True if the answer is to come as a stream."""
        return bool(self.body.get("stream"))

    @property
    def asks_usage(self) -> bool:
        """True if the caller asked that a streamed answer ends with its token counts."""
        return bool((self.body.get("stream_options") or {}).get("include_usage"))

    @property
    def lacks_usage(self) -> bool:
        """True if the token counts would not come unless asked for."""
        return self.streams and not self.asks_usage and self.request.endpoint != "responses"

    def added(self, extra_body: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of `extra_body` that the body lacks, and the token counts of a stream, asked for."""
        if self.request.endpoint == "responses":
            return {}
        fields = {
            name: value
            for name, value in extra_body.items()
            if name not in self.body and name != "stream_options"
        }
        if self.lacks_usage:
            fields["stream_options"] = {**(self.body.get("stream_options") or {}), "include_usage": True}
        return fields


def _endpoint(path: str) -> Endpoint | None:
    """Return what a path ends in: Azure puts the deployment in front of it, gateways what they like."""
    path = path.partition("?")[0]
    return next((endpoint for ending, endpoint in MEASURED.items() if path.endswith(ending)), None)


def _request(endpoint: Endpoint, body: Mapping[str, Any], timeout_s: float) -> Request:
    limits = (body[name] for name in LIMITS if body.get(name) is not None)
    temperature = body.get("temperature")
    return Request(
        prompt=_prompt(body.get(PROMPTS[endpoint])),
        endpoint=endpoint,
        model=body.get("model"),
        max_tokens=next(limits, None),
        temperature=DEFAULT_TEMPERATURE if temperature is None else float(temperature),
        timeout_s=timeout_s,
        extra_body={name: value for name, value in body.items() if _shapes_the_answer(name, value)},
    )


def _shapes_the_answer(name: str, value: Any) -> bool:
    if name in ELSEWHERE or name in WHO_ASKS or value is None:
        return False
    return name not in NEUTRAL or value != NEUTRAL[name]


def _prompt(prompt: Any) -> Any:
    """A text, or a tuple of messages (of a completion: of its several prompts)."""
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
        return prompt[0]
    return tuple(prompt) if isinstance(prompt, list) else prompt
