"""The transport of SDK clients: to them it is a network, beneath it an `Answerer` answers.

A reply is read to its end, and stamped, whatever its caller does meanwhile: a caller that is slow, or
that has stopped reading, does not make the engine look slow. Works with httpx and with httpx2, whichever
the installed SDK rests on; the module is handed over as `httpx`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from pytest_llmspeed.errors import hides_our_frames
from pytest_llmspeed.sdk.call import Answerer, Call, Head
from pytest_llmspeed.sdk.encode import error_body
from pytest_llmspeed.sdk.labels import take_label
from pytest_llmspeed.sdk.proxy import Proxy
from pytest_llmspeed.system.event_loop import LoopThread, Work
from pytest_llmspeed.text.secret import Secret, Unshown
from pytest_llmspeed.transport.parser import TransportError

__tracebackhide__ = hides_our_frames

AZURE = "/openai/"
"""The path an `AzureOpenAI` client sends its calls to, whatever its server's own path."""
MOST_UNREAD = 8 * 2**20
CLOSE_S = 5.0
"""How long closing a client waits for the calls that it cancels."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of a reply, by an error or without one."""

    error: BaseException | None = None

    @classmethod
    def of(cls, task: asyncio.Task[None]) -> End:
        """Return how a finished task ended."""
        return cls(None if task.cancelled() else task.exception())


Item = Head | bytes | End
Cancel = Callable[[], None]
Loop = asyncio.AbstractEventLoop


class Mailbox:
    """Delivers a reply to its caller, and knows how much of it the caller has not taken yet.

    One thread puts, another may take: each has a count of its own.
    """

    def __init__(self, deliver: Callable[[Item], None]) -> None:
        self._deliver = deliver
        self._put_size = self._taken_size = 0

    def __call__(self, item: Head | bytes) -> None:
        """Deliver an item."""
        if isinstance(item, bytes):
            self._put_size += len(item)
        self._deliver(item)

    def taken(self, item: Item) -> Item:
        """Note that the caller has taken an item; return it."""
        if isinstance(item, bytes):
            self._taken_size += len(item)
        return item

    @property
    def is_full(self) -> bool:
        """True while more lies unread than any honest answer is ahead of a slow caller."""
        return self._put_size - self._taken_size > MOST_UNREAD


class HttpxAdapter:
    """What both transports need of httpx: its classes, and the way from its requests and to its errors."""

    def __init__(self, httpx: Any, answerer: Answerer) -> None:
        self.httpx, self.answerer = httpx, answerer
        self._base = httpx.URL(answerer.base_url)

    def call(self, request: Any, body: bytes) -> Call | None:
        """The call that a request is, None where it is addressed to somebody else.

        Runs where the caller does, whose `with llm_client.label(…)` counts. Raises ValueError for a label
        that is not one.
        """
        url, base = request.url, self._base
        path, prefix = url.raw_path.decode("ascii"), base.raw_path.decode("ascii").rstrip("/")
        same_host = (url.scheme, url.host, url.port) == (base.scheme, base.host, base.port)
        if not same_host or not path.startswith((f"{prefix}/", AZURE)):
            return None
        timeout_s = request.extensions.get("timeout", {}).get("read")
        headers = {name.lower(): value for name, value in request.headers.items()}
        label, headers, body = take_label(headers, body)
        hidden = {name: Secret(value) for name, value in headers.items()}
        return Call(request.method, path, hidden, Unshown(body), timeout_s, label)

    def call_or_refusal(self, request: Any, body: bytes) -> tuple[Call | None, Any]:
        """The call that a request is, or the response that refuses it."""
        try:
            call = self.call(request, body)
        except ValueError as error:
            return None, self.httpx.Response(400, json=error_body(str(error)))
        return call, None if call else self.misaddressed(request)

    def misaddressed(self, request: Any) -> Any:
        """The response to a request for somebody else."""
        message = (
            f"{request.url} is not the backend of this test: give your client "
            f"base_url={self.answerer.base_url!r} (that of llm_client.openai)"
        )
        return self.httpx.Response(404, json=error_body(message))

    def response(self, head: Head, stream: Any) -> Any:
        """The response that the caller sees."""
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in head.headers]
        return self.httpx.Response(head.status, headers=headers, stream=stream)

    def raised(self, error: BaseException, *, connected: bool) -> BaseException:
        """An error as httpx would raise it."""
        if isinstance(error, TimeoutError):
            return self.httpx.ReadTimeout(str(error) or "nothing arrived in time")  # type: ignore[no-any-return]
        if isinstance(error, TransportError):
            kind = self.httpx.ReadError if connected else self.httpx.ConnectError
            return kind(str(error))  # type: ignore[no-any-return]
        return error

    def head(self, item: Item) -> Head:
        """The first item of a reply, its head; raises where there is none."""
        if isinstance(item, Head):
            return item
        error = item.error if isinstance(item, End) else None
        raise self.raised(error or TransportError("the call was cancelled"), connected=False)


