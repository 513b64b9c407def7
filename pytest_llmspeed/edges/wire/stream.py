"""One request to an OpenAI-compatible server, from t0 to the last byte → Exchange."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from pytest_llmspeed.core.exchange import Event, Exchange, Request
from pytest_llmspeed.edges import clock
from pytest_llmspeed.edges.wire.http import HTTPClient, Response, TransportError
from pytest_llmspeed.edges.wire.protocol import PATHS, AnswerReader, body_of, error_text
from pytest_llmspeed.edges.wire.sse import EventParser

DRAIN_S = 0.25
"""How long after [DONE] the end of the response may take before its connection is given up."""


async def ask(
    client: HTTPClient,
    request: Request,
    headers: Mapping[str, str],
    model: str | None,
    *,
    on_event: Callable[[Event], None] | None = None,
    further: Mapping[str, Any] | None = None,
) -> Exchange:
    """Send `request` and return all that came back; a failure is in `Exchange.error`, never raised.

    `on_event` is called with each output event as it comes. `further` are fields of the request's
    body beyond the protocol.
    """
    body = body_of(request, model, further)
    reader = AnswerReader(on_event)
    before_s = clock.now_s()
    response: Response | None = None
    try:
        async with asyncio.timeout(request.timeout_s):
            response = await client.post(PATHS[request.endpoint], headers, body)
            streamed = await _read_answer(response, reader)
    except (TransportError, TimeoutError) as error:
        return _broken_off(error, reader, request, response, before_s)
    finally:
        if response is not None:
            response.abandon()
    return reader.exchange(request, response.started_s, streamed=streamed, new_connection=response.is_new)


async def _read_answer(response: Response, reader: AnswerReader) -> bool:
    """Read a response into `reader`; return whether it was streamed."""
    if response.status != 200:
        text = error_text(await response.body())
        where = response.headers.get("location")
        moved = f" (it points to {where}: configure that address)" if where else ""
        reader.error = f"HTTP {response.status}{moved}: {text}"
        return True
    parser, chunks = EventParser(), response.chunks()
    async for chunk, stamp_s in chunks:
        if chunk.lstrip()[:1] in (b"{", b"[") and not reader.events and not parser.started:
            reader.feed_body(*await _rest_of_body(chunk, stamp_s, response))
            return False
        for event in parser.feed(chunk, stamp_s):
            if not reader.done and reader.error is None:
                reader.feed(event)
        if reader.done or reader.error is not None:
            await _drain(response)
            return True
    for event in parser.close():
        reader.feed(event)
    return True


async def _rest_of_body(chunk: bytes, stamp_s: float, response: Response) -> tuple[bytes, float]:
    parts = [chunk]
    async for part, stamp in response.chunks():
        parts.append(part)
        stamp_s = stamp
    return b"".join(parts), stamp_s


async def _drain(response: Response) -> None:
    """Read on to the end of the response, briefly, so that its connection can be used again."""
    try:
        async with asyncio.timeout(DRAIN_S):
            await response.body()
    except (TransportError, TimeoutError):
        response.abandon()


def _broken_off(
    error: TransportError | TimeoutError,
    reader: AnswerReader,
    request: Request,
    response: Response | None,
    before_s: float,
) -> Exchange:
    """The exchange of a request whose transport failed or whose time ran out."""
    is_new = response is None or response.is_new
    found = reader.exchange(request, response.started_s if response else before_s, new_connection=is_new)
    if isinstance(error, TimeoutError):
        seen = f"{len(reader.events)} output events" if reader.events else "no output"
        return found.failed(f"timed out after {request.timeout_s:g} s with {seen}")
    if reader.finish_reason is not None and reader.error is None:
        return reader.exchange(
            request,
            found.started_s,
            new_connection=is_new,
            notes=frozenset({"closed_after_finish"}),
        )
    return found.failed(reader.error or str(error))
