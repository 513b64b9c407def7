"""OpenAI's responses API: its JSON and its typed events → Event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_llmspeed.metrics.exchange import Event
from pytest_llmspeed.transport.openai_protocol import AnswerReader
from pytest_llmspeed.transport.output import generated, media_of, text_in
from pytest_llmspeed.transport.usage import RESPONSES

DELTAS = {
    "response.output_text.delta": "text",
    "response.audio.transcript.delta": "text",
    "response.audio_transcript.delta": "text",
    "response.output_audio_transcript.delta": "text",
    "response.audio.delta": "media",
    "response.output_audio.delta": "media",
    "response.refusal.delta": "refusal",
    "response.reasoning.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
    "response.reasoning_summary.delta": "reasoning",
    "response.reasoning_summary_text.delta": "reasoning",
}
"""Any other delta is what the model writes of a tool call, of whatever kind."""
PICTURE = "response.image_generation_call.partial_image"
ITEM_DONE = "response.output_item.done"
ENDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
PARTS = {
    "output_text": "text",
    "text": "text",
    "refusal": "refusal",
    "reasoning_text": "reasoning",
    "summary_text": "reasoning",
}
OF_TOOLS = frozenset({"output", "outputs", "results", "error", "environment", "container_id"})
"""Fields of a tool call that the model did not write: its result, and where it ran."""
NOT_WRITTEN = frozenset({"mcp_list_tools", "compaction"})
"""Items that hold nothing that the model wrote."""


class ResponsesReader(AnswerReader):
    """Gathers what a server says of one request to `/responses`.

    Each item of the output counts once: as its deltas, or whole at its end where no delta came.
    """

    names = RESPONSES

    def __init__(self) -> None:
        super().__init__()
        self._begun: set[Any] = set()

    def _take(self, chunk: Mapping[str, Any], stamp_s: float, part: str) -> None:
        if part == "message":
            self._whole(chunk, stamp_s)
            return
        kind = str(chunk["type"])
        if kind == "error":
            self.error = str(chunk.get("message") or "the server sent an error without a message")
        elif kind in ENDS:
            if not self.events:
                self._add_items(chunk["response"], stamp_s)
            self._end(chunk["response"])
            self.done = True
        elif kind.endswith(".delta") and chunk.get("delta"):
            self._add_delta(kind, chunk, stamp_s)
        elif kind == PICTURE:
            self._add_piece(chunk, stamp_s, "media", "image")
        elif kind == ITEM_DONE and chunk.get("output_index") not in self._begun:
            self._add_item(chunk["item"], stamp_s)

    def _add_delta(self, kind: str, chunk: Mapping[str, Any], stamp_s: float) -> None:
        field, delta = DELTAS.get(kind, "tool_call"), chunk["delta"]
        text = delta if isinstance(delta, str) else generated({"delta": delta, "type": "delta"})
        self._add_piece(chunk, stamp_s, field, "audio" if field == "media" else text)

    def _add_piece(self, chunk: Mapping[str, Any], stamp_s: float, field: str, text: str) -> None:
        self._begun.add(chunk.get("output_index"))
        self._add(stamp_s, field, text)

    def _add(self, stamp_s: float, field: str, text: str) -> None:
        fields: dict[str, Any] = {field: text}
        self.events.append(Event(stamp_s, **fields))

    def _whole(self, response: Mapping[str, Any], stamp_s: float) -> None:
        """An answer that came as one JSON body."""
        self._add_items(response, stamp_s)
        self._end(response)

    def _add_items(self, response: Mapping[str, Any], stamp_s: float) -> None:
        for item in response.get("output") or ():
            self._add_item(item, stamp_s)

    def _add_item(self, item: Mapping[str, Any], stamp_s: float) -> None:
        """One item of the output, as far as the model wrote it."""
        kind = str(item.get("type"))
        if kind in NOT_WRITTEN:
            return
        if kind == "image_generation_call":
            if item.get("result"):
                self._add(stamp_s, "media", "image")
            return
        parts = [*(item.get("summary") or ()), *(item.get("content") or ())]
        for part in parts:
            self._add_part(part, stamp_s)
        written = {name: value for name, value in item.items() if name not in OF_TOOLS}
        if kind not in ("message", "reasoning") and not parts and (text := generated(written)):
            self._add(stamp_s, "tool_call", text)

    def _add_part(self, part: Mapping[str, Any], stamp_s: float) -> None:
        text = text_in(part.get("text")) or text_in(part.get("refusal")) or text_in(part.get("transcript"))
        if text:
            self._add(stamp_s, PARTS.get(str(part.get("type")), "text"), text)
        elif media := media_of(part):
            self._add(stamp_s, "media", media)

    def _end(self, response: Mapping[str, Any]) -> None:
        self._count(response.get("usage"))
        status = response.get("status")
        if status == "failed":
            self.error = (response.get("error") or {}).get("message") or "the server failed to answer"
        elif status == "cancelled":
            self.error = "the server cancelled the answer"
        reason = (response.get("incomplete_details") or {}).get("reason")
        ended = "length" if reason in ("max_output_tokens", "max_tokens") else reason
        self._end_choice(0, "stop" if status == "completed" else ended)
