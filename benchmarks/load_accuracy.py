"""What a load reports against what a server knows to be true, and what measuring costs.

    python benchmarks/load_accuracy.py --server 'truthd --port {port} --log {log} --tokens 64'

The server answers OpenAI's chat completions at {port} and writes to {log}, by its end, one line a
request: a number, then when it was received, sent its first token and its last (nanoseconds of the
monotonic clock), and its tokens; its `GET /stats` gives the p99 of `itl_ms`. Each run has a fresh
server and process; medians are shown, with the targets. Client and server share the cores of the
machine, so run it on a quiet one. `--first-request`: from a pytest command to its first request.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from socket import create_connection, create_server
from statistics import fmean, median

from tabulate import tabulate

from pytest_llmspeed import EngineSpec, LoadResult, Request, Workload
from pytest_llmspeed.engines.servers._openai import OpenAIEngine
from pytest_llmspeed.load.run import Arrivals, ask_load, run_load
from pytest_llmspeed.metrics.summary import quantile
from pytest_llmspeed.recording.recorder import Recorder
from pytest_llmspeed.system.event_loop import LoopThread

TARGETS_MS = {1: "0.5; 1", 16: "0.5; 1", 64: "0.5; 1", 256: "0.7; 2", 1024: "2.5; 8"}
"""Concurrency → targets for the errors of the mean and of the p99 TTFT. Client CPU from 64 on: 0.03 s."""
HEADERS = (
    "streams",
    "TTFT mean, ms",
    "p99, ms",
    "target",
    "TPOT, %",
    "ITL p99, %",
    "CPU s/1000 tokens",
    "worker's core",
    "at once",
    "piled up, %",
    "valid runs",
)
TEST = "def test_one(llm_client):\n    llm_client.generate('hello', max_tokens=4, warmup=False)\n"


@dataclass(frozen=True)
class Errors:
    """What one run reported less what was true.

    `cpu_s` is the processor time of the client, with all its processes and their start, for each 1,000
    tokens that came, those of the warm-up among them.
    """

    ttft_mean_ms: float
    ttft_p99_ms: float
    tpot_percent: float
    itl_p99_percent: float
    cpu_s: float
    core: float
    at_once: int
    piled_up_percent: float
    valid: bool


class Server:
    """A server that knows its times: started, asked, and ended before its log is read."""

    def __init__(self, command: str, folder: Path) -> None:
        with create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self.url, self._log = f"http://127.0.0.1:{port}", folder / "log"
        line = command.format(port=port, log=self._log)
        self._process = subprocess.Popen(shlex.split(line), stderr=subprocess.DEVNULL)
        until_s = time.monotonic() + 10
        while time.monotonic() < until_s:
            with suppress(OSError), create_connection(("127.0.0.1", port)):
                return
            time.sleep(0.02)
        raise SystemExit(f"no server came up: {line}")

    def itl_p99_ms(self) -> float:
        """The p99 gap between tokens that it has seen so far."""
        with urllib.request.urlopen(f"{self.url}/stats") as shown:
            return float(json.load(shown)["itl_ms"]["p99"])

    def rows(self) -> list[tuple[int, ...]]:
        """End it; return received, first and last in ns, and tokens, of each request in order."""
        self._process.terminate()
        self._process.wait()
        lines = self._log.read_text().splitlines()
        return sorted(tuple(map(int, line.split()[1:])) for line in lines)


def one_run(command: str, slots: int, requests: int) -> Errors:
    with tempfile.TemporaryDirectory() as folder:
        server = Server(command, Path(folder))
        before = os.times()
        found = measured(f"{server.url}/v1", slots, requests)
        after = os.times()
        itl_p99_ms = server.itl_p99_ms()
        rows = server.rows()
        cpu_s = (sum(after[:4]) - sum(before[:4])) / sum(row[3] for row in rows) * 1000
        return errors(found, rows[-requests:], itl_p99_ms, cpu_s)


def measured(url: str, slots: int, requests: int) -> LoadResult:
    engine = OpenAIEngine.start(EngineSpec.of("openai", None, None, {"url": url}))
    loop = LoopThread()
    load = ask_load(
        Workload.synthetic(input_tokens=100, output_tokens=64),
        Request("", timeout_s=60),
        Arrivals(concurrency=slots),
        requests=max(requests, 10 * slots),
        duration_s=None,
        least_requests=1,
        warmup=None,
        slo=None,
        label=None,
    )
    try:
        return run_load(load, engine, loop, Recorder(), None)
    finally:
        loop.close()


def errors(load: LoadResult, rows: list[tuple[int, ...]], itl_p99_ms: float, cpu_s: float) -> Errors:
    ttft_ms = [(first - received) / 1e6 for received, first, _, _ in rows]
    tpot_ms = [(last - first) / 1e6 / (tokens - 1) for _, first, last, tokens in rows]
    ours_ms = load.values("ttft_ms")
    return Errors(
        ttft_mean_ms=fmean(ours_ms) - fmean(ttft_ms),
        ttft_p99_ms=quantile(ours_ms, 0.99) - quantile(ttft_ms, 0.99) if len(rows) >= 100 else float("nan"),
        tpot_percent=(fmean(load.values("tpot_ms")) / fmean(tpot_ms) - 1) * 100,
        itl_p99_percent=(quantile(load.values("itl_ms"), 0.99) / itl_p99_ms - 1) * 100,
        cpu_s=cpu_s,
        core=load.client.cpu_share or 0.0,
        at_once=load.peak_concurrency,
        piled_up_percent=load.client.piled_up * 100,
        valid=not load.invalid,
    )


def medians(runs: list[Errors]) -> list[float]:
    return [median(column) for column in zip(*map(astuple, runs), strict=True)][:-1]


def table(command: str, levels: list[int], runs: int, requests: Callable[[int], int]) -> None:
    rows = []
    for slots in levels:
        found = [in_a_process(command, slots, requests(slots)) for _ in range(runs)]
        mean, p99, *rest = medians(found)
        shown = [f"{value:.3g}" for value in (mean, p99)]
        others = [f"{value:.3g}" for value in rest]
        valid = f"{sum(each.valid for each in found)} of {runs}"
        rows.append([slots, *shown, TARGETS_MS.get(slots, "–"), *others, valid])
    print(tabulate(rows, HEADERS, tablefmt="simple", disable_numparse=True))
    print(f"medians of {runs}; load average of this machine {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")


def in_a_process(command: str, slots: int, requests: int) -> Errors:
    shown = subprocess.run(
        [sys.executable, __file__, "--server", command, "--one", str(slots), str(requests)],
        capture_output=True,
        text=True,
        check=True,
    )
    return Errors(**json.loads(shown.stdout))


def first_request_s(command: str) -> float:
    """Seconds from the start of a pytest command to the arrival of its first request."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_one.py").write_text(TEST)
        server = Server(command, folder)
        options = [
            "--llmspeed-backend=openai",
            f"--llmspeed-url={server.url}/v1",
            "-q",
            "-p",
            "no:cacheprovider",
        ]
        started_s = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "pytest", *options], cwd=folder, check=True, capture_output=True
        )
        return server.rows()[0][0] / 1e9 - started_s


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", required=True, help="a command, with {port} and {log}")
    parser.add_argument("--concurrency", type=int, nargs="+", default=list(TARGETS_MS))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--first-request", action="store_true")
    parser.add_argument("--one", type=int, nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(one_run(given.server, *given.one).__dict__))
    elif given.first_request:
        seconds = median(first_request_s(given.server) for _ in range(given.runs))
        print(f"from the command to the first request: {seconds:.2f} s (target 1.0), median of {given.runs}")
    else:
        table(given.server, given.concurrency, given.runs, lambda slots: 10 * slots)


if __name__ == "__main__":
    main()
