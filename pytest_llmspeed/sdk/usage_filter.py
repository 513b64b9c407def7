"""A stream without the chunk of token counts that its caller did not ask for. Pure."""

from __future__ import annotations

import json
import re

_END_OF_EVENT = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LONGEST_END = 4
_NO_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\]')


class UsageFilter:
    """Passes on the bytes of a stream, event by event, all but those of a usage-only chunk."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> bytes:
        """Return what of the stream so far is to be passed on now: whole events."""
        if not self._rest and chunk.endswith(b"\n\n"):
            return _without_usage(chunk)
        unseen = max(0, len(self._rest) - _LONGEST_END + 1)
        self._rest += chunk
        *_, end = (0, *(found.end() for found in _END_OF_EVENT.finditer(self._rest, unseen)))
        whole = bytes(self._rest[:end])
        del self._rest[:end]
        return _without_usage(whole)

    def close(self) -> bytes:
        """Return what was held back when the stream ended."""
        rest = bytes(self._rest)
        self._rest.clear()
        return _without_usage(rest)


def _without_usage(text: bytes) -> bytes:
    if not _NO_CHOICES.search(text):
        return text
    start, kept = 0, []
    ends = [*(found.end() for found in _END_OF_EVENT.finditer(text)), len(text)]
    for end in ends:
        event = text[start:end]
        if not _is_usage_only(event):
            kept.append(event)
        start = end
    return b"".join(kept)


def _is_usage_only(event: bytes) -> bool:
    lines = (line.partition(b":") for line in event.splitlines())
    data = b"\n".join(value for name, _, value in lines if name == b"data")
    try:
        chunk = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(chunk, dict) and chunk.get("choices") == [] and bool(chunk.get("usage"))
