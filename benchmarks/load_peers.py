"""What other load generators report against a server that knows its times, one at a time.

    python benchmarks/load_peers.py --server '…' --tokenizer FOLDER --tool guidellm=path/of/guidellm …

`--server` is that of load_accuracy.py, whose table for our own load goes beside this one: the same
requests (100 tokens in, 64 out, ten waves), a fresh server and process for each run, medians of five.
Tools: `vllm` (bench serve), `guidellm`, `aiperf`; each needs an environment of its own. The tokenizer
is a folder in the shape of transformers: they count and make their prompts with it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from load_accuracy import TARGETS_MS, Server
from tabulate import tabulate

INPUT_TOKENS, OUTPUT_TOKENS = 100, 64
LIMIT_S = 400
HEADERS = ("tool", "streams", "TTFT mean, ms", "TPOT, %", "CPU s/1000 tokens", "s, ideal = 1")


@dataclass(frozen=True, slots=True)
class Load:
    """What a tool is to do, and where it may write."""

    url: str
    streams: int
    requests: int
    tokenizer: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Reported:
    """What a tool says: mean times in ms."""

    ttft_ms: float
    tpot_ms: float


@dataclass(frozen=True, slots=True)
class Tool:
    """The arguments that a program takes for a load, and how its result is read."""

    arguments: Callable[[Load], list[str]]
    read: Callable[[Path], Reported]


@dataclass(frozen=True, slots=True)
class Errors:
    """What one run reported less what was true, and what it cost."""

    ttft_ms: float
    tpot_percent: float
    cpu_s: float
    longer: float


def _vllm(load: Load) -> list[str]:
    return [
        *("bench", "serve", "--backend", "openai-chat", "--base-url", load.url),
        *("--endpoint", "/v1/chat/completions", "--model", "truth", "--tokenizer", load.tokenizer),
        *("--dataset-name", "random", "--random-input-len", str(INPUT_TOKENS)),
        *("--random-output-len", str(OUTPUT_TOKENS), "--num-prompts", str(load.requests)),
        *("--max-concurrency", str(load.streams), "--disable-tqdm"),
        *("--save-result", "--result-filename", str(load.folder / "found.json")),
    ]


def _vllm_found(folder: Path) -> Reported:
    found = _json(folder / "found.json")
    return Reported(found["mean_ttft_ms"], found["mean_tpot_ms"])


def _guidellm(load: Load) -> list[str]:
    return [
        *("run", "--backend", f"kind=openai_http,target={load.url},model=truth"),
        *("--profile", f"kind=concurrent,streams={load.streams}"),
        *("--constraint", f"kind=max_requests,count={load.requests}"),
        *("--tokenizer", f"kind=hf_auto,model={load.tokenizer}"),
        "--data",
        f"kind=synthetic_text,prompt_tokens={INPUT_TOKENS},output_tokens={OUTPUT_TOKENS}",
        *("--output", f"kind=json,path={load.folder / 'found.json'}", "--disable-console"),
    ]


def _guidellm_found(folder: Path) -> Reported:
    metrics = _json(folder / "found.json")["benchmarks"][0]["metrics"]
    ttft = metrics["time_to_first_token_ms"]["successful"]["mean"]
    return Reported(ttft, metrics["inter_token_latency_ms"]["successful"]["mean"])


def _aiperf(load: Load) -> list[str]:
    return [
        *("profile", "--model", "truth", "--url", load.url, "--endpoint-type", "chat", "--streaming"),
        *("--concurrency", str(load.streams), "--request-count", str(load.requests)),
        *("--tokenizer", load.tokenizer, "--isl", str(INPUT_TOKENS), "--osl", str(OUTPUT_TOKENS)),
        *("--artifact-dir", str(load.folder), "--ui", "none"),
    ]


def _aiperf_found(folder: Path) -> Reported:
    found = _json(next(folder.rglob("profile_export_aiperf.json")))
    return Reported(found["time_to_first_token"]["avg"], found["inter_token_latency"]["avg"])


TOOLS = {
    "vllm": Tool(_vllm, _vllm_found),
    "guidellm": Tool(_guidellm, _guidellm_found),
    "aiperf": Tool(_aiperf, _aiperf_found),
}


def _json(path: Path) -> Any:
    return json.loads(path.read_text())


def one_run(name: str, program: str, given: argparse.Namespace, streams: int) -> Errors:
    """Let a tool load a fresh server; raises `SystemExit` with what it said if it fails."""
    tool = TOOLS[name]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        server = Server(given.server, folder)
        load = Load(server.url, streams, 10 * streams, str(given.tokenizer), folder)
        before_s = _children_cpu_s()
        done = subprocess.run(
            [program, *tool.arguments(load)],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        cpu_s = _children_cpu_s() - before_s
        rows = server.rows()
        if done.returncode:
            raise SystemExit(f"{name} failed ({done.returncode}):\n{done.stdout[-2000:]}")
        cpu_s_per_1000 = cpu_s / sum(row[3] for row in rows) * 1000
        return errors(tool.read(folder), rows[-load.requests :], cpu_s_per_1000, streams)


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def errors(found: Reported, rows: list[tuple[int, ...]], cpu_s: float, streams: int) -> Errors:
    """Hold what a tool reported against the server's own times."""
    ttft_ms = fmean((first - received) / 1e6 for received, first, _, _ in rows)
    tpot_ms = fmean((last - first) / 1e6 / (tokens - 1) for _, first, last, tokens in rows)
    answers_ns = sum(last - received for received, _, last, _ in rows)
    took_ns = max(row[2] for row in rows) - min(row[0] for row in rows)
    return Errors(
        ttft_ms=found.ttft_ms - ttft_ms,
        tpot_percent=(found.tpot_ms / tpot_ms - 1) * 100,
        cpu_s=cpu_s,
        longer=took_ns / (answers_ns / streams),
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", required=True, help="a command, with {port} and {log}")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--tool", action="append", required=True, metavar="NAME=PROGRAM")
    parser.add_argument("--concurrency", type=int, nargs="+", default=list(TARGETS_MS))
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    tools = [named.split("=", 1) for named in given.tool]
    rows = []
    for streams in given.concurrency:
        for name, program in tools:
            started_s = time.monotonic()
            found = [one_run(name, program, given, streams) for _ in range(given.runs)]
            figures = [median(column) for column in zip(*map(astuple, found), strict=True)]
            rows.append([name, streams, *(f"{value:.3g}" for value in figures)])
            print(*rows[-1], f"({time.monotonic() - started_s:.0f} s)", flush=True)
    print(tabulate(rows, HEADERS, disable_numparse=True))
    print(f"medians of {given.runs}; load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
