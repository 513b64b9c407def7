"""The HTML report of 500 tests beside ten stored sessions each: its size, and the seconds to write it.

    PYTHONPATH=tests python benchmarks/html_report.py

Targets: under 15 MB; Chromium, where it is there, shows it in less than 2 s.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from pathlib import Path

from helpers.reports import a_run, a_sample, a_test

from pytest_llmspeed.baselines.sessions import session_of_record
from pytest_llmspeed.metrics.measurement import Measurement
from pytest_llmspeed.records.record import TestRecord
from pytest_llmspeed.reports.html.page import html_report
from pytest_llmspeed.reports.stored_side import StoredSide

REQUESTS, TOKENS, SESSIONS = 20, 64, 10


def measured(name: str, slow: float) -> TestRecord:
    """Return a test of twenty requests, 64 tokens each."""
    samples = []
    for _ in range(REQUESTS):
        first = 100 * slow * random.gauss(1, 0.03)
        gaps = tuple(10 * slow * random.gauss(1, 0.1) for _ in range(TOKENS - 1))
        times = {"ttft_ms": first, "ttfo_ms": first, "e2e_ms": first + sum(gaps), "itl_ms": gaps}
        samples.append(a_sample(1.0, tpot_ms=sum(gaps) / len(gaps), output_events=TOKENS, **times))
    return a_test(name, measurement=Measurement(tuple(samples)))


def main() -> None:
    """Write it, and open it if there is a browser."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tests", type=int, default=500, help="default: 500")
    given = parser.parse_args()
    names = [f"tests/perf/test_{number // 20}.py::test_{number}" for number in range(given.tests)]
    runs = [
        a_run(day, *(measured(name, random.gauss(1, 0.02)) for name in names))
        for day in range(1, SESSIONS + 2)
    ]
    stored = {}
    for place, name in enumerate(names):
        sessions = [session_of_record(run.tests[place], run) for run in runs]
        stored[name] = StoredSide(sessions[:-1], sessions[-1], sessions[:-1])
    started_s = time.perf_counter()
    page = html_report(runs[-1], stored)
    print(f"{len(page.encode()) / 1e6:.1f} MB, written in {time.perf_counter() - started_s:.1f} s")
    if chromium := shutil.which("chromium"):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "report.html")
            path.write_text(page, encoding="utf-8")
            print(f"opened by Chromium in {opened_s(path, chromium):.2f} s (the median of three)")


def opened_s(path: Path, chromium: str) -> float:
    """Return how long Chromium takes until the page has loaded and was painted."""
    from playwright.sync_api import sync_playwright

    times = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for _ in range(3):
            page = browser.new_page()
            started_s = time.perf_counter()
            page.goto(path.as_uri())
            page.evaluate("new Promise(requestAnimationFrame)")
            times.append(time.perf_counter() - started_s)
            page.close()
        browser.close()
    return sorted(times)[1]


if __name__ == "__main__":
    main()
