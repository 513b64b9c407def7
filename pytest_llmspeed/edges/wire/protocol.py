"""OpenAI's JSON ⇄ Request and Event, for chat completions and completions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal

import jiter

from pytest_llmspeed.core.exchange import Event, Exchange, Request, Usage
from pytest_llmspeed.edges.wire.sse import ServerSentEvent

PATHS = {"chat": "/chat/completions", "completions": "/completions"}
_QUOTED = 200


def body_of(request: Request, model: str | None, further: Mapping[str, Any] | None = None) -> bytes:
    """Return the JSON body that asks for a streamed answer with its token counts.

    `further` are fields of our own; those of the user's `extra_body` win over them.
    """
    prompt: dict[str, Any] = (
        {"messages": request.messages} if request.endpoint == "chat" else {"prompt": request.prompt}
    )
    optional = {"max_tokens": request.limit, "temperature": request.temperature}
    if "max_completion_tokens" in request.extra_body:
        del optional["max_tokens"]
    return json.dumps(
        {
            "model": request.model or model,
            **prompt,
            "stream": True,
            "stream_options": {"include_usage": True},
            **{name: value for name, value in optional.items() if value is not None},
            **(further or {}),
            **request.extra_body,
        }
    ).encode()


class AnswerReader:
    """Gathers what a server says of one request, event by event, and tells `on_event` of its output."""

    def __init__(self, on_event: Callable[[Event], None] | None = None) -> None:
        self._on_event = on_event
        self.events: list[Event] = []
        self.usage: Usage | None = None
        self.error: str | None = None
        self.done = False
        self._finish: dict[int, str | None] = {}
        self._token_ids: list[int] = []
        self._tokens_before: int | None = 0
        self._reasoned = False

    @property
    def finish_reason(self) -> str | None:
        """The first choice's finish reason, None unless every choice seen has one."""
        if not self._finish or None in self._finish.values():
            return None
        return self._finish[min(self._finish)]

    def feed(self, event: ServerSentEvent) -> None:
        """Take in one server-sent event."""
        if event.event == "error":
            self.error = error_text(event.data)
        elif event.data.strip() == b"[DONE]":
            self.done = True
        else:
            self._chunk(event.data, event.stamp_s, part="delta")

    def feed_body(self, body: bytes, stamp_s: float) -> None:
        """Take in an answer that came as one JSON body, complete at `stamp_s`."""
        self._chunk(body, stamp_s, part="message")
        self.done = True

    def _chunk(self, content: bytes, stamp_s: float, part: Literal["delta", "message"]) -> None:
        try:
            chunk = _decoded(content)
        except ValueError:
            self.error = f"the server sent invalid JSON: {_quote(content)}"
            return
        if not isinstance(chunk, dict) or chunk.get("error") or chunk.get("object") == "error":
            self.error = error_text(content)
            return
        try:
            self._take(chunk, stamp_s, part)
        except (AttributeError, KeyError, TypeError, ValueError):
            self.error = f"the server sent JSON of an unknown shape: {_quote(content)}"

    def _take(self, chunk: Mapping[str, Any], stamp_s: float, part: str) -> None:
        usage = _usage(chunk.get("usage"))
        self.usage = usage or self.usage
        first, output = 0, None
        for choice in chunk.get("choices") or ():
            index, fields = self._choice(choice, part)
            if fields and (output is None or index < first):
                first, output = index, fields
        if output:
            self._add_event(first, output, stamp_s, usage)

    def _choice(self, choice: Mapping[str, Any], part: str) -> tuple[int, dict[str, str]]:
        """A choice's index and its non-empty output; its finish reason is noted."""
        index = int(choice.get("index") or 0)
        reason = choice.get("finish_reason")
        self._finish[index] = reason or self._finish.get(index)
        if index == 0 and (token_ids := choice.get("token_ids")):
            self._token_ids += map(int, token_ids)
        if reason == "error":
            self.error = "the server ended the answer with the finish reason 'error'"
        return index, _output(choice, part)

    def _add_event(self, choice: int, fields: dict[str, str], stamp_s: float, usage: Usage | None) -> None:
        self._reasoned = self._reasoned or "reasoning" in fields
        total = _streamed_tokens(usage, self._reasoned)
        before, self._tokens_before = self._tokens_before, total
        tokens = total - before if total is not None and before is not None and total > before else None
        event = Event(stamp_s, tokens=tokens, choice=choice, **fields)
        self.events.append(event)
        if self._on_event is not None:
            self._on_event(event)

    def exchange(self, request: Request, started_s: float, **facts: Any) -> Exchange:
        """Return what was gathered; `facts` are further fields of `Exchange`."""
        counted = self.usage is not None and self.usage.output_tokens is not None
        return Exchange(
            request=request,
            started_s=started_s,
            events=tuple(self.events),
            usage=self.usage,
            token_source="usage" if counted else None,
            finish_reason=self.finish_reason,
            error=self.error,
            token_ids=tuple(self._token_ids) or None,
            **facts,
        )


