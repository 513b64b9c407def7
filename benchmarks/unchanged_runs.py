"""How often unchanged code is called slower, by the real clock: whole pytest runs on the `tiny` engine.

Runs a small project a few times with `--llmspeed-update-baseline` into a fresh store, then many times
unchanged, and counts the verdicts. With `--slowdown-ms` a further set of runs sleeps that long before
each token and counts how many are called slower. Each run is a process and a session of its own: the
variables by which CI systems name a job are unset. Counts only; exits with 1 if a run could not be read.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from scipy.stats import binomtest
from tabulate import tabulate

from pytest_llmspeed.system.machine import JOB_IDS

BASELINE_RUNS = 5
RUNS = 20
DELAY = "UNCHANGED_RUNS_DELAY_MS"
UNSET = (*(known.variable for known in JOB_IDS), "PYTEST_ADDOPTS", "PYTEST_PLUGINS", DELAY)
"""Variables of the caller that would join the runs into one session, or change them."""
OPTIONS = ("-q", "-p", "no:cacheprovider", "--llmspeed-store=store")
VERDICTS = ("passed", "inconclusive", "suspect", "slower", "faster")
INI = """\
[pytest]
llmspeed_backend = tiny
"""
CONFTEST = f"""\
import os

import pytest


@pytest.fixture(scope="session")
def llm_backend_options():
    delay_ms = os.environ.get("{DELAY}")
    return {{"token_delay_ms": float(delay_ms)}} if delay_ms else {{}}
"""
TESTS = """\
def test_measure(llm_client):
    llm_client.measure("Explain KV caching in one sentence.", max_tokens=32)


def test_long_prompt(llm_client):
    llm_client.measure("What is a token? " * 40, max_tokens=16)


def test_rounds(llm_client):
    for _ in llm_client.rounds(10):
        llm_client.generate("Name three prime numbers.", max_tokens=24)
"""


@dataclass(frozen=True, slots=True)
class Found:
    """One metric of one test in one run. Times in ms; `sessions` is how many it was compared with."""

    test: str
    metric: str
    verdict: str
    now: float | None
    sessions: int


@dataclass(frozen=True, slots=True)
class Run:
    """One pytest run: how it ended, and what was found in it."""

    exit_code: int
    found: tuple[Found, ...]

    @property
    def slower(self) -> bool:
        """True if anything was called slower."""
        return any(each.verdict == "slower" for each in self.found)


def write_project(folder: Path) -> None:
    """Write the project that is run."""
    for name, text in (("pytest.ini", INI), ("conftest.py", CONFTEST), ("test_speed.py", TESTS)):
        (folder / name).write_text(text, encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Setting:
    """What the environment of a set of runs says: the sleep before each token, and torch's threads."""

    threads: int | None = None
    delay_ms: float | None = None

    @property
    def environ(self) -> dict[str, str]:
        """The environment of a child process."""
        kept = {name: value for name, value in os.environ.items() if name not in UNSET}
        ours = {"OMP_NUM_THREADS": self.threads, DELAY: self.delay_ms}
        return kept | {name: str(value) for name, value in ours.items() if value is not None}


def run(folder: Path, setting: Setting, *arguments: str) -> Run:
    """Run the project once; raises `SystemExit` with the output if pytest wrote no report."""
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *OPTIONS, f"--llmspeed-json={report}", *arguments],
        cwd=folder,
        env=setting.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1) or not report.exists():
        raise SystemExit(f"pytest ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return Run(done.returncode, tuple(read(json.loads(report.read_text(encoding="utf-8")))))


def read(report: dict[str, Any]) -> Iterator[Found]:
    """Yield what a JSON report says of each metric of each test."""
    for test in report["tests"]:
        name = test["nodeid"].partition("::")[2]
        for each in test["comparisons"]:
            yield Found(name, each["metric"], each["verdict"], each["now"], each["sessions"])


def repeated(what: str, count: int, folder: Path, setting: Setting, *arguments: str) -> list[Run]:
    """Return `count` runs of the project, one after the other, a sign of life printed for each."""
    runs = []
    for number in range(1, count + 1):
        runs.append(run(folder, setting, *arguments))
        print(f"{what} {number}/{count}: exit code {runs[-1].exit_code}", file=sys.stderr, flush=True)
    return runs


def table(runs: Sequence[Run]) -> str:
    """Return the verdicts of some runs, a row for each metric of each test."""
    rows: dict[tuple[str, str], list[Found]] = {}
    for each in (each for one in runs for each in one.found):
        rows.setdefault((each.test, each.metric), []).append(each)
    headers = ["test", "metric", *VERDICTS, "other", "median of runs' medians"]
    return str(tabulate([_row(*key, found) for key, found in rows.items()], headers))


def _row(test: str, metric: str, found: Sequence[Found]) -> list[Any]:
    counts = Counter(each.verdict for each in found)
    other = counts.total() - sum(counts[word] for word in VERDICTS)
    now = [each.now for each in found if each.now is not None]
    shown = f"{median(now):.3g} ms" if now else "-"
    return [test, metric, *(counts[word] for word in VERDICTS), other, shown]


def share(what: str, hits: int, count: int) -> str:
    """Return a count as a share with its 95 % Wilson interval."""
    found = binomtest(hits, count).proportion_ci(method="wilson")
    return (
        f"{what}: {hits} of {count} = {hits / count:.1%} (95 % interval {found.low:.1%} to {found.high:.1%})"
    )


def show(title: str, runs: Sequence[Run]) -> None:
    """Print one set of runs."""
    used = {each.sessions for one in runs for each in one.found}
    print(f"\n{title}, compared with {' or '.join(map(str, sorted(used)))} sessions\n\n{table(runs)}\n")
    print(share("runs with exit code not 0", sum(one.exit_code != 0 for one in runs), len(runs)))
    print(share("runs in which something was slower", sum(one.slower for one in runs), len(runs)))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--baseline-runs", type=int, default=BASELINE_RUNS, help=f"default: {BASELINE_RUNS}")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"of each set (default: {RUNS})")
    parser.add_argument("--slowdown-ms", type=float, metavar="X", help="a further set, X ms slower a token")
    parser.add_argument("--threads", type=int, help="OMP_NUM_THREADS of the runs (default: as it is)")
    given = parser.parse_args()
    if min(given.baseline_runs, given.runs) < 1 or (given.slowdown_ms or 1) <= 0:
        parser.error("at least one run of each set, and a positive slowdown")
    return given


def main() -> None:
    given = arguments()
    usual, ms = Setting(given.threads), given.slowdown_ms
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write_project(folder)
        stored = repeated("baseline", given.baseline_runs, folder, usual, "--llmspeed-update-baseline")
        unchanged = repeated("unchanged", given.runs, folder, usual)
        slowed = ms and repeated(f"{ms:g} ms slower", given.runs, folder, Setting(given.threads, ms))
    failed = sum(one.exit_code != 0 for one in stored)
    print(f"{len(stored)} baseline runs; in {failed} of them a test failed, so it was not stored")
    show(f"{given.runs} unchanged runs", unchanged)
    if slowed:
        show(f"{given.runs} runs, {ms:g} ms slower a token", slowed)


if __name__ == "__main__":
    main()
