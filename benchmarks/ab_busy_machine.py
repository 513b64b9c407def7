"""`llmspeed ab` beside two busy programs that come and go, by the real clock: SmolLM2 on llama.cpp.

    python=$(python .ci/engines.py --build-only llama-cpp)
    PYTHONPATH=.:tests $python benchmarks/ab_busy_machine.py --same 20 --slower 20

Compares the engine with itself, and with itself when each token takes 15% longer. Prints a line an
experiment. Targets: of 20 comparisons with itself at most one has another verdict than passed or
inconclusive, and 18 of 20 with the slower one are slower. Exits with 1 if one is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helpers.smollm2_files import smollm2_gguf

STRETCH = "AB_STRETCH"
CONFTEST = f"""\
import os
import time

from pytest_llmspeed.engines.local._llama_cpp import LlamaCppEngine


class StretchedEngine(LlamaCppEngine):
    @classmethod
    def start(cls, spec):
        engine = super().start(spec)
        stretch, llama = float(os.environ.get("{STRETCH}", 0)), engine._model._llama
        evaluate = llama.eval

        def stretched(tokens):
            begun = time.perf_counter()
            evaluate(tokens)
            until = time.perf_counter() + stretch * (time.perf_counter() - begun)
            while time.perf_counter() < until:
                pass

        llama.eval = stretched
        return engine


def pytest_llmspeed_backends():
    return {{"llama-cpp": "conftest:StretchedEngine"}}
"""
TEST = """\
import pytest


@pytest.mark.llm_backend("llama-cpp", n_threads=1)
def test_chat(llm_client):
    llm_client.measure("Explain KV caching in one sentence.", max_tokens=16, rounds=30)
"""
BUSY = """\
import os, random, sys, time
random.seed(int(sys.argv[1]))
parent = os.getppid()
while os.getppid() == parent:
    until = time.monotonic() + random.uniform(1, 10)
    while time.monotonic() < until:
        pass
    time.sleep(random.uniform(1, 10))
"""


@contextmanager
def busy_programs(count: int) -> Iterator[None]:
    """Keep so many programs computing by turns: one to ten seconds busy, as long at rest."""
    command = [sys.executable, "-c", BUSY]
    programs = [subprocess.Popen([*command, str(random.randrange(2**31))]) for _ in range(count)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def compared(folder: Path, stretch: float, form: str) -> dict[str, Any]:
    """Compare the engine with itself, stretched by a share of a token's time; return what `ab` says."""
    command = [sys.executable, "-m", "pytest_llmspeed.cli", "ab", "--json", "--form", form]
    sides = ["--old", f"env.{STRETCH}=0", "--new", f"env.{STRETCH}={stretch}"]
    started_s = time.monotonic()
    done = subprocess.run(
        [*command, *sides, "--", f"--llmspeed-model={smollm2_gguf()}"],
        cwd=folder,
        env={
            **os.environ,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_PLUGINS": "pytest_llmspeed.plugin.hooks",
            "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(done.stdout) if done.stdout else {}
    if "tests" not in found:
        raise SystemExit(done.stderr)
    return {**found, "seconds": time.monotonic() - started_s}


def verdicts(folder: Path, stretch: float, times: int, form: str) -> Counter[str]:
    """Return how often each verdict was given."""
    counts = Counter[str]()
    for number in range(times):
        found = compared(folder, stretch, form)
        comparisons = found["tests"][0]["comparisons"]
        figures = ", ".join(f"{c['metric']} x{c['delta']:.3f} {c['verdict']}" for c in comparisons)
        print(
            f"+{stretch:.0%}, {number + 1} of {times}: {found['verdict']}, {found['blocks']} blocks, "
            f"{found['seconds']:.0f} s ({figures})",
            flush=True,
        )
        counts[found["verdict"]] += 1
    return counts


def main() -> None:
    """Compare with itself, then with the slower one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--same", type=int, default=20)
    parser.add_argument("--slower", type=int, default=20)
    parser.add_argument(
        "--slowdown", type=float, default=0.15, help="share of a token's time (default: 0.15)"
    )
    parser.add_argument("--form", choices=("pairs", "runs"), default="pairs")
    parser.add_argument("--busy", type=int, default=2, help="how many busy programs (default: 2)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made, busy_programs(given.busy):
        folder = Path(made)
        (folder / "conftest.py").write_text(CONFTEST)
        (folder / "test_it.py").write_text(TEST)
        (folder / "pytest.ini").write_text("[pytest]\n")
        same = verdicts(folder, 0.0, given.same, given.form)
        slower = verdicts(folder, given.slowdown, given.slower, given.form)
    print(f"the same: {dict(same)}; slower by {given.slowdown:.0%}: {dict(slower)}")
    wrong = given.same - same["passed"] - same["inconclusive"]
    if wrong > given.same / 20 or slower["slower"] < 0.9 * given.slower:
        raise SystemExit("ab_busy_machine: a target was missed")


if __name__ == "__main__":
    main()
