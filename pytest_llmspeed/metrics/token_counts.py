"""The output tokens of an answer that could be seen, and whether its stream contradicts their count."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from pytest_llmspeed.metrics.exchange import Event, Exchange, Usage

DOUBTED = "count_doubted"
"""The flag of a request whose server's count was not used."""
EVENTS_A_TOKEN, FURTHER_EVENTS = 1.5, 2
"""A token is one event at most; the name of a tool call and the flush of a buffer add a few."""
CHARACTERS_A_TOKEN, FURTHER_CHARACTERS = 16, 64
"""Real vocabularies hold 2 to 7 characters a token on the average, whatever the text."""
TOKENS_A_BYTE, FURTHER_TOKENS = 2, 64
"""A token is a byte at least, but for those of a format, which are not shown."""
_RUNS = re.compile(r"(.)\1{3,}", re.DOTALL)
"""Repeated characters, of which one token may hold a hundred."""


def visible_tokens(exchange: Exchange) -> tuple[int | None, bool]:
    """Return N, and whether reasoning tokens that were never streamed were taken off it."""
    usage = exchange.usage
    tokens = builtin_count(usage.output_tokens) if usage else None
    if usage is None or tokens is None:
        return None, False
    hidden = builtin_count(usage.reasoning_tokens) or 0
    if not hidden or any(event.reasoning for event in exchange.events):
        return tokens, False
    seen = tokens - hidden
    return (seen, True) if seen >= 0 else (None, True)


def builtin_count(tokens: int | None) -> int | None:
    """Return a count as a builtin: engines may have it from NumPy."""
    return None if tokens is None else int(tokens)


def believed(exchange: Exchange) -> Exchange:
    """Return the exchange, without its server's token counts if the stream contradicts them."""
    tokens, _ = visible_tokens(exchange)
    if tokens is None or not contradicts(exchange.events, tokens):
        return exchange
    return doubted(exchange)


def doubted(exchange: Exchange) -> Exchange:
    """Return the exchange without the output tokens that its server counted, and flagged."""
    events = exchange.events
    if events and events[0].tokens is not None:
        events = (replace(events[0], tokens=None), *events[1:])
    usage = replace(exchange.usage or Usage(), output_tokens=None, reasoning_tokens=None)
    notes = exchange.notes | {DOUBTED}
    return replace(exchange, events=events, usage=usage, token_source=None, notes=notes)


def contradicts(events: Sequence[Event], tokens: int) -> bool:
    """Return True if output that came as `events` cannot be `tokens` tokens, by a wide margin.

    Nothing is said of sound and pictures, nor of an answer without output.
    """
    if not events or any(event.media for event in events):
        return False
    if not tokens or len(events) > EVENTS_A_TOKEN * tokens + FURTHER_EVENTS:
        return True
    size = sum(len(e.text) + len(e.reasoning) + len(e.refusal) + len(e.tool_call) for e in events)
    most = CHARACTERS_A_TOKEN * tokens + FURTHER_CHARACTERS
    if size <= most and tokens <= TOKENS_A_BYTE * size + FURTHER_TOKENS:
        return False
    text = "".join(chain.from_iterable((e.text, e.reasoning, e.refusal, e.tool_call) for e in events))
    if size > most:
        return len(_RUNS.sub(r"\1\1\1", text)) > most
    return tokens > TOKENS_A_BYTE * len(text.encode("utf-8", "surrogatepass")) + FURTHER_TOKENS
