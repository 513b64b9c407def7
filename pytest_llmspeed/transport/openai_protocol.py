"""OpenAI's JSON ⇄ Request and Event, for chat completions and completions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal

import jiter

from pytest_llmspeed.metrics.exchange import LIMIT_FIELDS, Event, Exchange, Request, Usage, whole_text
from pytest_llmspeed.metrics.token_counts import believed, doubted
from pytest_llmspeed.text.harmless import harmless
from pytest_llmspeed.transport.output import output_of
from pytest_llmspeed.transport.sse import ServerSentEvent
from pytest_llmspeed.transport.usage import COMPLETIONS, CountNames, merged, miscounts, usage_of

PATHS = {"chat": "/chat/completions", "completions": "/completions"}
MOST_CHOICES = 10_000
"""An answer of more choices than this is a mistake of the server's."""
MOST_ID = 2**32
_QUOTED, _MESSAGE = 200, 2000
_OPENS = b"{["


def body_of(request: Request, model: str | None, further: Mapping[str, Any] | None = None) -> bytes:
    """Return the JSON body that asks for a streamed answer with its token counts.

    A limit or temperature that is None is not sent. `further` are fields of our own; those of the
    user's `extra_body` win over them, and a limit among these, whatever its name, over ours.
    """
    prompt: dict[str, Any] = (
        {"messages": request.messages} if request.endpoint == "chat" else {"prompt": request.prompt}
    )
    optional = {request.limit_field: request.limit, "temperature": request.temperature}
    if any(name in request.extra_body for name in LIMIT_FIELDS):
        del optional[request.limit_field]
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

    names: CountNames = COMPLETIONS

    def __init__(self, on_event: Callable[[Event], None] | None = None) -> None:
        self._on_event = on_event
        self.events: list[Event] = []
        self.usage: Usage | None = None
        self.error: str | None = None
        self.done = False
        self._finish: dict[int, str | None] = {}
        self._token_ids: list[int] = []
        self._tokens_before: int | None = 0
        self._reasoned = self._miscounted = False

    @property
    def finish_reason(self) -> str | None:
        """The first choice's finish reason, None unless every choice seen has one."""
        if not self._finish or None in self._finish.values():
            return None
        return self._finish[min(self._finish)]

    def feed(self, event: ServerSentEvent) -> None:
        """Take in one server-sent event; one without data keeps the connection open and says nothing."""
        content = event.data.strip()
        if event.event == "error":
            self.error = error_text(event.data)
        elif content == b"[DONE]":
            self.done = True
        elif content and (event.event == "message" or content[0] in _OPENS):
            self._chunk(event.data, event.stamp_s, part="delta")

    def feed_body(self, body: bytes, stamp_s: float) -> None:
        """Take in an answer that came as one JSON body, complete at `stamp_s`."""
        self._chunk(body, stamp_s, part="message")
        self.done = True

    def _chunk(self, content: bytes, stamp_s: float, part: Literal["delta", "message"]) -> None:
        try:
            chunk = _decoded(content)
        except (ValueError, RecursionError):
            self.error = f"the server sent invalid JSON: {_quote(content)}"
            return
        if not isinstance(chunk, dict) or chunk.get("error") or chunk.get("object") == "error":
            self.error = error_text(content)
            return
        try:
            self._take(chunk, stamp_s, part)
        except (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError):
            self.error = f"the server sent JSON of an unknown shape: {_quote(content)}"

    def _take(self, chunk: Mapping[str, Any], stamp_s: float, part: str) -> None:
        usage = self._count(chunk.get("usage"))
        outputs = []
        for choice in chunk.get("choices") or ():
            index, fields = self._choice(choice, part)
            if fields:
                outputs.append((index, fields))
            if usage is None and "usage" in choice:
                usage = self._count(choice["usage"])
        for index, fields in outputs:
            self._add_event(index, fields, stamp_s, usage if len(outputs) == 1 else None)

    def _count(self, given: Any) -> Usage | None:
        """The counts of a usage object, which are kept."""
        if given is None:
            return None
        usage = usage_of(given, self.names)
        self._miscounted = miscounts(given, self.names)
        self.usage = merged(self.usage, usage)
        return usage

    def _choice(self, choice: Mapping[str, Any], part: str) -> tuple[int, dict[str, str]]:
        """A choice's index and its non-empty output; its finish reason is noted."""
        index = choice.get("index") or 0
        if type(index) is not int:
            raise ValueError(f"{index!r} is not the index of a choice")
        self._end_choice(index, choice.get("finish_reason"))
        if index == 0 and (token_ids := choice.get("token_ids")):
            self._token_ids += map(token_id, token_ids)
        return index, output_of(choice, part)

    def _end_choice(self, index: int, reason: Any) -> None:
        """Note the finish reason of a choice, None while it has none."""
        if not reason:
            self._finish.setdefault(index, None)
        else:
            self._finish[index] = whole_text(str(reason))[:_QUOTED]
        if reason == "error":
            self.error = "the server ended the answer with the finish reason 'error'"
        if len(self._finish) > MOST_CHOICES:
            self.error = f"the server sent more than {MOST_CHOICES:,} choices"

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
        found = Exchange(
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
        return doubted(found) if self._miscounted else believed(found)


def _decoded(content: bytes) -> Any:
    """A chunk as builtins; raises ValueError. Half of a character, cut by the server, only `json` takes."""
    try:
        return jiter.from_json(content)
    except ValueError:
        return json.loads(content.decode("utf-8", "surrogatepass"))


def token_id(given: Any) -> int:
    """Return an id of a vocabulary; raises ValueError for what cannot be one."""
    if type(given) is not int or not 0 <= given < MOST_ID:
        raise ValueError(f"{repr(given)[:_QUOTED]} is not a token id")
    return given


def _streamed_tokens(usage: Usage | None, reasoned: bool) -> int | None:
    """The tokens streamed so far by a chunk's own running count, hidden reasoning left out."""
    if usage is None or usage.output_tokens is None:
        return None
    return usage.output_tokens - (0 if reasoned else usage.reasoning_tokens or 0)


def error_text(body: bytes) -> str:
    """Return the message of an error body: OpenAI's shape, FastAPI's `detail`, or the text itself."""
    try:
        shown = json.loads(body)
    except (ValueError, RecursionError):
        return _quote(body) or "an error without a message"
    if isinstance(shown, dict):
        shown = shown.get("error") or shown.get("message") or shown.get("detail") or shown
    if isinstance(shown, dict):
        shown = shown.get("message") or shown
    if isinstance(shown, str) and shown.strip():
        return harmless(shown, _MESSAGE)
    return harmless(json.dumps(shown), _QUOTED)


def _quote(content: bytes) -> str:
    text = content[: 8 * _QUOTED].decode("utf-8", "replace").strip()
    return harmless(text, _QUOTED) if len(content) <= 8 * _QUOTED else f"{harmless(text[:_QUOTED])}…"
