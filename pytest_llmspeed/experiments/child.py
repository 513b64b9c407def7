"""A command in a process of its own that ends with this one: pytest, git, pip, a set-up."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pytest_llmspeed.engines import watchdog
from pytest_llmspeed.errors import LLMSpeedError
from pytest_llmspeed.text.harmless import harmless

GRACE_S = 10.0
"""How long a command may take to end when asked, before it is killed: pytest stops its engines."""
WATCHDOG_S = 60.0
LOOK_S = 0.1
SHOWN_LINES, SHOWN_CHARACTERS = 15, 300
READ_BYTES = 2**18
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended: its exit code (of a signal: minus its number) and the end of its output."""

    code: int
    output: str

    @property
    def last_lines(self) -> str:
        """The last lines of the output, indented."""
        lines = [line for line in COLOUR.sub("", self.output).splitlines() if line.strip()]
        return "\n".join(f"  {harmless(line, SHOWN_CHARACTERS)}" for line in lines[-SHOWN_LINES:])


class Child:
    """A command that runs under a watchdog: if this process is gone, however it ended, so is the command."""

    def __init__(self, command: Sequence[str], folder: Path, env: Mapping[str, str]) -> None:
        """Start it in a folder; raises `LLMSpeedError` if it cannot be run."""
        self.command = list(command)
        self._files = Path(tempfile.gettempdir()) / f"llmspeed-{uuid.uuid4().hex[:8]}"
        self._heard = b""
        there = ["sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", str(folder), *command]
        sections: tuple[list[str], ...] = ([str(self._files), str(GRACE_S)], [], [], there)
        words = [word for section in sections for word in (str(len(section)), *section)]
        self._watchdog = watchdog.started_watchdog("server", *words, env=env)

    def poll(self, wait_s: float = LOOK_S) -> Ended | None:
        """Return how it ended, None if it still runs after a moment."""
        stdout = self._watchdog.stdout
        assert stdout is not None
        is_gone = select.select([stdout], [], [], wait_s)[0] and not self._listen()
        if is_gone and b"exited" not in self._heard:
            return self._ended(-9)
        if b"failed" in self._heard:
            self.stop()
            raise LLMSpeedError(f"{self.command[0]!r} cannot be run: {self._heard.decode().strip()}")
        exited = re.search(rb"^exited (-?\d+)$", self._heard, re.MULTILINE)
        return self._ended(int(exited[1])) if exited else None

    def _ended(self, code: int) -> Ended:
        output = self._output()
        self.stop()
        return Ended(code, output)

    def _output(self) -> str:
        with suppress(OSError), (self._files / watchdog.LOG).open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - READ_BYTES))
            return log.read().decode("utf-8", "replace")
        return ""

    def stop(self) -> None:
        """End it with all that it started; stopping twice is fine.

        It is interrupted first, as by Ctrl-C: pytest then ends its fixtures.
        """
        assert self._watchdog.stdin is not None
        assert self._watchdog.stdout is not None
        self._interrupt()
        with suppress(OSError, ValueError):
            self._watchdog.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._watchdog.wait(GRACE_S + WATCHDOG_S)
        self._watchdog.stdout.close()

    def _interrupt(self) -> None:
        """Interrupt the command, if it runs, and give it some time to end."""
        stdout, interrupted = self._watchdog.stdout, False
        assert stdout is not None
        deadline = time.monotonic() + GRACE_S
        while not stdout.closed and b"exited" not in self._heard and time.monotonic() < deadline:
            started = re.search(rb"^started (\d+)$", self._heard, re.MULTILINE)
            if started and not interrupted:
                interrupted = True
                with suppress(ProcessLookupError):
                    os.killpg(int(started[1]), signal.SIGINT)
            if select.select([stdout], [], [], LOOK_S)[0] and not self._listen():
                return

    def _listen(self) -> bytes:
        """Take in what the watchdog says; nothing once it is gone."""
        assert self._watchdog.stdout is not None
        said = os.read(self._watchdog.stdout.fileno(), 4096)
        self._heard += said
        return said


def run(command: Sequence[str], folder: Path, env: Mapping[str, str], limit_s: float | None = None) -> Ended:
    """Run a command to its end; raises `LLMSpeedError` if it cannot be run, or takes longer than the limit.

    An interruption ends it.
    """
    child, started_s = Child(command, folder, env), time.monotonic()
    try:
        while (ended := child.poll()) is None:
            if limit_s is not None and time.monotonic() - started_s > limit_s:
                raise LLMSpeedError(f"{' '.join(command)} did not end within {limit_s:.0f} s")
    finally:
        child.stop()
    return ended
