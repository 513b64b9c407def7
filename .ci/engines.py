"""The contract of every engine, each in the environment that its library needs.

Makes the environments of engines.toml that are not there yet, outside the checkout and named by a
hash of what they install; runs tests/engine_contract in each, and says which engines kept it. Most of
the time goes into starts, which keep one core busy: so two engines are tested at once, each on its share
of the cores (threads of both on all of them would wait for each other); scripts named by --also come last.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tomllib
import venv
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from typing import Any

ROOT = Path(__file__).parent.parent
Recipe = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """What is run by itself."""

    title: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict)


def recipes() -> dict[str, Recipe]:
    """Return what each environment installs and tests."""
    found: dict[str, Recipe] = tomllib.loads((ROOT / ".ci/engines.toml").read_text())
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    for recipe in found.values():
        if "install" in recipe:
            recipe["install"].append(ours)
    return found


def folder(name: str, recipe: Recipe) -> Path:
    """Return where an environment lies: another interpreter, machine or requirement, another folder."""
    what = [sys.version, platform.machine(), recipe["install"], recipe["uninstall"]]
    digest = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return cache / "pytest-llmspeed" / "engines" / f"{name}-{digest}"


def environment(name: str, recipe: Recipe) -> Path:
    """Return the interpreter of an environment, which is made if it is not there, whole, already."""
    if "install" not in recipe:
        return Path(sys.executable)
    place = folder(name, recipe)
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another checkout may be making it
        if not (place / ".ready").exists():
            print(f"engines: making {place}", file=sys.stderr, flush=True)
            make(place, recipe)
    return place / "bin" / "python"


def make(place: Path, recipe: Recipe) -> None:
    """Make an environment; what an interrupted attempt left is thrown away first."""
    shutil.rmtree(place, ignore_errors=True)
    venv.create(place, with_pip=True)
    pip = [str(place / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    for requirements in recipe["install"]:
        subprocess.run([*pip, "install", *requirements], check=True)
    if recipe["uninstall"]:
        subprocess.run([*pip, "uninstall", "--yes", *recipe["uninstall"]], check=True)
    (place / ".ready").touch()


def shares_of_cores(wanted: int) -> Queue[list[str]]:
    """Return what a command begins with to stay on its share of the cores, for at most so many at once."""
    shares: Queue[list[str]] = Queue()
    taskset = shutil.which("taskset")
    cores = sorted(os.sched_getaffinity(0)) if taskset else [0]
    for place in range(min(wanted, len(cores))):
        own = ",".join(map(str, cores[place::wanted]))
        shares.put([taskset, "--cpu-list", own] if taskset else [])
    return shares


def contract(python: Path, backend: str) -> Job:
    """Return the contract suite of a backend; the plugin is this checkout's, no other is loaded."""
    command = [str(python), "-m", "pytest", "-c", "tests/engine_contract/pytest.ini", f"--engine={backend}"]
    return Job(
        f"{backend} with {python}",
        [*command, "--durations=5", "tests/engine_contract"],
        {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)},
    )


def succeeds(job: Job, shares: Queue[list[str]]) -> bool:
    """Run a job on a share of the cores, and show what it printed once it has ended."""
    share = shares.get()
    try:
        run = subprocess.run(
            [*share, *job.command],
            cwd=ROOT,
            env={**os.environ, **job.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    finally:
        shares.put(share)
    print(f"\nengines: {job.title}\n{run.stdout}", flush=True)
    return run.returncode == 0


def main() -> None:
    """Make the environments, run the suite in each, and say which engines kept the contract."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--build-only", action="store_true", help="make the environments, name their interpreters"
    )
    parser.add_argument(
        "--jobs", type=int, default=2, help="how many engines are tested at once (default: 2)"
    )
    parser.add_argument(
        "--also", action="append", default=[], metavar="SCRIPT", help="a script for a core that is free"
    )
    parser.add_argument("names", nargs="*", help="environments of engines.toml (default: all)")
    asked = parser.parse_args()
    chosen = {name: recipe for name, recipe in recipes().items() if name in (asked.names or recipes())}
    pythons = {name: environment(name, recipe) for name, recipe in chosen.items()}
    if asked.build_only:
        print(*pythons.values(), sep="\n")
        return
    jobs = {
        backend: contract(pythons[name], backend)
        for name, recipe in chosen.items()
        for backend in recipe["backends"]
    }
    scripts = {script: Job(script, ["bash", script]) for script in asked.also}
    shares = shares_of_cores(asked.jobs)
    with ThreadPoolExecutor(shares.qsize()) as pool:
        results = pool.map(lambda job: succeeds(job, shares), [*jobs.values(), *scripts.values()])
        succeeded = dict(zip([*jobs, *scripts], results, strict=True))
    kept = [backend for backend in jobs if succeeded[backend]]
    print(f"\nengines: the contract is kept by {', '.join(kept) or 'none'}", flush=True)
    if failed := [name for name in succeeded if not succeeded[name]]:
        raise SystemExit(f"engines: failed, or could not be tried: {', '.join(failed)}")


if __name__ == "__main__":
    main()
