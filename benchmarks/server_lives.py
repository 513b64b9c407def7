"""Lives of a real vLLM server under pytest, a third of them ended in odd moments, and what each leaves.

    python benchmarks/server_lives.py --lives 30

Each life is a pytest run of its own with one test on `vllm-server` and SmolLM2-135M-Instruct, which
reads a stream. Every third one is killed with SIGKILL: the server, or pytest itself, while the server
starts or in the middle of the stream. Afterwards no process may be left, whoever its parent was, no
file among the temporary ones, no segment of shared memory, and the port has to be free. The lock file
of the device stays: it is the user's, not the server's. Exit code 1 if anything else is left, or if a
life went otherwise than its kind says.

It makes the environments of `make test-engines` where they are not there yet. Linux only.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tabulate import tabulate
from vllm_here import ROOT, VLLM, loaded

from pytest_llmspeed.engines.watchdog import adopt_orphans

processes = loaded(ROOT / "tests" / "engine_contract" / "processes.py")

PATIENCE_S = 300.0
GONE_WITHIN_S = 60.0
LOOK_S = 0.05
EARLIEST_S, LATEST_S = 0.1, 8.0
"""When in its start a server or its pytest is killed; none answers so soon."""
ENOUGH_TOKENS, ENDLESS_TOKENS = 32, 1000
"""Of a stream that is read to its end, and of one that is to be killed in the middle."""
MARK = "streams"
SHARED_MEMORY = Path("/dev/shm")
TEST = """
from pathlib import Path
import pytest

@pytest.mark.llm_backend("vllm-server", port={port}, **{server!r})
def test_a_stream(llm_client):
    chunks = llm_client.openai.chat.completions.create(
        model={name!r},
        messages=[{{"role": "user", "content": "Tell a story."}}],
        max_tokens={tokens},
        stream=True,
        extra_body={{"ignore_eos": True}},
    )
    for place, _ in enumerate(chunks):
        if place == 10:
            Path({mark!r}).touch()
"""


@dataclass(frozen=True)
class Kind:
    """A way to live: who is killed (None: nobody), when, and the exit code that pytest has then."""

    name: str
    victim: str | None = None
    moment: str | None = None
    exit_code: int = 0


WHOLE = Kind("starts, answers, stops")
ODD = (
    Kind("server killed before it is up", "server", "start", 1),
    Kind("server killed in a stream", "server", "stream", 1),
    Kind("pytest killed before it is up", "pytest", "start", -signal.SIGKILL),
    Kind("pytest killed in a stream", "pytest", "stream", -signal.SIGKILL),
)


@dataclass(frozen=True)
class Life:
    """What came of one: how long from its end (or the kill) until all was gone, and what was not."""

    kind: Kind
    took_s: float
    gone_s: float
    left: tuple[str, ...]
    surprise: str | None
    segments: int


class Stage:
    """Where one life happens: its folders, its port, and the shared memory that others hold."""

    def __init__(self, folder: Path, vllm: VLLM, tokens: int) -> None:
        self.folder, self.temporary = folder, folder / "tmp"
        self.temporary.mkdir()
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self._others = set(os.listdir(SHARED_MEMORY))
        body = TEST.format(
            port=self.port, server=vllm.server, name=Path(vllm.folder).name, tokens=tokens, mark=MARK
        )
        (folder / "test_life.py").write_text(body)

    def pytest(self) -> subprocess.Popen[bytes]:
        """Start the run, in a session of its own; what it prints is in the file `output`."""
        variables = {
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(self.temporary),
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "pytest_llmspeed.plugin.hooks"]
        with (self.folder / "output").open("wb") as output:
            return subprocess.Popen(
                [*command, "-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={self.folder}", "."],
                cwd=self.folder,
                env={**os.environ, **variables},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        """What pytest has printed."""
        return (self.folder / "output").read_text(errors="replace")

    @property
    def server(self) -> int | None:
        """The process of the server, None before there is one."""
        found = processes.descendants(os.getpid()).items()
        servers = (pid for pid, line in found if "vllm.entrypoints" in line and "guard.py" not in line)
        return next(servers, None)

    @property
    def streams(self) -> bool:
        """True once the answer is coming."""
        return (self.folder / MARK).exists()

    @property
    def port_is_free(self) -> bool:
        """True if a server could listen there."""
        try:
            with socket.create_server(("127.0.0.1", self.port)):
                return True
        except OSError:
            return False

    @property
    def segments(self) -> list[str]:
        """The shared memory that has come since."""
        return sorted(set(os.listdir(SHARED_MEMORY)) - self._others)

    def left(self) -> tuple[str, ...]:
        """What is still there, in words."""
        running = processes.descendants(os.getpid()).items()
        files = [path for path in self.temporary.iterdir() if path.name != f"pytest-llmspeed-{os.getuid()}"]
        return (
            *(f"process {pid} {line[:80]}" for pid, line in running),
            *(f"file {path.name}" for path in files),
            *(f"shared memory {name}" for name in self.segments),
            *(() if self.port_is_free else (f"port {self.port} taken",)),
        )


def until(holds: Callable[[], object], run: subprocess.Popen[bytes]) -> None:
    """Wait until something holds, or the run has ended."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds() and run.poll() is None and time.monotonic() < deadline:
        time.sleep(LOOK_S)


