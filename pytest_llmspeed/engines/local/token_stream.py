"""What engines in this process share: one request being answered, token by token, in a worker thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Container
from concurrent.futures import Executor
from typing import Protocol

from pytest_llmspeed.metrics.exchange import Event, Exchange, Request, Usage
from pytest_llmspeed.system import clock

OnEvent = Callable[[Event], None]
TAKEN = frozenset({"ignore_eos", "min_tokens", "seed", "tools", "top_k", "top_p"})
"""What `extra_body` may hold for an engine in process. `tools` go into the chat template; a model that
calls one says so in its text."""
SEED = 0


class StopError(Exception):
    """Ends a request, between two tokens too; its text is the request's error."""


class Pieces(Protocol):
    """Turns token ids into text, one after another."""

    def step(self, token: int) -> str:
        """The text that a further token completes, empty if none."""
        ...

    def rest(self) -> str:
        """Return what the last tokens would show if no more came: an unfinished character, most often."""
        ...


def check_request(request: Request) -> None:
    """Raise `ValueError` for what an engine in process does not take."""
    if request.model is not None:
        raise ValueError(f"model={request.model!r}: an in-process engine serves only the backend's model")
    if unknown := sorted(request.extra_body.keys() - TAKEN):
        raise ValueError(f"extra_body: an in-process engine accepts {sorted(TAKEN)}, not {unknown}")


def no_template(request: Request) -> ValueError:
    """The error of a request whose messages no template turns into a text."""
    return ValueError(
        "the model has no chat template, so send a text, not messages"
        if request.endpoint == "chat"
        else "endpoint='completions' takes a text, not messages"
    )


def too_long(prompt_tokens: int, name: str, context: int) -> ValueError:
    """Return the error of a prompt that leaves no room for an answer; `name` is what sets the context."""
    return ValueError(
        f"the prompt has {prompt_tokens} tokens, the context is {name}={context}, answer included: "
        "shorten the prompt, or set a larger context if the engine and the model have one"
    )


class Answering:
    """The answer to one request as its tokens come: their stamps, their text, and when it has to end.

    `ends` are the tokens by which the model ends an answer. Setting `stop` ends it early. `on_event`,
    where given, is called with each event once it is stamped.
    """

    def __init__(
        self,
        request: Request,
        started_s: float,
        stop: threading.Event,
        *,
        ends: Container[int],
        pieces: Pieces,
        on_event: OnEvent | None = None,
    ) -> None:
        self._request, self._started_s, self._stop, self._ends = request, started_s, stop, ends
        self._deadline_s = started_s + request.timeout_s
        self._texts, self._tells = _Texts(pieces, on_event), on_event is not None
        self._yields: list[tuple[float, int]] = []

    @property
    def tokens(self) -> int:
        """The number of tokens so far."""
        return len(self._yields)

    def add(self, token: int) -> None:
        """Stamp a token; raises `StopError` if it is to be the last."""
        stamp_s = clock.now_s()
        self._yields.append((stamp_s, token))
        if self._tells and token not in self._ends:
            self._texts.step(stamp_s, token)
        if self._stop.is_set():
            raise StopError("cancelled")
        if stamp_s > self._deadline_s:
            raise StopError(f"timed out after {self._request.timeout_s:g} s, {self.tokens} tokens in")

    def stopped(self, error: StopError) -> Exchange:
        """Return the exchange as far as it came."""
        return Exchange(self._request, self._started_s, self._events(), error=str(error))

    def broken(self, error: Exception) -> Exchange:
        """Return the exchange of a request that the engine could not answer."""
        lines = f"{type(error).__name__}: {error}".splitlines()
        return Exchange(self._request, self._started_s, error=lines[0])

    def finished(self, prompt_tokens: int, cached_tokens: int = 0) -> Exchange:
        """Return the whole exchange; a token by which the model ended it is none of its output."""
        token_ids = tuple(token for _, token in self._yields)
        ended_by_model = bool(token_ids) and token_ids[-1] in self._ends
        if ended_by_model:
            self._yields.pop()
        return Exchange(
            request=self._request,
            started_s=self._started_s,
            events=self._events(),
            usage=Usage(prompt_tokens, output_tokens=self.tokens, cached_tokens=cached_tokens),
            token_source="engine",
            finish_reason="stop" if ended_by_model else "length",
            token_ids=token_ids,
        )

    def _events(self) -> tuple[Event, ...]:
        """The tokens as text, made here and not between the tokens, unless somebody listens."""
        for stamp_s, token in self._yields[self._texts.steps :]:
            self._texts.step(stamp_s, token)
        return self._texts.end()


class _Texts:
    """Stamped tokens → events: a token that completes no character joins the next one that does."""

    def __init__(self, pieces: Pieces, on_event: OnEvent | None) -> None:
        self._pieces, self._on_event = pieces, on_event
        self._events: list[Event] = []
        self._held, self._stamp_s = 0, 0.0
        self.steps = 0

    def step(self, stamp_s: float, token: int) -> None:
        """Take in a further token."""
        self.steps += 1
        self._held += 1
        self._stamp_s = stamp_s
        if text := self._pieces.step(token):
            self._add(text)

    def end(self) -> tuple[Event, ...]:
        """Return all events, the last one with what its tokens left unfinished."""
        if self._held and (text := self._pieces.rest()):
            self._add(text)
        return tuple(self._events)

    def _add(self, text: str) -> None:
        event = Event(self._stamp_s, text=text, tokens=self._held)
        self._held = 0
        self._events.append(event)
        if self._on_event is not None:
            self._on_event(event)


async def in_worker(worker: Executor, run: Callable[[], Exchange], stop: threading.Event) -> Exchange:
    """Return what `run` does in a worker thread; if cancelled, `stop` is set and its end waited for."""
    work = asyncio.get_running_loop().run_in_executor(worker, run)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([work])
        raise


def across(tell: OnEvent | None) -> OnEvent | None:
    """Return what another thread may call to have `tell` called in the running loop."""
    if tell is None:
        return None
    loop = asyncio.get_running_loop()

    def schedule(event: Event) -> None:
        loop.call_soon_threadsafe(tell, event)

    return schedule
