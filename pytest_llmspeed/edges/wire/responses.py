"""OpenAI's responses API: its JSON and its typed events → Event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_llmspeed.core.exchange import Event, Usage
from pytest_llmspeed.edges.wire.protocol import AnswerReader

DELTAS = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.reasoning_text.delta": "reasoning",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.function_call_arguments.delta": "tool_call",
}
ENDS = ("response.completed", "response.incomplete", "response.failed")
PARTS = {
    "output_text": "text",
    "refusal": "refusal",
    "reasoning_text": "reasoning",
    "summary_text": "reasoning",
}


class ResponsesReader(AnswerReader):
    """Gathers what a server says of one request to `/responses`."""

    def _take(self, chunk: Mapping[str, Any], stamp_s: float, part: str) -> None:
        if part == "message":
            self._whole(chunk, stamp_s)
        elif chunk["type"] == "error":
            self.error = str(chunk.get("message") or "the server sent an error without a message")
        elif chunk["type"] in ENDS:
            self._end(chunk["response"])
            self.done = True
        elif (field := DELTAS.get(chunk["type"])) and chunk.get("delta"):
            self._add(stamp_s, field, chunk["delta"])

    def _add(self, stamp_s: float, field: str, text: str) -> None:
        fields: dict[str, Any] = {field: text}
        self.events.append(Event(stamp_s, **fields))

    def _whole(self, response: Mapping[str, Any], stamp_s: float) -> None:
        """An answer that came as one JSON body."""
        for item in response.get("output") or ():
            if item.get("type") == "function_call":
                self._add(stamp_s, "tool_call", f"{item.get('name')}{item.get('arguments')}")
            for content in (*(item.get("summary") or ()), *(item.get("content") or ())):
                text = content.get("text") or content.get("refusal")
                if (field := PARTS.get(content.get("type"))) and text:
                    self._add(stamp_s, field, text)
        self._end(response)

    def _end(self, response: Mapping[str, Any]) -> None:
        self.usage = _usage(response.get("usage")) or self.usage
        status = response.get("status")
        if status == "failed":
            self.error = (response.get("error") or {}).get("message") or "the server failed to answer"
        reason = (response.get("incomplete_details") or {}).get("reason")
        ended = "length" if reason == "max_output_tokens" else reason
        self._finish[0] = "stop" if status == "completed" else ended


def _usage(usage: Any) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    return Usage(
        prompt_tokens=usage.get("input_tokens"),
        output_tokens=usage.get("output_tokens"),
        cached_tokens=(usage.get("input_tokens_details") or {}).get("cached_tokens"),
        reasoning_tokens=(usage.get("output_tokens_details") or {}).get("reasoning_tokens"),
    )
