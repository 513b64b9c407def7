"""The main job from end to end on the embedded engine: a baseline, a green run, a red one.

Runs example_project three times to record a baseline, once more unchanged, and one of its tests with
a longer delay injected into the engine; checks that this last run, and it alone, exits with 1 and names
the test.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).parent.parent / "example_project"
SESSIONS = 3
DELAY_MS = 45
SLOWED = "test_a_summary_is_quick"
QUIET = ["-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "-W", "ignore:invalid escape sequence"]
"""Nothing is said of plugins that are not used, nor of libraries that are compiled as they are imported."""


def pytest(title: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the example project and show what it printed."""
    print(f"\n##### {title}\n$ pytest {' '.join(arguments)}", flush=True)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *QUIET, *arguments],
        cwd=PROJECT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    print(run.stdout, flush=True)
    return run


def expect(what: str, holds: bool) -> None:
    """End with exit code 1 unless something holds."""
    if not holds:
        raise SystemExit(f"demo: expected {what}")


def record(where: str) -> None:
    """Store some sessions; one that differs too much from those before it is refused, and taken again."""
    for attempt in range(1, 2 * SESSIONS + 1):
        run = pytest(f"recording a baseline, attempt {attempt}", "--llmspeed-update-baseline", where)
        expect("the recording run to end with 0 or 1", run.returncode in (0, 1))
        if len(list(Path(where.partition("=")[2]).rglob("*.json"))) >= SESSIONS and run.returncode == 0:
            return
    raise SystemExit(f"demo: {SESSIONS} sessions could not be recorded: this machine is too busy")


def main() -> None:
    """Record, compare, slow down."""
    with tempfile.TemporaryDirectory() as store:
        where = f"--llmspeed-store={store}"
        record(where)
        run = pytest("the same code again: green", "-v", where)
        expect("the unchanged run to pass", run.returncode == 0)
        run = pytest(
            f"each token after {DELAY_MS} instead of 20 ms: red",
            f"tests/test_speed.py::{SLOWED}",
            where,
            EXAMPLE_TOKEN_DELAY_MS=str(DELAY_MS),
        )
        expect("the slowed run to exit with 1", run.returncode == 1)
        expect("the slowed test to be named", f"{SLOWED} - PerformanceFailure" in run.stdout)
        expect("the reason to be the baseline", "is slower than its baseline" in run.stdout)
    print("demo: a baseline was recorded, the same code passed, the slowdown failed. All as it should be.")


if __name__ == "__main__":
    main()
