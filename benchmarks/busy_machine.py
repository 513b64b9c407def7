"""The gate beside another busy program, by the real clock: SmolLM2 on transformers with one thread.

Whole pytest runs: updates that should store a session each, unchanged runs that should not be red, and runs
whose tokens take `--slowdown` longer, which should be red or say what disturbed them. First with a program
that keeps one core busy, then alone. Prints a line a run, and exits with 1 if the gate did not keep its word.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from helpers.smollm2_files import smollm2_folder

from pytest_llmspeed.system.machine import JOB_IDS

STRETCH = "BUSY_MACHINE_STRETCH"
CONFTEST = f"""\
import os
import time

from pytest_llmspeed.engines.local._transformers import TransformersEngine


class StretchedEngine(TransformersEngine):
    @classmethod
    def start(cls, spec):
        engine = super().start(spec)
        stretch = float(os.environ.get("{STRETCH}", 0))
        begun = [0.0]

        def before(*_):
            begun[0] = time.perf_counter()

        def after(*_):
            until = time.perf_counter() + stretch * (time.perf_counter() - begun[0])
            while time.perf_counter() < until:
                pass

        engine._model.register_forward_pre_hook(before)
        engine._model.register_forward_hook(after)
        return engine


def pytest_llmspeed_backends():
    return {{"transformers": "conftest:StretchedEngine"}}
"""
TEST = """\
import pytest


@pytest.mark.llm_backend("transformers", precision="fp32", threads=1)
def test_chat(llm_client):
    llm_client.measure("Explain KV caching in one sentence.", max_tokens=32)
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One pytest run: its exit code, the verdict of its test, and the lines of its closing section."""

    exit_code: int
    verdict: str | None
    stored: int
    lines: tuple[str, ...]

    @property
    def said(self) -> str:
        """The lines on the test and the store, joined."""
        return " | ".join(line for line in self.lines if line.strip() and not line.startswith(("=", "-")))


def run(folder: Path, *arguments: str, stretch: float = 0.0) -> Outcome:
    """Run the project once in a session of its own."""
    jobs = [known.variable for known in JOB_IDS]
    kept = {name: value for name, value in os.environ.items() if name not in jobs}
    before = len(list((folder / "store").rglob("*.json")))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--llmspeed-store=store",
            "--llmspeed-json=report.json",
            f"--llmspeed-model={smollm2_folder()}",
            *arguments,
        ],
        cwd=folder,
        env={
            **kept,
            STRETCH: str(stretch),
            "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    _, _, section = done.stdout.partition("llmspeed ==")
    stored = len(list((folder / "store").rglob("*.json"))) - before
    return Outcome(done.returncode, report["tests"][0]["verdict"], stored, tuple(section.splitlines()))


@contextmanager
def another_program(busy: bool) -> Iterator[None]:
    """Keep one core busy meanwhile, or not."""
    if not busy:
        yield
        return
    program = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        program.kill()
        program.wait()


def tried(busy: bool, given: argparse.Namespace) -> bool:
    """Record, repeat, slow down; return whether all came out as promised."""
    mood = "one core busy" if busy else "alone"
    faults = 0
    with tempfile.TemporaryDirectory() as made, another_program(busy):
        folder = Path(made)
        (folder / "conftest.py").write_text(CONFTEST)
        (folder / "test_it.py").write_text(TEST)
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "store").mkdir()
        steps = (
            *(("update", ("--llmspeed-update-baseline",), 0.0),) * given.updates,
            *(("unchanged", (), 0.0),) * given.unchanged,
            *(("slowed", (), given.slowdown),) * given.slowed,
        )
        for what, arguments, stretch in steps:
            outcome = run(folder, *arguments, stretch=stretch)
            is_red = outcome.exit_code == 1
            explained = not busy or "machine busy" in outcome.said
            good = {
                "update": outcome.stored == 1 or "not stored" in outcome.said,
                "unchanged": not is_red,
                "slowed": is_red or (busy and outcome.verdict == "inconclusive" and explained),
            }[what]
            faults += not good
            print(
                f"{mood}, {what}: exit {outcome.exit_code}, {outcome.verdict}, stored {outcome.stored}"
                f"{'' if good else '  <- NOT AS PROMISED'}\n    {outcome.said}",
                flush=True,
            )
    return not faults


def main() -> None:
    """Try both moods."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--updates", type=int, default=5)
    parser.add_argument("--unchanged", type=int, default=6)
    parser.add_argument("--slowed", type=int, default=3)
    parser.add_argument("--slowdown", type=float, default=0.4, help="share of a token's time (default: 0.4)")
    parser.add_argument("--mood", choices=("busy", "alone", "both"), default="both")
    given = parser.parse_args()
    moods = {"busy": (True,), "alone": (False,), "both": (True, False)}[given.mood]
    kept = [tried(busy, given) for busy in moods]
    if not all(kept):
        raise SystemExit("busy_machine: the gate did not keep its word in every run")


if __name__ == "__main__":
    main()
