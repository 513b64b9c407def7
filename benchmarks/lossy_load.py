"""A load on a real vLLM server where all goes wrong, and whether every request is accounted for once.

    python benchmarks/lossy_load.py --requests 2000

SmolLM2-135M-Instruct behind a proxy that hurts 1 % of the requests: every other one of them is
answered with HTTP 500, the others are cut by a reset in the middle of their stream. After a quarter
of the load the server is paused for 5 s, at its half one of the load's own processes is killed with
SIGKILL. Each request has its number in its prompt, so what the proxy did can be held against what
`load` reports. Exit code 1 if the account does not balance.

It makes the environments of `make test-engines` where they are not there yet. Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import socket
import struct
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from tabulate import tabulate
from vllm_here import ROOT, VLLM, loaded

from pytest_llmspeed import EngineSpec, LoadResult, Request, Workload
from pytest_llmspeed.engines.servers._openai import OpenAIEngine
from pytest_llmspeed.engines.servers._server import VLLMServer
from pytest_llmspeed.load import worker_pool
from pytest_llmspeed.load.run import Arrivals, ask_load, run_load
from pytest_llmspeed.load.send_loop import LoadRequest
from pytest_llmspeed.load.worker_pool import Outcome, run_in_workers
from pytest_llmspeed.metrics.reasons import Reason
from pytest_llmspeed.metrics.sample import sample_of
from pytest_llmspeed.recording.recorder import Recorder
from pytest_llmspeed.system.event_loop import LoopThread
from pytest_llmspeed.transport.recorded_response import RecordedResponse
from pytest_llmspeed.transport.target import Target

processes = loaded(ROOT / "tests" / "engine_contract" / "processes.py")

SLOTS = 32
PROCESSES = 4
TOKENS = 8
TIMEOUT_S = 120.0
PAUSE_S = 5.0
HURT_EVERY = 101
"""One request of so many is hurt: no multiple of the processes, so that each has some of them."""
CUT_AFTER = 3
"""So many chunks of an answer come before its connection is reset."""
PROMPT = "Request number {}. Count from one to ten."
REFUSAL = b'{"error": {"message": "refused by the proxy"}}'
ANSWERED, REFUSED, CUT, LOST = "answered", "HTTP 500", "reset", "lost with its process"
ERRORS = {"HTTP 500: refused by the proxy": REFUSED, "the connection broke": CUT, "its worker process": LOST}
"""How the error of a request begins → what became of it."""


@dataclass
class Proxy:
    """Between the load and the server. `seen` is what it did with each numbered request, in order.

    The first `warmup` requests pass unhurt and unseen. `at` has what to do as the so-manieth comes.
    """

    server: Target
    warmup: int
    at: Mapping[int, Callable[[], object]]
    seen: list[tuple[int, str]] = field(default_factory=list)
    posts: int = 0

    async def start(self) -> str:
        """Listen; return the URL."""
        listening = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of the load, over one of its own to the server, until either ends."""
        above = await asyncio.open_connection(self.server.base.host, self.server.base.port)
        try:
            while await self._pass(reader, writer, *above):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the load has closed it, or its process was killed
        finally:
            for each in (writer, above[1]):
                each.close()

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        answers: asyncio.StreamReader,
        server: asyncio.StreamWriter,
    ) -> bool:
        """Pass one request and its answer on; False once the connection is of no more use."""
        head, body = await message(reader)
        number, what = self._fate(body)
        if number is not None:
            self.seen.append((number, what))
        if what == REFUSED:
            writer.write(b"HTTP/1.1 500 Hurt\r\ncontent-type: application/json\r\n")
            writer.write(b"content-length: %d\r\n\r\n%s" % (len(REFUSAL), REFUSAL))
            return True
        server.write(self._authorised(head) + body)
        await pass_on(answers, writer, whole=what == ANSWERED)
        if what == CUT:
            reset(writer)
        return what == ANSWERED

    def _fate(self, body: bytes) -> tuple[int | None, str]:
        """The number of a measured request, and what shall become of it."""
        found = re.search(PROMPT.replace("{}", r"(\d+)").encode(), body)
        if not found:
            return None, ANSWERED
        self.posts += 1
        place = self.posts - self.warmup
        if place <= 0:
            return None, ANSWERED
        self.at.get(place, lambda: None)()
        number = int(found[1])
        if number % HURT_EVERY != HURT_EVERY // 2:
            return number, ANSWERED
        return number, REFUSED if number // HURT_EVERY % 2 else CUT

    def _authorised(self, head: bytes) -> bytes:
        first, _, others = head.partition(b"\r\n")
        return b"%s\r\nauthorization: %s\r\n%s" % (
            first,
            self.server.headers["authorization"].encode(),
            others,
        )


async def message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The head and the body of a message that says its length, or has no body."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
    return head, await reader.readexactly(int(length[1])) if length else b""


