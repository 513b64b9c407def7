"""The body of a response, piece by piece → Exchange. Pure: a stream as it comes, or bytes kept from one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pytest_llmspeed.metrics.exchange import Event, Exchange, Request
from pytest_llmspeed.text.harmless import harmless
from pytest_llmspeed.transport.openai_protocol import AnswerReader, error_text
from pytest_llmspeed.transport.parser import MOST_EVENT, TooLargeError, TransportError, too_large
from pytest_llmspeed.transport.sse import EventParser, ServerSentEvent


class AnswerBytes:
    """Feeds on the pieces of one response's body, whatever its shape: a stream, one JSON body, an error.

    Whatever an answer holds, it raises nothing: what cannot be read is the failure of that one request.
    `on_event` is called with each output event as it is read. `reader` is another one than that of
    completions.
    """

    def __init__(
        self, on_event: Callable[[Event], None] | None = None, reader: AnswerReader | None = None
    ) -> None:
        self._reader = reader or AnswerReader(on_event)
        self._parser = EventParser()
        self._status = 200
        self._moved = ""
        self._form = ""
        self._any_event = False
        self._whole: list[bytes] | None = None
        self._stamp_s = 0.0

    @property
    def finished(self) -> bool:
        """True once nothing that follows can matter: after [DONE], or an error."""
        return self._reader.done or self._reader.error is not None

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Note the head of the response."""
        self._status = status
        self._form = _unreadable_form(headers)
        if status != 200:
            self._whole = []
            where = headers.get("location")
            self._moved = f" (it points to {harmless(where, 200)}: configure that address)" if where else ""

    def feed(self, part: bytes, stamp_s: float) -> None:
        """Take in a piece of the body and its stamp."""
        try:
            self._feed(part, stamp_s)
        except Exception as error:  # noqa: BLE001  (a server may send anything; the others' answers go on)
            self._reader.error = _unreadable(error)

    def _feed(self, part: bytes, stamp_s: float) -> None:
        if self._whole is None and not self._has_begun:
            if not part.strip():
                return  # a sign of life before the answer
            if part.lstrip()[:1] in (b"{", b"["):
                self._whole = []
        if self._whole is not None:
            self._whole.append(part)
            self._stamp_s = stamp_s
            return
        self._read(self._parser.feed(part, stamp_s))
        if self._parser.held > MOST_EVENT:
            raise TooLargeError(too_large("one event of the answer", MOST_EVENT))

    def _read(self, events: Iterable[ServerSentEvent]) -> None:
        for event in events:
            self._any_event = True
            if not self.finished:
                self._reader.feed(event)

    @property
    def _has_begun(self) -> bool:
        return self._parser.started or self._any_event

    def close(self) -> None:
        """Take in the end of the body."""
        try:
            self._close()
        except Exception as error:  # noqa: BLE001  (as of a piece)
            self._reader.error = _unreadable(error)

    def _close(self) -> None:
        whole = b"".join(self._whole or ())
        if self._status != 200:
            self._reader.error = f"HTTP {self._status}{self._moved}: {error_text(whole)}"
        elif self._whole is not None:
            self._reader.feed_body(whole, self._stamp_s)
        else:
            self._read(self._parser.close())
            if self._form and not self._any_event:
                self._reader.error = f"the answer is not an event stream: {self._form}"

    def exchange(
        self,
        request: Request,
        started_s: float,
        failure: TransportError | TimeoutError | None = None,
        **facts: Any,
    ) -> Exchange:
        """Return what came back; `failure` ended it, `facts` are further fields of `Exchange`."""
        reader = self._reader
        streamed = self._whole is None or self._status != 200
        if failure is not None and self._status != 200:
            said = b"".join(self._whole or ()).strip()
            reader.error = f"HTTP {self._status}{self._moved}: {error_text(said) if said else failure}"
            if said and isinstance(failure, TooLargeError):
                reader.error += f" ({failure})"
            failure = None
        if failure is None:
            return reader.exchange(request, started_s, streamed=streamed, **facts)
        if isinstance(failure, TimeoutError):
            seen = f"{len(reader.events)} output events" if reader.events else "no output"
            error = reader.error or f"timed out after {request.timeout_s:g} s with {seen}"
            return reader.exchange(request, started_s, **facts).failed(error)
        if reader.finish_reason is not None and reader.error is None:
            notes = facts.get("notes", frozenset()) | {"closed_after_finish"}
            return reader.exchange(request, started_s, **{**facts, "notes": notes})
        return reader.exchange(request, started_s, **facts).failed(reader.error or str(failure))


def _unreadable(error: Exception) -> str:
    if isinstance(error, TransportError):
        return str(error)
    return f"the answer cannot be read: {type(error).__name__}: {error}"[:500]


def _unreadable_form(headers: Mapping[str, str]) -> str:
    """Return what the head says of a body that cannot be an answer, empty where it may be one."""
    coding, kind = headers.get("content-encoding", "identity"), headers.get("content-type", "")
    if coding.lower() != "identity":
        return f"it is encoded ({harmless(coding, 40)}), although no encoding was requested"
    return (
        f"its content type is {harmless(kind, 100)}"
        if kind.lower().startswith(("text/html", "image/"))
        else ""
    )
