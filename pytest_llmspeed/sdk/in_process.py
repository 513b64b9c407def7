"""SDK calls to an engine in this process: the OpenAI protocol, spoken without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

from pytest_llmspeed.engines.base import Engine
from pytest_llmspeed.errors import hides_our_frames
from pytest_llmspeed.metrics.exchange import Event, Exchange, Request
from pytest_llmspeed.sdk.call import Call, Emit, Head, OnSend
from pytest_llmspeed.sdk.encode import OBJECTS, AnswerWriter, error_body, server_sent
from pytest_llmspeed.sdk.sdk_request import SDKRequest
from pytest_llmspeed.system import clock

__tracebackhide__ = hides_our_frames

PREFIX = "/v1"
BASE_URL = f"http://in-process.invalid{PREFIX}"
"""The name is reserved for what is no host: a client of another make that is given it fails at once."""
API_KEY = "in-process"
JSON = (("content-type", "application/json"),)
EVENT_STREAM = (("content-type", "text/event-stream"),)
SERVED = "POST /chat/completions, POST /completions and GET /models"


class InProcess:
    """Answers from an engine. Whatever model a caller names, the engine's own one answers, and says so.

    The engine's time limit is that of the caller, for the whole request. Serves in the loop that the
    engine answers on.
    """

    base_url, api_key = BASE_URL, API_KEY

    def __init__(self, engine: Engine, on_send: OnSend, timeout_s: float) -> None:
        self._engine, self._on_send, self._timeout_s = engine, on_send, timeout_s
        self._numbers = count(1)

    async def serve(self, call: Call, emit: Emit) -> None:
        """Answer one call."""
        path = call.path.partition("?")[0].removeprefix(PREFIX)
        if call.method == "GET" and (path == "/models" or path.startswith("/models/")):
            _emit_json(emit, 200, self._models(path))
            return
        try:
            asked = SDKRequest.of(call, self._timeout_s)
        except (TypeError, ValueError) as error:
            _refuse(emit, 400, f"the request cannot be read: {error}")
            return
        if asked is None or asked.request.endpoint not in OBJECTS:
            _refuse(emit, 404, f"{call.method} {path}: an in-process engine serves {SERVED}")
            return
        await self._answer(asked, emit)

    def _models(self, path: str) -> dict[str, Any]:
        model = {"id": self._model, "object": "model", "created": 0, "owned_by": "pytest-llmspeed"}
        return {"object": "list", "data": [model]} if path == "/models" else model

    @property
    def _model(self) -> str:
        return self._engine.backend.model or self._engine.backend.name

    async def _answer(self, asked: SDKRequest, emit: Emit) -> None:
        request = replace(asked.request, model=None, prompt=_plain(asked.request.prompt))
        stream = StreamWriter(self._writer(request), emit if asked.streams else None)
        started_s = clock.now_s()

        def so_far() -> Exchange:
            events = tuple(stream.events)
            return Exchange(request, started_s, events, notes=asked.notes | {"cancelled"})

        sent = self._on_send(request, asked.label, so_far)
        try:
            exchange = await self._exchange(request, stream)
        except BaseException as error:
            sent.finish_later(partial(_broken_off, so_far(), error))
            raise
        exchange = replace(exchange, streamed=asked.streams, notes=exchange.notes | asked.notes)
        sent.finish_later(lambda: exchange)
        if exchange.error and clock.now_s() - started_s >= request.timeout_s:
            raise TimeoutError(exchange.error)
        stream.finish(exchange, emit, with_usage=asked.asks_usage)

    def _writer(self, request: Request) -> AnswerWriter:
        created_s = int(clock.wall().timestamp())
        return AnswerWriter(request.endpoint, id=next(self._numbers), model=self._model, created_s=created_s)

    async def _exchange(self, request: Request, stream: StreamWriter) -> Exchange:
        """The engine's answer, event by event as it comes; at its end what the engine has not handed over."""
        exchange = await self._engine.exchange(request, stream.take)
        for event in exchange.events[len(stream.events) :]:
            stream.take(event)
        return exchange


class StreamWriter:
    """Hands an answer to its caller, event by event where it is to be streamed (`emit` is given)."""

    def __init__(self, writer: AnswerWriter, emit: Emit | None) -> None:
        self.events: list[Event] = []
        self._writer, self._emit = writer, emit

    def take(self, event: Event) -> None:
        """Take in an event of the engine."""
        self.events.append(event)
        if self._emit:
            if len(self.events) == 1:
                self._emit(Head(200, EVENT_STREAM))
            self._emit(self._writer.chunk(event, is_first=len(self.events) == 1))

    def finish(self, exchange: Exchange, emit: Emit, *, with_usage: bool) -> None:
        """Hand over what follows the last event, or all of it; an error as the protocol has it."""
        if exchange.error and self._emit and self.events:
            emit(server_sent(error_body(exchange.error)))
        elif exchange.error:
            _refuse(emit, 500, exchange.error)
        elif self._emit and self.events:
            emit(self._writer.tail(exchange, with_usage))
        elif self._emit:
            emit(Head(200, EVENT_STREAM))
            emit(self._writer.tail(exchange, with_usage))
        else:
            _emit_json(emit, 200, self._writer.whole(exchange))


def _broken_off(cancelled: Exchange, error: BaseException) -> Exchange:
    """The exchange of an engine that was stopped, or raised what it should have told."""
    if isinstance(error, asyncio.CancelledError):
        return cancelled
    return replace(
        cancelled.failed(f"{type(error).__name__}: {error}"), notes=cancelled.notes - {"cancelled"}
    )


def _plain(prompt: Any) -> Any:
    """Messages whose content is a list of text parts, with that as one text: templates expect one."""
    if not isinstance(prompt, tuple):
        return prompt
    return tuple(
        {**message, "content": "".join(part["text"] for part in message["content"])}
        if isinstance(message, dict) and _is_text_parts(message.get("content"))
        else message
        for message in prompt
    )


def _is_text_parts(content: Any) -> bool:
    return isinstance(content, list) and all(
        isinstance(part, dict) and isinstance(part.get("text"), str) for part in content
    )


def _refuse(emit: Emit, status: int, message: str) -> None:
    _emit_json(emit, status, error_body(message))


def _emit_json(emit: Emit, status: int, body: Mapping[str, Any]) -> None:
    emit(Head(status, JSON))
    emit(json.dumps(body).encode())