async def pass_on(answers: asyncio.StreamReader, writer: asyncio.StreamWriter, *, whole: bool) -> None:
    """Pass on an answer as it comes, or only its head and its first chunks, none that ends it."""
    head, body = await message(answers)
    writer.write(head + body)
    size, passed = -1 if b"chunked" in head.lower() else 0, 0
    while size != 0:
        line = await answers.readuntil(b"\r\n")
        size = int(line, 16)
        chunk = line + await answers.readexactly(size + 2)
        if not whole and (passed == CUT_AFTER or b'"finish_reason":"' in chunk):
            return
        writer.write(chunk)
        await writer.drain()
        passed += 1


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with a reset."""
    inner = writer.get_extra_info("socket")
    inner.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def pause(server: VLLMServer) -> None:
    """Stop all processes of a server for a while."""
    assert server.root_process is not None
    pids = [*processes.descendants(server.root_process)]
    signal_all(pids, signal.SIGSTOP)
    asyncio.get_running_loop().call_later(PAUSE_S, signal_all, pids, signal.SIGCONT)


def signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        os.kill(pid, number)


def kill_one_of_ours() -> None:
    """Kill one of the processes of the load."""
    found = processes.descendants(os.getpid()).items()
    os.kill(next(pid for pid, line in found if "load.worker" in line), signal.SIGKILL)


@dataclass(frozen=True)
class Reported:
    """What `load` told: its result, and the numbers of its requests with what became of each."""

    result: LoadResult
    fates: list[tuple[int, str]]


def reported(url: str, requests: int, loop: LoopThread) -> Reported:
    engine = OpenAIEngine.start(EngineSpec.of("openai", None, None, {"url": url}))
    load = ask_load(
        Workload.prompts(PROMPT.format(number) for number in range(requests)),
        Request("", output_tokens=TOKENS, timeout_s=TIMEOUT_S),
        Arrivals(concurrency=SLOTS),
        requests=requests,
        duration_s=None,
        least_requests=1,
        warmup=SLOTS,
        slo=None,
        label=None,
    )
    outcomes: list[Outcome] = []

    def kept(*asked: Any) -> Outcome:
        outcomes.append(run_in_workers(*asked))
        return outcomes[0]

    with patch.object(worker_pool, "run_in_workers", kept):  # it numbers its requests
        result = run_load(load, engine, loop, Recorder(), None, processes=PROCESSES)
    return Reported(result, [(sent.place, fate_of(sent)) for sent in outcomes[0].sent])


def fate_of(sent: LoadRequest) -> str:
    """What became of a request, as the load tells it."""
    if not isinstance(sent.answer, RecordedResponse) or sent.request is None:
        return fate_named(sent.error)
    return fate_named(sample_of(sent.answer.exchange(sent.request)).error)


def fate_named(error: str | None) -> str:
    """The fate that an error stands for; an unknown one is its own."""
    if error is None:
        return ANSWERED
    return next((fate for begin, fate in ERRORS.items() if error.startswith(begin)), error)


def faults(told: Reported, proxy: Proxy, requests: int) -> list[str]:
    """Why the account does not balance; nothing if it does."""
    numbers = Counter(number for number, _ in told.fates)
    sent = Counter(number for number, _ in proxy.seen)
    done, fates = dict(proxy.seen), dict(told.fates)
    failures = Counter(fate_named(sample.error) for sample in told.result.failures)
    expected = Counter(fate for fate in fates.values() if fate != ANSWERED)
    lost = {number % PROCESSES for number, fate in told.fates if fate == LOST}
    wrong = [n for n, fate in fates.items() if fate not in (LOST, done.get(n))]
    checks = {
        f"not each of {requests} is told once": numbers == Counter(range(requests)),
        "some were sent twice": not [number for number, times in sent.items() if times > 1],
        f"told otherwise than done: {[(n, done.get(n), fates[n]) for n in wrong[:5]]}": not wrong,
        f"lost beyond one process: {sorted(lost)}": len(lost) == 1,
        f"{len(told.result.samples)} samples": len(told.result.samples) == requests,
        f"the result counts {failures}, its requests {expected}": failures == expected,
        "no answer took as long as the pause": max(told.result.values("e2e_ms")) >= PAUSE_S * 1000,
        "the loss is not said": any(found.reason is Reason.WORKER_LOST for found in told.result.invalid),
    }
    return [fault for fault, holds in checks.items() if not holds]


def account(told: Reported, proxy: Proxy) -> str:
    """What the proxy did, against what was told of it."""
    done, fates = dict(proxy.seen), dict(told.fates)
    pairs = Counter((done.get(number, "never sent"), fate) for number, fate in fates.items())
    rows = [[*pair, count] for pair, count in sorted(pairs.items())]
    shown = tabulate([*rows, ["", "in all", len(told.fates)]], ("at the proxy", "told by load", "requests"))
    return "\n".join([str(told.result), "", shown])


def main() -> int:
    """Run the load, show the account; return 1 if it does not balance."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=2000)
    requests: int = parser.parse_args().requests
    asked = VLLM.here().server
    spec = EngineSpec.of("vllm-server", asked.pop("model"), asked.pop("precision"), asked)
    server, loop = VLLMServer.start(spec), LoopThread()
    try:
        at = {requests // 4: lambda: pause(server), requests // 2: kill_one_of_ours}
        proxy = Proxy(server.target, SLOTS, at)
        told = reported(loop.run(proxy.start()), requests, loop)
    finally:
        loop.run(server.close())
        loop.close()
    print(account(told, proxy))
    found = faults(told, proxy, requests)
    print("\n".join(f"does not balance: {fault}" for fault in found) or "it balances")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
