"""Bytes of an HTTP/1.1 response → its head and its body. Pure: no socket, no clock. By httptools."""

from __future__ import annotations

import httptools

from pytest_llmspeed.errors import LLMSpeedError

# the most that is read of one answer: far above any honest one, far below what fills a machine
MIB = 2**20
MOST_HEAD = MIB
MOST_ERROR = MIB
"""The body of an HTTP error."""
MOST_EVENT = 32 * MIB
"""One server-sent event, which may hold a picture."""
MOST_ANSWER = 128 * MIB
"""A stream of 128,000 tokens takes some 40 MiB, with the 20 likeliest of each token much more."""


class TransportError(LLMSpeedError):
    """A connection that could not be opened, broke, or spoke no HTTP."""


class TooLargeError(TransportError):
    """An answer that is larger than any honest one."""


def too_large(what: str, limit: int) -> str:
    """Return the sentence on something of an answer that is larger than its limit."""
    return f"{what} is larger than {limit // MIB} MiB, the most that is read"


class ResponseParser:
    """Feeds on what one connection brings after one request. `server` is named in errors.

    `complete` is set at the end of the response; `reusable` says whether its connection may serve
    another request.
    """

    def __init__(self, server: object) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.headers_complete = self.complete = self.reusable = False
        self._server = server
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> None:
        """Take in the next bytes, none for the end of the connection; raises `TransportError`."""
        if not chunk:
            self._end_of_stream()
            return
        self._measure(len(chunk))
        try:
            self._parser.feed_data(chunk)
        except httptools.HttpParserUpgrade as error:
            raise TransportError(f"{self._server} answered HTTP 101: it wants to switch protocols") from error
        except Exception as error:
            if self.complete:  # what follows the answer is not part of it
                self.reusable = False
                return
            raise TransportError(f"{self._server} does not speak HTTP/1.1: {error}") from error

    def _measure(self, size: int) -> None:
        """Add to the size of the answer; raises `TooLargeError`."""
        self._size += size
        if not self.headers_complete and self._size > MOST_HEAD:
            raise TooLargeError(too_large("the head of the answer", MOST_HEAD))
        if self._size > MOST_ERROR and self.headers_complete and self.status != 200:
            raise TooLargeError(too_large("the body of the error", MOST_ERROR))
        if self._size > MOST_ANSWER:
            raise TooLargeError(too_large("the answer", MOST_ANSWER))

    @property
    def begun(self) -> bool:
        """True once a byte of the answer has come."""
        return self._size > 0

    def take(self) -> bytes:
        """The body's bytes since the last call."""
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _end_of_stream(self) -> None:
        """The peer closed: the end of a body that has no length, a broken connection otherwise."""
        framed = "content-length" in self.headers or "transfer-encoding" in self.headers
        if not self.headers_complete:
            raise TransportError(f"{self._server} closed the connection without an answer")
        if framed:
            raise TransportError("the connection was closed in the middle of the answer")
        self.complete, self.reusable = True, False

    def on_message_begin(self) -> None:
        """Note a second response that nobody asked for as soon as it begins: the connection is spoilt."""
        if self.complete:
            self.reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take in a header: called by the parser, as are its neighbours."""
        if not self.complete:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Note the status."""
        if self.complete:
            return
        self.status = self._parser.get_status_code()
        self.headers_complete = self.status >= 200

    def on_body(self, part: bytes) -> None:
        """Take in a piece of the body."""
        if not self.complete:
            self._parts.append(part)

    def on_message_complete(self) -> None:
        """Note the end of the response, unless it is an interim one."""
        if not self.complete and self.status >= 200:
            self.complete = True
            self.reusable = self._parser.should_keep_alive()  # true only while the parser is here
