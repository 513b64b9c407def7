"""Bytes → server-sent events, as the WHATWG HTML standard defines them. Pure: no socket, no clock."""

from __future__ import annotations

from typing import NamedTuple

_BOM = b"\xef\xbb\xbf"


class ServerSentEvent(NamedTuple):
    """One event. `stamp_s` is when the last byte of its data arrived, not the blank line after it."""

    data: bytes
    event: str
    stamp_s: float


class EventParser:
    """Feeds on chunks of a stream, cut anywhere, and gives back the events that they complete."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._rest_stamp = 0.0
        self._skip_lf = False
        self._at_start = True
        self._seen = False
        self._data: list[bytes] = []
        self._data_size = 0
        self._event = ""
        self._stamp = 0.0

    @property
    def started(self) -> bool:
        """True once a line that is not empty, or a part of one, has been read."""
        return bool(self._rest) or self._seen

    @property
    def held(self) -> int:
        """The bytes of the event that is not complete yet."""
        return len(self._rest) + self._data_size

    def feed(self, chunk: bytes, stamp_s: float) -> list[ServerSentEvent]:
        """Return the events that `chunk`, which arrived at `stamp_s`, completes."""
        if not (self._rest or self._data or self._event) and _is_one_event(chunk):
            self._skip_lf, self._at_start, self._seen = False, False, True
            return [ServerSentEvent(chunk[6:-2], "message", stamp_s)]
        if self._skip_lf and chunk:
            chunk, self._skip_lf = chunk.removeprefix(b"\n"), False
        if self._rest and not self._at_start and b"\n" not in chunk and b"\r" not in chunk:
            if chunk:  # of a long line each piece is looked at once
                self._rest += chunk
                self._rest_stamp = stamp_s
            return []
        lines, tail = self._lines(chunk)
        found = []
        for place, line in enumerate(lines):
            carried = place == 0 and bool(self._rest)
            stamp = self._rest_stamp if carried and len(line) == len(self._rest) else stamp_s
            if event := self._line(line, stamp):
                found.append(event)
        if tail and not (not lines and tail == self._rest):
            self._rest_stamp = stamp_s
        self._rest = bytearray(tail)
        return found

    def close(self) -> list[ServerSentEvent]:
        """Return the event that the end of the stream cut short of its blank line, if there is one."""
        found = []
        if self._rest and (event := self._line(bytes(self._rest), self._rest_stamp)):
            found.append(event)
        if event := self._line(b"", self._stamp):
            found.append(event)
        self._rest.clear()
        return found

    def _lines(self, chunk: bytes) -> tuple[list[bytes], bytes]:
        """Split what is at hand into whole lines and an unfinished one. CR, LF and CRLF end a line."""
        text = bytes(self._rest) + chunk
        if self._at_start and len(text) >= len(_BOM):
            text, self._at_start = text.removeprefix(_BOM), False
        if b"\r" in text:
            self._skip_lf = text.endswith(b"\r")
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, tail = text.split(b"\n")
        return lines, tail

    def _line(self, line: bytes, stamp_s: float) -> ServerSentEvent | None:
        if not line:
            return self._dispatch()
        self._seen = True
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._data_size += len(line) + 1
            self._stamp = stamp_s
        elif field == b"event":
            self._event = value.decode("utf-8", "replace")
            self._stamp = stamp_s
        return None

    def _dispatch(self) -> ServerSentEvent | None:
        data, event = self._data, self._event
        self._data, self._data_size, self._event = [], 0, ""
        if not data and event != "error":
            return None
        return ServerSentEvent(b"\n".join(data), event or "message", self._stamp)


def _is_one_event(chunk: bytes) -> bool:
    """True for one whole event of a single line of data: nearly every chunk of most servers."""
    if not (chunk.startswith(b"data: ") and chunk.endswith(b"\n\n")):
        return False
    return chunk.count(b"\n") == 2 and b"\r" not in chunk