def kill(kind: Kind, stage: Stage, run: subprocess.Popen[bytes], wait_s: float) -> int:
    """Kill the victim, if there is one, at its moment; return how many segments were in use then."""
    until(lambda: stage.server if kind.moment == "start" else stage.streams, run)
    if kind.moment == "start":
        time.sleep(wait_s)
    segments = len(stage.segments)
    victim = {"pytest": run.pid, "server": stage.server}.get(kind.victim or "")
    if victim is not None:
        with suppress(ProcessLookupError):  # it has ended by itself, and its kind will miss it
            os.kill(victim, signal.SIGKILL)
    return segments


def one_life(kind: Kind, vllm: VLLM, wait_s: float) -> Life:
    with tempfile.TemporaryDirectory(prefix="life-") as name:
        tokens = ENDLESS_TOKENS if kind.victim else ENOUGH_TOKENS
        stage, begun_s = Stage(Path(name), vllm, tokens), time.monotonic()
        run = stage.pytest()
        segments = kill(kind, stage, run, wait_s)
        since_s = time.monotonic()
        code = run.wait(PATIENCE_S)
        if not kind.victim:
            since_s = time.monotonic()
        while (left := stage.left()) and time.monotonic() < since_s + GONE_WITHIN_S:
            time.sleep(LOOK_S)
        now_s, surprise = time.monotonic(), unexpected(kind, stage, code)
    for pid in processes.descendants(os.getpid()):
        os.kill(pid, signal.SIGKILL)  # the next life starts alone
    return Life(kind, now_s - begun_s, now_s - since_s, left, surprise, segments)


def unexpected(kind: Kind, stage: Stage, code: int) -> str | None:
    """How a life went otherwise than its kind says; None if it did not."""
    output = stage.output
    told = (kind.victim, kind.moment) != ("server", "start") or "SIGKILL" in output
    if code != kind.exit_code or stage.streams == (kind.moment == "start") or not told:
        return f"{kind.name}: pytest ended with {code}:\n{output[-2000:]}"
    return None


def kind_of(number: int) -> Kind:
    """Every third life is an odd one, each odd kind in turn."""
    return ODD[number // 3 % len(ODD)] if number % 3 == 2 else WHOLE


def table(lives: list[Life]) -> str:
    rows = []
    for kind in (WHOLE, *ODD):
        if found := [life for life in lives if life.kind == kind]:
            gone_s = [life.gone_s for life in found]
            left = sum(len(life.left) for life in found)
            times = [f"{figure:.1f}" for figure in (median(gone_s), max(gone_s))]
            rows.append([kind.name, len(found), *times, max(life.segments for life in found), left])
    headers = ("life", "count", "all gone after, s", "at most", "segments in use", "left over")
    return str(tabulate(rows, headers, tablefmt="simple", disable_numparse=True))


def main() -> int:
    """Live, show what came of it; return 1 if anything was left."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lives", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills")
    given = parser.parse_args()
    adopt_orphans()  # so that whatever loses its parent becomes ours, and is seen
    vllm, draw, lives = VLLM.here(), random.Random(given.seed), []
    for number in range(given.lives):
        life = one_life(kind_of(number), vllm, draw.uniform(EARLIEST_S, LATEST_S))
        print(f"{number + 1}: {life.kind.name}, {life.took_s:.0f} s", *life.left, flush=True)
        if life.surprise:
            print(life.surprise, flush=True)
        lives.append(life)
    print(table(lives))
    return int(any(life.left or life.surprise for life in lives))


if __name__ == "__main__":
    sys.exit(main())
