"""An answer kept as bytes and stamps while a load runs, and read when it is over."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pytest_llmspeed.metrics.exchange import Exchange, Request
from pytest_llmspeed.transport.parser import ResponseParser, TransportError
from pytest_llmspeed.transport.response_reader import AnswerBytes


@dataclass(frozen=True, slots=True)
class Part:
    """The first reads of an answer, taken out while the others are still on their way."""

    number: int
    reads: list[bytes]
    stamps_s: array[float]
    late_s: array[float]


@dataclass(slots=True)
class RecordedResponse:
    """What came back for one request, until it was `over`.

    `late_s` is how long each read lay unread after its stamp. `unended`: it was whole, but its end was
    waited for in vain. `resent`: the server had closed the first connection before it could read the
    request. Its `number` is its own among those of its process.
    """

    server: str
    number: int = 0
    started_s: float = 0.0
    over_s: float = 0.0
    is_new: bool = False
    reads: list[bytes] = field(default_factory=list)
    stamps_s: array[float] = field(default_factory=lambda: array("d"))
    late_s: array[float] = field(default_factory=lambda: array("f"))
    peer_closed: bool = False
    timed_out: bool = False
    broken: str | None = None
    cancelled: bool = False
    unended: bool = False
    resent: bool = False

    @property
    def ended_s(self) -> float:
        """The stamp of the last read; of what was given up, or brought nothing, when it was over."""
        given_up = self.timed_out or self.cancelled or self.broken or self.unended
        return self.over_s if given_up or not self.stamps_s else self.stamps_s[-1]

    def take_out(self, size: int) -> Part:
        """Take out the first `size` reads."""
        part = Part(self.number, self.reads[:size], self.stamps_s[:size], self.late_s[:size])
        del self.reads[:size], self.stamps_s[:size], self.late_s[:size]
        return part

    def drop_after(self, size: int) -> None:
        """Let go of all but the first `size` reads."""
        del self.reads[size:], self.stamps_s[size:], self.late_s[size:]

    def put_back(self, parts: Sequence[Part]) -> None:
        """Put back what was taken out, in that order."""
        for part in reversed(parts):
            self.reads[:0], self.stamps_s[:0], self.late_s[:0] = part.reads, part.stamps_s, part.late_s

    def exchange(self, request: Request) -> Exchange:
        """Read it."""
        answer, failure = AnswerBytes(), self._failure
        try:
            self._read_into(answer)
        except TransportError as error:
            failure = error
        if answer.finished:
            failure = None
        notes = frozenset({"resent"} if self.resent else ())
        found = answer.exchange(request, self.started_s, failure, new_connection=self.is_new, notes=notes)
        return found if not self.cancelled else _cancelled(found)

    @property
    def _failure(self) -> TransportError | TimeoutError | None:
        if self.timed_out:
            return TimeoutError()
        return TransportError(self.broken) if self.broken else None

    def _read_into(self, answer: AnswerBytes) -> None:
        """Feed what came to `answer`; raises `TransportError` where it is cut short."""
        parser, begun = ResponseParser(self.server), False
        for chunk, stamp_s in zip(self.reads, self.stamps_s, strict=True):
            parser.feed(chunk)
            if parser.headers_complete and not begun:
                answer.begin(parser.status, parser.headers)
                begun = True
            if part := parser.take():
                answer.feed(part, stamp_s)
                if answer.finished:
                    return
        if self.peer_closed and not parser.complete:
            parser.feed(b"")
        if parser.complete:
            answer.close()


def _cancelled(found: Exchange) -> Exchange:
    return replace(found, error=None, notes=found.notes | {"cancelled"})
