"""Counting tokens of a server's text by a local tokenizer, where the server gives no counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

from pytest_llmspeed.errors import EngineError
from pytest_llmspeed.metrics.exchange import Event, Exchange, Usage


class TokenCounter:
    """A tokenizer that counts; `Exchange.token_source` then says "tokenizer"."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    @classmethod
    def load(cls, name: str) -> Self:
        """Load a tokenizer from a folder or hub id; raises `EngineError`."""
        try:
            from transformers import AutoTokenizer

            return cls(AutoTokenizer.from_pretrained(name))
        except ImportError as error:
            raise EngineError(
                "tokenizer= needs transformers: pip install 'pytest-llmspeed[transformers]'"
            ) from error
        except (OSError, ValueError) as error:
            raise EngineError(f"the tokenizer {name!r} cannot be loaded: {error}") from error

    def counted(self, exchange: Exchange) -> Exchange:
        """The exchange with token counts of its text, unless the server gave them."""
        if not exchange.events:
            return exchange
        first = exchange.events[0]
        if exchange.token_source is None:
            whole = self._count("".join(map(text_of, exchange.events)))
            return with_counts(exchange, whole, self._count(text_of(first)))
        if first.tokens is not None:
            return exchange
        head = replace(first, tokens=self._count(text_of(first)))
        return replace(exchange, events=(head, *exchange.events[1:]))

    def _count(self, text: str) -> int:
        return len(self._tokenizer(text, add_special_tokens=False)["input_ids"])


def with_counts(exchange: Exchange, whole: int, first: int) -> Exchange:
    """Return the exchange with the tokens of its text and of its first event, as a tokenizer counted them."""
    head = replace(exchange.events[0], tokens=first)
    usage = replace(exchange.usage or Usage(), output_tokens=whole)
    return replace(exchange, events=(head, *exchange.events[1:]), usage=usage, token_source="tokenizer")


def text_of(event: Event) -> str:
    """Return all that an event says."""
    return event.reasoning + event.text + event.refusal + event.tool_call
