"""Counting tokens by the server's own tokenizer, for a server that sends no counts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

from pytest_llmspeed.engines.token_counter import text_of, with_counts
from pytest_llmspeed.metrics.exchange import Exchange
from pytest_llmspeed.transport.address import BaseURL
from pytest_llmspeed.transport.client import HTTPClient

COUNT_TIMEOUT_S = 10.0


class ServerTokenCounter:
    """Asks a path of the server for the tokens of a text, once an answer is complete."""

    def __init__(self, base: BaseURL, path: str, headers: Mapping[str, str]) -> None:
        self._client, self._path, self._headers = HTTPClient(base), path, headers
        self._added: int | None = None

    async def counted(self, exchange: Exchange) -> Exchange:
        """The exchange with token counts of its text, or as it is where the server does not tell them."""
        if not exchange.events or exchange.token_source is not None:
            return exchange
        try:
            if self._added is None:
                self._added = await self._count("")  # a token that begins every text, with some models
            whole = await self._count("".join(map(text_of, exchange.events))) - self._added
            first = await self._count(text_of(exchange.events[0])) - self._added
        except Exception:  # noqa: BLE001  (a server may answer anything; then nobody counted)
            return exchange
        return with_counts(exchange, whole, first)

    async def _count(self, text: str) -> int:
        body = json.dumps({"input": text}).encode()
        async with asyncio.timeout(COUNT_TIMEOUT_S):
            response = await self._client.post(self._path, self._headers, body)
            return int(json.loads(await response.body())["count"])

    def close(self) -> None:
        """Close the idle connections."""
        self._client.close()
