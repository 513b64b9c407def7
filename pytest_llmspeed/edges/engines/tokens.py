"""Counting tokens of a server's text by a local tokenizer, where the server gives no counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

from pytest_llmspeed.core.errors import EngineError
from pytest_llmspeed.core.exchange import Event, Exchange, Usage


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
        first, *others = exchange.events
        if exchange.token_source is not None:
            head = first if first.tokens is not None else replace(first, tokens=self._count(_text(first)))
            return replace(exchange, events=(head, *others))
        everything = "".join(map(_text, exchange.events))
        usage = replace(exchange.usage or Usage(), output_tokens=self._count(everything))
        head = replace(first, tokens=self._count(_text(first)))
        return replace(exchange, events=(head, *others), usage=usage, token_source="tokenizer")

    def _count(self, text: str) -> int:
        return len(self._tokenizer(text, add_special_tokens=False)["input_ids"])


def _text(event: Event) -> str:
    return event.reasoning + event.text + event.refusal + event.tool_call