class Transport:
    """What the transport for blocking callers and that for coroutines share: the calls under way."""

    def __init__(self, adapter: HttpxAdapter, loop: LoopThread) -> None:
        self._adapter, self._loop = adapter, loop
        self._under_way: dict[Work, Callable[[], None]] = {}

    def _start(
        self,
        loop: Loop | None,
        work: Coroutine[Any, Any, None],
        put: Callable[[Item], None],
        let_go: Callable[[], None] = lambda: None,
    ) -> Work:
        """Run `work` in a loop, by default the private one; its end is put behind all else.

        `let_go` frees what `work` holds: a task that is cancelled before its first step never runs the
        `finally` of its coroutine, and one whose loop was closed never ends.
        """

        def ended(task: asyncio.Task[None]) -> None:
            self._under_way.pop(begun, None)
            let_go()
            put(End.of(task))

        begun = Work(loop or self._loop.loop, work, ended)
        self._under_way[begun] = let_go
        begun.begin()
        return begun

    def _cancel_all(self) -> None:
        for work, let_go in list(self._under_way.items()):
            work.cancel()
            if work.end_if_stranded():
                let_go()


class BlockingTransport(Transport):
    """For `httpx.Client`. All is read on the private loop; the caller's thread waits."""

    def __init__(self, adapter: HttpxAdapter, loop: LoopThread) -> None:
        super().__init__(adapter, loop)
        self._stream: Any = type("Stream", (BlockingStream, adapter.httpx.SyncByteStream), {})

    def handle_request(self, request: Any) -> Any:
        """Answer one request of httpx."""
        call, refusal = self._adapter.call_or_refusal(request, request.read())
        if call is None:
            return refusal
        items: SimpleQueue[Item] = SimpleQueue()
        mailbox = Mailbox(items.put)
        work = self._start(None, self._adapter.answerer.serve(call, mailbox), items.put)
        try:
            head = self._adapter.head(items.get())
        except BaseException:
            work.cancel()
            raise
        stream = self._stream(self._adapter, lambda: mailbox.taken(items.get()), work.cancel)
        return self._adapter.response(head, stream)

    def close(self) -> None:
        """Cancel what is under way and wait for its end."""
        under_way = list(self._under_way)
        self._cancel_all()
        for work in under_way:
            work.wait(CLOSE_S)


class AsyncTransport(Transport):
    """For `httpx.AsyncClient`.

    A server is reached from the caller's own loop where that can be, over connections of that loop;
    anything else answers on the private one.
    """

    def __init__(self, adapter: HttpxAdapter, loop: LoopThread) -> None:
        super().__init__(adapter, loop)
        self._stream: Any = type("Stream", (AsyncStream, adapter.httpx.AsyncByteStream), {})

    async def handle_async_request(self, request: Any) -> Any:
        """Answer one request of httpx."""
        call, refusal = self._adapter.call_or_refusal(request, await request.aread())
        if call is None:
            return refusal
        items: asyncio.Queue[Item] = asyncio.Queue()
        answerer = self._adapter.answerer
        if isinstance(answerer, Proxy) and answerer.lives_anywhere:
            head, cancel, mailbox = await self._begin_here(answerer, call, items)
        else:
            head, cancel, mailbox = await self._begin_there(answerer, call, items)

        async def take() -> Item:
            return mailbox.taken(await items.get())

        return self._adapter.response(head, self._stream(self._adapter, take, cancel))

    async def _begin_here(
        self, proxy: Proxy, call: Call, items: asyncio.Queue[Item]
    ) -> tuple[Head, Cancel, Mailbox]:
        try:
            reply = await proxy.open(call)
        except (TransportError, TimeoutError) as error:
            raise self._adapter.raised(error, connected=False) from None
        mailbox = Mailbox(items.put_nowait)
        work = self._start(
            asyncio.get_running_loop(),
            reply.pump(mailbox),
            items.put_nowait,
            let_go=lambda: reply.drop(asyncio.CancelledError()),
        )
        return reply.head, work.cancel, mailbox

    async def _begin_there(
        self, answerer: Answerer, call: Call, items: asyncio.Queue[Item]
    ) -> tuple[Head, Cancel, Mailbox]:
        loop = asyncio.get_running_loop()

        def put(item: Item) -> None:
            with suppress(RuntimeError):  # the caller's loop is closed: nobody waits any more
                loop.call_soon_threadsafe(items.put_nowait, item)

        mailbox = Mailbox(put)
        work = self._start(None, answerer.serve(call, mailbox), put)
        try:
            return self._adapter.head(await items.get()), work.cancel, mailbox
        except BaseException:
            work.cancel()
            raise

    async def aclose(self) -> None:
        """Cancel what is under way."""
        self._cancel_all()


class _Stream:
    """The body of a reply, as httpx reads it (mixed with its own class of streams: it accepts no other)."""

    def __init__(self, adapter: HttpxAdapter, take: Callable[[], Any], cancel: Cancel) -> None:
        self._adapter, self._take, self._cancel = adapter, take, cancel
        self._ended = False

    def _end(self, item: Item) -> None:
        self._ended = True
        if isinstance(item, End) and item.error:
            raise self._adapter.raised(item.error, connected=True)


class BlockingStream(_Stream):
    """For a blocking caller."""

    def __iter__(self) -> Iterator[bytes]:
        while isinstance(item := self._take(), bytes):
            yield item
        self._end(item)

    def close(self) -> None:
        """Cancel the call if its end was not seen; return once it has ended and is recorded."""
        if not self._ended:
            self._ended = True
            self._cancel()
            while isinstance(self._take(), bytes):
                pass


class AsyncStream(_Stream):
    """For a coroutine."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while isinstance(item := await self._take(), bytes):
            yield item
        self._end(item)

    async def aclose(self) -> None:
        """Cancel the call if its end was not seen; return once it has ended and is recorded."""
        if not self._ended:
            self._ended = True
            self._cancel()
            while isinstance(await self._take(), bytes):
                pass
