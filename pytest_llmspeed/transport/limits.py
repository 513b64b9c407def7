"""The most that is read of one answer: far above any honest one, far below what fills a machine."""

from __future__ import annotations

MIB = 2**20
MOST_HEAD = MIB
MOST_ERROR = MIB
"""The body of an HTTP error."""
MOST_EVENT = 32 * MIB
"""One server-sent event, which may hold a picture."""
MOST_ANSWER = 128 * MIB
"""A stream of 128,000 tokens takes some 40 MiB, with the 20 likeliest of each token much more."""


def too_large(what: str, limit: int) -> str:
    """Return the sentence on something of an answer that is larger than its limit."""
    return f"{what} is larger than {limit // MIB} MiB, the most that is read"
