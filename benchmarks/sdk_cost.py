"""What `llm_client.async_openai` measures and what it costs its caller, beside the plain SDK.

A server whose own times are known answers (`--url`, with its path): it streams chat completions, tells
at `GET /stats` the mean of its own times to the first chunk (`{"ttft_ms": {"mean": …}}`), and forgets
them at `POST /reset`. `--concurrency` streams start together, again and again, in pairs whose order
flips (AB BA AB …):

plain   `openai.AsyncOpenAI` as it comes, without retries
ours    `LLMClient.async_openai`, recorded

Told are, as medians of the pairs: how far our record's mean TTFT is from the server's own; how far the
caller's is, with each client; the processor time and the wall time that the caller spent with ours against
plain (our record keeps bytes and stamps meanwhile; what they say is read when somebody looks). Exits with
0 if both targets are met, 1 if the median of one misses it, 2 if the medians keep them and the interval of
the cost does not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean, median
from urllib.parse import urlsplit

import openai
from pairs import EXIT, add_pairs, alternated, interval, verdict

from pytest_llmspeed.client import LLMClient
from pytest_llmspeed.engines.base import EngineSpec
from pytest_llmspeed.engines.servers._openai import OpenAIEngine
from pytest_llmspeed.recording.recorder import Recorder
from pytest_llmspeed.system.event_loop import LoopThread

TARGET_ERROR_MS = 5.0
TARGET_COST = 0.10
PAIRS = 12
MESSAGES = [{"role": "user", "content": "Explain KV caching in one sentence."}]


@dataclass(frozen=True, slots=True)
class Seen:
    """One round: mean TTFTs in ms (of the server, the caller, our record), and what it took in seconds."""

    true_ms: float
    caller_ms: float
    recorded_ms: float | None
    cpu_s: float
    wall_s: float


async def stream(client: openai.AsyncOpenAI, model: str) -> float:
    """Read one stream to its end; return the ms until the caller held its first content."""
    started_s, first_s = time.perf_counter(), None
    async for chunk in await client.chat.completions.create(model=model, messages=MESSAGES, stream=True):
        if first_s is None and chunk.choices and chunk.choices[0].delta.content:
            first_s = time.perf_counter()
    return (first_s - started_s) * 1000 if first_s else float("nan")


async def together(client: openai.AsyncOpenAI, model: str, concurrency: int) -> list[float]:
    """Start so many streams at once."""
    return await asyncio.gather(*(stream(client, model) for _ in range(concurrency)))


class Server:
    """The server of known times."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._root = f"{parts.scheme}://{parts.netloc}"

    def reset(self) -> None:
        """Have it forget its figures."""
        urllib.request.urlopen(urllib.request.Request(f"{self._root}/reset", method="POST")).read()

    def true_ttft_ms(self, requests: int) -> float:
        """The mean of its own times; raises `SystemExit` if it did not answer that many requests."""
        stats = json.load(urllib.request.urlopen(f"{self._root}/stats"))
        if stats["count"] != requests:
            raise SystemExit(f"the server counts {stats['count']} requests, not {requests}")
        return float(stats["ttft_ms"]["mean"])


def measured(
    runner: asyncio.Runner,
    client: openai.AsyncOpenAI,
    given: argparse.Namespace,
    server: Server,
    recorder: Recorder | None,
) -> Seen:
    """One round with one client."""
    server.reset()
    before = recorder.count if recorder else 0
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    callers_ms = runner.run(together(client, given.model, given.concurrency))
    cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
    recorded = recorder.since(before).values("ttft_ms") if recorder else []
    return Seen(
        true_ms=server.true_ttft_ms(given.concurrency),
        caller_ms=fmean(callers_ms),
        recorded_ms=fmean(recorded) if recorded else None,
        cpu_s=cpu_s,
        wall_s=wall_s,
    )


@contextmanager
def clients(url: str) -> Iterator[tuple[openai.AsyncOpenAI, openai.AsyncOpenAI, Recorder]]:
    """The plain client, ours, and the recorder of ours."""
    loop, recorder = LoopThread(), Recorder()
    engine = OpenAIEngine.start(EngineSpec.of("openai", "any", None, {"url": url}))
    client = LLMClient(engine, loop, recorder)
    try:
        yield openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0), client.async_openai, recorder
    finally:
        client.close()
        loop.run(engine.close())
        loop.close()


def pairs_of(given: argparse.Namespace) -> list[tuple[Seen, Seen]]:
    """Return (plain, ours) of each pair, the order flipped from pair to pair; one pair warms up."""
    server = Server(given.url)
    with clients(given.url) as (plain, ours, recorder), asyncio.Runner() as runner:
        found = alternated(
            lambda: measured(runner, plain, given, server, None),
            lambda: measured(runner, ours, given, server, recorder),
            given.pairs + 1,
        )
        runner.run(plain.close())
    return found[1:]


def line(title: str, values: Sequence[float], unit: str, scale: float = 1.0) -> float:
    """Print the median of some values with its interval; return the median."""
    scaled = [value * scale for value in values]
    low, high = interval(scaled)
    print(f"  {title:42} {median(scaled):+9.2f} {unit:4} 95 % interval {low:+.2f} to {high:+.2f}")
    return median(values)


def report(pairs: Sequence[tuple[Seen, Seen]]) -> str:
    """Print the figures; return the verdict."""
    ours = [each for _, each in pairs if each.recorded_ms is not None]
    errors_ms = [o.recorded_ms - o.true_ms for o in ours if o.recorded_ms is not None]
    error_ms = line("TTFT of our record − the server's", errors_ms, "ms")
    line("TTFT of the caller of ours − the server's", [o.caller_ms - o.true_ms for o in ours], "ms")
    line("TTFT of the caller of plain − the server's", [p.caller_ms - p.true_ms for p, _ in pairs], "ms")
    more = [o.cpu_s / p.cpu_s - 1 for p, o in pairs]
    cost = line("processor time, ours against plain", more, "%", 100)
    line("wall time, ours against plain", [o.wall_s / p.wall_s - 1 for p, o in pairs], "%", 100)
    is_off = abs(error_ms) > TARGET_ERROR_MS
    word = "missed" if is_off else verdict(cost, interval(more)[1], TARGET_COST)
    print(f"  targets: within {TARGET_ERROR_MS:g} ms, at most {TARGET_COST:.0%} more processor time: {word}")
    return word


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--url", required=True, help="of the server, as in http://127.0.0.1:8100/v1")
    parser.add_argument("--model", default="any", help="the model to name (default: any)")
    parser.add_argument("--concurrency", type=int, default=64, help="default: 64")
    add_pairs(parser, PAIRS)
    return parser.parse_args()


def main() -> int:
    given = arguments()
    pairs = pairs_of(given)
    print(f"{given.concurrency} streams at once, {given.pairs} pairs, openai {openai.__version__}")
    return EXIT[report(pairs)]


if __name__ == "__main__":
    sys.exit(main())
