"""What a large store costs: ten stored runs of T tests are read, and a new run of T tests is decided.

The store is written with the product's own records and its own writer, lognormal values in it: each
run of another CI job, twelve hours apart, 20 requests a test with TTFT, TPOT and end-to-end time. For
each T a fresh process makes the new run, then times, each once:

    first    one comparison, which loads what the statistics need: a run pays that once
    read     `FolderStore.load` of the environment
    decide   `Run.judge` of all T tests, the load within it taken off
    suite    `Run.judge_suite`, once at the end

`peak` is the largest resident size of that process, the new run and all modules among it; `before` the
size when it had the new run and the modules, and had not read the store. A store on a cold disk reads
slower than here: the files were just written. Exits with 1 if the target is missed, which stands for
2,000 tests.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from tabulate import tabulate

from pytest_llmspeed.baselines.history import History
from pytest_llmspeed.baselines.store import FolderStore, Stored
from pytest_llmspeed.engines.backend import Backend
from pytest_llmspeed.metrics.measurement import Measurement
from pytest_llmspeed.metrics.sample import Sample
from pytest_llmspeed.records.record import RunRecord, TestRecord, run_to_stored
from pytest_llmspeed.regression.session_test import compare
from pytest_llmspeed.regression.verdicts import Comparison, Verdict
from pytest_llmspeed.run.run import Run
from pytest_llmspeed.settings import Settings

TESTS = (500, 1000, 2000)
STORED_RUNS = 10
REQUESTS = 20
OUTPUT_TOKENS = 64
ENVIRONMENT = "synthetic"
FIRST_RUN = datetime(2026, 1, 5, tzinfo=UTC)
BETWEEN_RUNS = timedelta(hours=12)
SESSION_SD, REQUEST_SD = 0.02, 0.03
"""Spread of logs between sessions, and between the requests of one."""
LIKE_STORED = tuple(float(50 + number) for number in range(REQUESTS))
TARGET_TESTS, TARGET_S, TARGET_MIB = 2000, 3.0, 300.0
BACKEND = Backend("tiny", model="tiny", revision="1", precision="fp32", versions={"torch": "2.6.0"})
COMPARISONS = tuple(
    Comparison(
        verdict=Verdict.PASSED,
        metric=metric,
        stratum="measure#1",
        baseline=50.1234,
        now=50.4321,
        delta=1.00616,
        ci=(0.951234, 1.06432),
        p_samples=0.234567,
        p_session=0.345678,
        visible=1.13579,
        more_sessions=((1.2, 0), (1.1, None)),
        sessions=STORED_RUNS,
    )
    for metric in ("ttft_ms", "tpot_ms")
)
"""What a stored test says of its own comparisons: figures of the usual length, not read again."""
MADE_OF = {"cpu": "synthetic", "cpus": 2, "memory_mib": 8192, "system": "linux", "arch": "x86_64"}


@dataclass(frozen=True, slots=True)
class Cost:
    """What one fresh process took: seconds, and sizes in MiB. `verdicts` counts what was decided."""

    first_s: float
    read_s: float
    decide_s: float
    suite_s: float
    before_mib: float
    peak_mib: float
    verdicts: dict[str, int]

    @property
    def total_s(self) -> float:
        """All that was timed."""
        return self.first_s + self.read_s + self.decide_s + self.suite_s

    @property
    def keeps_target(self) -> bool:
        """True if both the time and the size are below the target."""
        return self.total_s < TARGET_S and self.peak_mib < TARGET_MIB


class TimedStore(FolderStore):
    """A folder store that remembers how long it read, in seconds."""

    read_s = 0.0

    def load(self, environment: str) -> Stored:
        """Return what is stored for an environment."""
        started_s = time.perf_counter()
        try:
            return super().load(environment)
        finally:
            self.read_s += time.perf_counter() - started_s


def samples(rng: np.random.Generator, gaps: int) -> Iterator[Sample]:
    """Yield the requests of one test in one session."""
    shift = rng.normal(0.0, SESSION_SD)
    spread = np.exp(shift + rng.normal(0.0, REQUEST_SD, (REQUESTS, 2)))
    for place, (ttft_ms, tpot_ms) in enumerate((spread * (50.0, 20.0)).tolist()):
        yield Sample(
            label=None,
            stratum="measure#1",
            call="measure",
            ttft_ms=ttft_ms,
            ttfo_ms=None,
            tpot_ms=tpot_ms,
            e2e_ms=ttft_ms + (OUTPUT_TOKENS - 1) * tpot_ms,
            throughput_tps=None,
            itl_ms=tuple((tpot_ms * np.exp(rng.normal(0.0, 0.1, gaps))).tolist()),
            output_events=OUTPUT_TOKENS,
            output_tokens=OUTPUT_TOKENS,
            prompt_tokens=32,
            cached_tokens=None,
            token_source="usage",
            finish_reason="length",
            text="",
            error=None,
            flags=frozenset(),
            started_ms=place * 1400.0,
            foreign_cpu=0.01,
        )


def records(rng: np.random.Generator, tests: int, gaps: int) -> Iterator[TestRecord]:
    """Yield the tests of one run."""
    for number in range(tests):
        yield TestRecord(
            nodeid=f"tests/test_speed.py::test_prompt[{number}]",
            identity=f"tests/test_speed.py::test_prompt[{number}]",
            environment=ENVIRONMENT,
            backend=BACKEND,
            workload=(f"measure prompt {number:08x}, max_tokens {OUTPUT_TOKENS}, temperature 0",),
            measurement=Measurement(tuple(samples(rng, gaps)), warmup_requests=2),
            comparisons=COMPARISONS,
            verdict=Verdict.PASSED,
        )


def write_store(root: Path, tests: int, gaps: int, seed: int) -> float:
    """Write ten runs; return the size of their files in MiB."""
    store = FolderStore(root)
    for number in range(STORED_RUNS):
        stored = tuple(records(np.random.default_rng([seed, number]), tests, gaps))
        started = (FIRST_RUN + number * BETWEEN_RUNS).isoformat()
        run = RunRecord(started, f"{number:08x}", f"job={number}", "0123456789", MADE_OF, {}, stored)
        store.write(ENVIRONMENT, f"{number:04}.json", run_to_stored(run))
    return sum(file.stat().st_size for file in root.rglob("*.json")) / 2**20


def peak_mib() -> float:
    """Return the largest resident size that this process has had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def cost(root: Path, tests: int, gaps: int, seed: int) -> Cost:
    """Read the store and decide a new run, in this process."""
    started_s = time.perf_counter()
    compare([LIKE_STORED] * STORED_RUNS, LIKE_STORED)
    first_s = time.perf_counter() - started_s
    new = list(records(np.random.default_rng([seed, STORED_RUNS]), tests, gaps))
    run, store = Run(Settings(store=str(root)), {}, root), TimedStore(root)
    results = run.results
    results.history = History(store)
    results.count_selected(len(COMPARISONS) * tests)
    before_mib = peak_mib()
    started_s = time.perf_counter()
    judged = [results.judge(record, (), None) for record in new]
    decide_s = time.perf_counter() - started_s - store.read_s
    results.records = {record.nodeid: record for record in judged}
    started_s = time.perf_counter()
    results.judge_suite()
    suite_s = time.perf_counter() - started_s
    verdicts = Counter(str(record.verdict) for record in judged)
    return Cost(first_s, store.read_s, decide_s, suite_s, before_mib, peak_mib(), dict(verdicts))


