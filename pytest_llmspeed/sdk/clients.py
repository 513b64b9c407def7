"""The `openai` SDK clients of one test: real ones, on a transport of ours.

Imports the SDK with what its clients would import at their first call, so `LLMClient` loads this module late.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

import openai
import openai.resources.chat
import openai.resources.responses

from pytest_llmspeed.engines.base import Engine, ServedEngine
from pytest_llmspeed.errors import hides_our_frames
from pytest_llmspeed.metrics.exchange import Exchange, Request
from pytest_llmspeed.recording.recorder import Recorder
from pytest_llmspeed.sdk.call import SentCall
from pytest_llmspeed.sdk.httpx_transport import AsyncTransport, BlockingTransport, HttpxAdapter
from pytest_llmspeed.sdk.in_process import InProcess
from pytest_llmspeed.sdk.proxy import Proxy
from pytest_llmspeed.system.event_loop import LoopThread

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from httpx2 import AsyncClient, Client
    from openai import AsyncOpenAI, OpenAI

__tracebackhide__ = hides_our_frames


class SDKClients:
    """Clients whose every call is recorded; made when first asked for, and again if they were closed.

    They retry nothing and wait `timeout_s` for anything to arrive.
    """

    def __init__(self, engine: Engine, loop: LoopThread, recorder: Recorder, timeout_s: float) -> None:
        self._engine, self._loop, self._recorder, self._timeout_s = engine, loop, recorder, timeout_s
        self._http: Client | None = None
        self._async_http: AsyncClient | None = None
        self._openai: OpenAI | None = None
        self._async_openai: AsyncOpenAI | None = None

    @property
    def openai(self) -> OpenAI:
        """The client for blocking code; any number of threads may use it."""
        if self._openai is None or self._openai.is_closed():
            self._openai = openai.OpenAI(http_client=self.http_client, **self._settings)
        return self._openai

    @property
    def async_openai(self) -> AsyncOpenAI:
        """The client for coroutines, in whichever loop is running."""
        if self._async_openai is None or self._async_openai.is_closed():
            self._async_openai = openai.AsyncOpenAI(http_client=self.async_http_client, **self._settings)
        return self._async_openai

    @property
    def http_client(self) -> Client:
        """The HTTP client beneath `openai`, for frameworks that want one."""
        if self._http is None or self._http.is_closed:
            transport = BlockingTransport(self._adapter, self._loop)
            self._http = openai.DefaultHttpxClient(transport=transport, timeout=self._timeout_s)
        return self._http

    @property
    def async_http_client(self) -> AsyncClient:
        """The HTTP client beneath `async_openai`."""
        if self._async_http is None or self._async_http.is_closed:
            transport = AsyncTransport(self._adapter, self._loop)
            self._async_http = openai.DefaultAsyncHttpxClient(transport=transport, timeout=self._timeout_s)
        return self._async_http

    def close(self) -> None:
        """Close the clients: what is still under way is cancelled.

        Each is closed, also if an interruption ends the closing of another.
        """
        with ExitStack() as closing:
            if "_proxy" in self.__dict__ and self._proxy:
                closing.callback(self._finish, self._proxy.close)
            if self._async_http is not None:
                closing.callback(self._finish, self._async_http.aclose)
            if self._http is not None:
                closing.callback(self._http.close)

    def _finish(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run the closing of something in the loop; with a loop that has ended it has ended too."""
        if not self._loop.is_closed:
            self._loop.run(close())

    @property
    def _settings(self) -> dict[str, Any]:
        answerer = self._adapter.answerer
        return {
            "base_url": answerer.base_url,
            "api_key": answerer.api_key,
            "max_retries": 0,
            "timeout": self._timeout_s,
        }

    @cached_property
    def _adapter(self) -> HttpxAdapter:
        answerer = self._proxy or InProcess(self._engine, self._on_send, self._timeout_s)
        return HttpxAdapter(httpx_of_the_sdk(), answerer)

    @cached_property
    def _proxy(self) -> Proxy | None:
        if not isinstance(self._engine, ServedEngine):
            return None
        return Proxy(self._engine.target, self._on_send, self._completed, self._timeout_s)

    def _completed(self, found: Exchange) -> Exchange:
        """The engine's last word on an answer of its server."""
        assert isinstance(self._engine, ServedEngine)
        return self._loop.run(self._engine.completed(found))

    def _on_send(self, request: Request, label: str | None, so_far: Callable[[], Exchange]) -> SentCall:
        return self._recorder.send(request, "sdk", label, so_far)


def httpx_of_the_sdk() -> Any:
    """The module that the installed SDK sends its requests with: httpx2, of older ones httpx."""
    return import_module(openai.DefaultHttpxClient.__base__.__module__.partition(".")[0])
