"""One request to an OpenAI-compatible server, from t0 to the last byte → Exchange."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from pytest_llmspeed.errors import hides_our_frames
from pytest_llmspeed.metrics.exchange import Event, Exchange, Request
from pytest_llmspeed.system import clock
from pytest_llmspeed.transport.client import HTTPClient, Response
from pytest_llmspeed.transport.openai_protocol import PATHS, body_of
from pytest_llmspeed.transport.parser import TransportError
from pytest_llmspeed.transport.response_reader import AnswerBytes

__tracebackhide__ = hides_our_frames

DRAIN_S = 0.25
"""How long the end of the response may take after [DONE] before the connection is dropped."""


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
    answer = AnswerBytes(on_event)
    before_s = clock.now_s()
    response: Response | None = None
    failure: TransportError | TimeoutError | None = None
    try:
        async with asyncio.timeout(request.timeout_s):
            response = await client.post(PATHS[request.endpoint], headers, body)
            await _read(response, answer)
    except (TransportError, TimeoutError) as error:
        failure = error
    finally:
        if response is not None:
            response.abandon()
    if answer.finished:  # what fails after that is the end of the connection, not the answer
        failure = None
    is_new = response is None or response.is_new
    started_s = response.started_s if response else before_s
    notes = response.notes if response else frozenset[str]()
    return answer.exchange(request, started_s, failure, new_connection=is_new, notes=notes)


async def _read(response: Response, answer: AnswerBytes) -> None:
    """Read a response to its end, or until nothing after it can matter."""
    answer.begin(response.status, response.headers)
    async for part, stamp_s in response.chunks():
        answer.feed(part, stamp_s)
        if answer.finished:
            await _drain(response)
            return
    answer.close()


async def _drain(response: Response) -> None:
    """Read on to the end of the response, briefly, so that its connection can be used again."""
    try:
        async with asyncio.timeout(DRAIN_S):
            async for _ in response.chunks():
                pass
    except (TransportError, TimeoutError):
        response.abandon()