def _decoded(content: bytes) -> Any:
    """A chunk as builtins; raises ValueError. Half of a character, cut by the server, only `json` takes."""
    try:
        return jiter.from_json(content)
    except ValueError:
        return json.loads(content.decode("utf-8", "surrogatepass"))


def _output(choice: Mapping[str, Any], part: str) -> dict[str, str]:
    """The non-empty output of a choice, as fields of `Event`."""
    message = choice.get(part) or {}
    if len(message) == 1 and (only := message.get("content")) and isinstance(only, str):
        return {"text": only}
    fields = {
        "text": _text(message.get("content")) or _text(choice.get("text")),
        "reasoning": _text(message.get("reasoning_content")) or _text(message.get("reasoning")),
        "refusal": _text(message.get("refusal")),
        "tool_call": _tool_calls(message),
    }
    return {name: value for name, value in fields.items() if value}


def _text(content: Any) -> str:
    """A content field as text: a string, or a list of parts that hold some."""
    if isinstance(content, list):
        return "".join(_text(part.get("text")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _tool_calls(message: Mapping[str, Any]) -> str:
    calls = [call.get("function") or {} for call in message.get("tool_calls") or ()]
    if legacy := message.get("function_call"):
        calls.append(legacy)
    return "".join(_text(call.get("name")) + _text(call.get("arguments")) for call in calls)


def _usage(usage: Any) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    prompt_details = usage.get("prompt_tokens_details") or {}
    output_details = usage.get("completion_tokens_details") or {}
    found = Usage(
        prompt_tokens=_count(usage.get("prompt_tokens")),
        output_tokens=_count(usage.get("completion_tokens")),
        cached_tokens=_count(prompt_details.get("cached_tokens")),
        reasoning_tokens=_count(output_details.get("reasoning_tokens")),
    )
    return None if found == Usage() else found


def _count(value: Any) -> int | None:
    """A token count, None where there is none."""
    if value is None:
        return None
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no token count")
    return value


def _streamed_tokens(usage: Usage | None, reasoned: bool) -> int | None:
    """The tokens streamed so far by a chunk's own running count, hidden reasoning left out."""
    if usage is None or usage.output_tokens is None:
        return None
    return usage.output_tokens - (0 if reasoned else usage.reasoning_tokens or 0)


def error_text(body: bytes) -> str:
    """Return the message of an error body: OpenAI's shape, FastAPI's `detail`, or the text itself."""
    try:
        shown = json.loads(body)
    except ValueError:
        return _quote(body) or "an error without a message"
    if isinstance(shown, dict):
        shown = shown.get("error") or shown.get("message") or shown.get("detail") or shown
    if isinstance(shown, dict):
        shown = shown.get("message") or shown
    return shown if isinstance(shown, str) and shown.strip() else json.dumps(shown)[:_QUOTED]


def _quote(content: bytes) -> str:
    text = content.decode("utf-8", "replace").strip()
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}…"
