"""What the plugin adds to the start of pytest: `pytest --co` of one trivial test, with and without it.

Whole processes by the wall clock, in pairs whose order flips (AB BA AB …), so that a machine that
drifts moves both sides alike. Exits with 0 if the target is met, 1 if the median of the paired differences
misses it, 2 if the median keeps it and its interval does not.

Mode "blocked", the default, is what a user has: autoload on, against `-p no:llmspeed`; every other
plugin that is installed is blocked by name on both sides. Mode "alone": autoload off on both sides,
against `-p pytest_llmspeed.plugin.hooks`, which also counts pytest's own price of a plugin given by name.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from statistics import median

from pairs import EXIT, add_pairs, alternated, interval, verdict

TARGET_MS = 15.0
PAIRS = 15
PLUGIN = "llmspeed"
MODULE = "pytest_llmspeed.plugin.hooks"
INHERITED = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_DISABLE_PLUGIN_AUTOLOAD")
"""Variables of the caller that would change what pytest loads."""


@dataclass(frozen=True, slots=True)
class ReportSet:
    """One side of a pair: how pytest is called, and what is set in its environment."""

    arguments: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


def sides(mode: str) -> tuple[ReportSet, ReportSet]:
    """Return pytest without the plugin and with it."""
    if mode == "alone":
        off = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        return ReportSet((), off), ReportSet(("-p", MODULE), off)
    others = sorted({found.name for found in entry_points(group="pytest11")} - {PLUGIN})
    blocked = tuple(word for name in others for word in ("-p", f"no:{name}"))
    return ReportSet((*blocked, "-p", f"no:{PLUGIN}")), ReportSet(blocked)


def run(side: ReportSet, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest to its end; raises `SystemExit` with its output if it failed."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *side.arguments, *arguments]
    kept = {name: value for name, value in os.environ.items() if name not in INHERITED}
    done = subprocess.run(
        command, cwd=folder, env=kept | side.environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done


def check(without: ReportSet, with_plugin: ReportSet, folder: Path) -> None:
    """Raise `SystemExit` unless the plugin is on one side only; warms file caches and bytecode too."""
    for side, expected in ((without, False), (with_plugin, True)):
        run(side, folder, "--co", "-q")
        if ("llm_budget(" in run(side, folder, "--markers").stdout) is not expected:
            raise SystemExit(f"the plugin was {'not ' if expected else ''}loaded with {side.arguments}")


def collect_ms(side: ReportSet, folder: Path) -> float:
    """Return the wall time of one `pytest --co`, from its start to its end, in ms."""
    started_s = time.perf_counter()
    run(side, folder, "--co")
    return (time.perf_counter() - started_s) * 1000


def report(found: list[tuple[float, float]]) -> str:
    """Print the figures; return the verdict."""
    differences = [plugin_ms - plain_ms for plain_ms, plugin_ms in found]
    more_ms, (low, high) = median(differences), interval(differences)
    plain, ours = zip(*found, strict=True)
    word = verdict(more_ms, high, TARGET_MS)
    print(f"  without the plugin  median {median(plain):7.1f} ms")
    print(f"  with the plugin     median {median(ours):7.1f} ms")
    print(f"  paired difference   median {more_ms:+7.1f} ms   95 % interval {low:+.1f} to {high:+.1f} ms")
    print(f"  target: at most {TARGET_MS:g} ms more: {word}")
    return word


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--mode", choices=("blocked", "alone"), default="blocked", help="default: blocked")
    add_pairs(parser, PAIRS)
    return parser.parse_args()


def main() -> int:
    given = arguments()
    without, with_plugin = sides(given.mode)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        (folder / "test_trivial.py").write_text("def test_trivial():\n    pass\n", encoding="utf-8")
        check(without, with_plugin, folder)
        found = alternated(
            lambda: collect_ms(without, folder), lambda: collect_ms(with_plugin, folder), given.pairs
        )
    print(f"pytest --co, mode {given.mode}, {given.pairs} alternated pairs, whole process")
    return EXIT[report(found)]


if __name__ == "__main__":
    sys.exit(main())
