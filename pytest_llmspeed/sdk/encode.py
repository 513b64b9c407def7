"""Answers of an engine → the OpenAI protocol's JSON, whole or as a stream. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pytest_llmspeed.metrics.exchange import Endpoint, Event, Exchange, Usage

OBJECTS = {"chat": "chat.completion", "completions": "text_completion"}
"""The endpoints that an answer can be written for, and what it is called there."""
DONE = b"data: [DONE]\n\n"


class AnswerWriter:
    """An answer in the protocol's JSON."""

    def __init__(self, endpoint: Endpoint, *, id: int, model: str, created_s: int) -> None:  # noqa: A002
        self._is_chat, self._object = endpoint == "chat", OBJECTS[endpoint]
        prefix = "chatcmpl" if self._is_chat else "cmpl"
        self._facts = {"id": f"{prefix}-{id}", "created": created_s, "model": model}

    def chunk(self, event: Event, *, is_first: bool) -> bytes:
        """One event of a stream."""
        role = {"role": "assistant"} if is_first else {}
        return server_sent(self._chunk({**role, **_delta(event)}, None))

    def tail(self, exchange: Exchange, with_usage: bool) -> bytes:
        """Return what follows the last event of a stream: the finish reason, the token counts, the end."""
        counts = {**self._chunk({}, None), "choices": [], "usage": _usage(exchange.usage)}
        finish = server_sent(self._chunk({}, exchange.finish_reason))
        return finish + (server_sent(counts) if with_usage else b"") + DONE

    def whole(self, exchange: Exchange) -> dict[str, Any]:
        """An answer that is not streamed."""
        message = {"role": "assistant", "content": exchange.joined("text") + exchange.joined("tool_call")}
        if reasoning := exchange.joined("reasoning"):
            message["reasoning_content"] = reasoning
        output = {"message": message} if self._is_chat else {"text": message["content"]}
        choice = {"index": 0, **output, "finish_reason": exchange.finish_reason, "logprobs": None}
        usage = _usage(exchange.usage)
        return {**self._facts, "object": self._object, "choices": [choice], "usage": usage}

    def _chunk(self, delta: Mapping[str, str], finish_reason: str | None) -> dict[str, Any]:
        output = {"delta": delta} if self._is_chat else {"text": delta.get("content", "")}
        choice = {"index": 0, **output, "finish_reason": finish_reason, "logprobs": None}
        kind = f"{self._object}.chunk" if self._is_chat else self._object
        return {**self._facts, "object": kind, "choices": [choice]}


def _delta(event: Event) -> dict[str, str]:
    parts = {
        "content": event.text + event.tool_call,
        "reasoning_content": event.reasoning,
        "refusal": event.refusal,
    }
    return {name: text for name, text in parts.items() if text}


def _usage(usage: Usage | None) -> dict[str, Any] | None:
    if usage is None or usage.output_tokens is None:
        return None
    prompt = usage.prompt_tokens or 0
    return {
        "prompt_tokens": prompt,
        "completion_tokens": usage.output_tokens,
        "total_tokens": prompt + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens or 0},
    }


def server_sent(body: Mapping[str, Any]) -> bytes:
    """Return a JSON body as a server-sent event."""
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def error_body(message: str) -> dict[str, Any]:
    """Return an error as the protocol has it."""
    return {"error": {"message": message, "type": "llmspeed_error", "param": None, "code": None}}