def cost_of_fresh_process(root: Path, tests: int, given: argparse.Namespace) -> Cost:
    """Run this file again on a store; raises `CalledProcessError` if that fails."""
    command = [sys.executable, __file__, "--child", str(root), "--tests", str(tests)]
    command += ["--gaps", str(given.gaps), "--seed", str(given.seed)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Cost(**json.loads(done.stdout))


def measured(tests: int, given: argparse.Namespace) -> tuple[float, Cost]:
    """Write a store; return its size in MiB, and what reading and deciding cost."""
    with tempfile.TemporaryDirectory() as made:
        size_mib = write_store(Path(made), tests, given.gaps, given.seed)
        return size_mib, cost_of_fresh_process(Path(made), tests, given)


def row(tests: int, size_mib: float, found: Cost) -> list[str]:
    """One line of the table."""
    seconds = (found.first_s, found.read_s, found.decide_s, found.suite_s, found.total_s)
    verdicts = ", ".join(f"{count} {word}" for word, count in sorted(found.verdicts.items()))
    sizes = (size_mib, found.before_mib, found.peak_mib)
    return [f"{tests}", *(f"{x:.2f}" for x in seconds), *(f"{x:.0f}" for x in sizes), verdicts]


def report(found: dict[int, tuple[float, Cost]]) -> bool:
    """Print the table; return False if the target was measured and missed."""
    headers = [
        "tests",
        "first s",
        "read s",
        "decide s",
        "suite s",
        "all s",
        "store MiB",
        "before MiB",
        "peak MiB",
        "verdicts",
    ]
    rows = [row(tests, *each) for tests, each in found.items()]
    print(tabulate(rows, headers, disable_numparse=True, colalign=("right",) * 9))
    if TARGET_TESTS not in found:
        return True
    met = found[TARGET_TESTS][1].keeps_target
    aim = f"{TARGET_TESTS} tests in less than {TARGET_S:g} s and {TARGET_MIB:g} MiB"
    print(f"target: {aim}: {'met' if met else 'missed'}")
    return met


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tests", type=int, nargs="+", default=TESTS, help=f"default: {TESTS}")
    parser.add_argument("--gaps", type=int, default=0, help="gaps (ITL) stored of each request (default: 0)")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    given = arguments()
    if given.child:
        print(json.dumps(asdict(cost(given.child, given.tests[0], given.gaps, given.seed))))
        return 0
    return 0 if report({tests: measured(tests, given) for tests in given.tests}) else 1


if __name__ == "__main__":
    sys.exit(main())
