"""The watchdog of processes that a library starts in ours: it ends them if we are killed."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from pytest_llmspeed.engines.watchdog import DONE, KILL, SETTLED, started_watchdog

if TYPE_CHECKING:
    from subprocess import Popen


class ChildWatchdog:
    """The watchdog of the processes that are started between `__init__` and `settled`.

    It ends nothing that the library ends by itself. It reads /proc: only Linux has it.
    """

    def __init__(self) -> None:
        self._script: Popen[bytes] | None = None
        if os.path.isdir("/proc/self"):
            self._script = started_watchdog("children", str(os.getpid()))
            self._wait_until_it_has_looked()

    def settled(self) -> None:
        """All processes have been started: the watchdog need not look any more."""
        self._tell(SETTLED)
        self._wait_until_it_has_looked()

    def release(self) -> None:
        """The processes have ended: the watchdog may go."""
        self._end(DONE)

    def kill(self) -> None:
        """End the processes that are still there, and the watchdog."""
        self._end(KILL)

    def _end(self, word: bytes) -> None:
        self._tell(word)
        if self._script:
            self._script.communicate()

    def _wait_until_it_has_looked(self) -> None:
        if self._script and self._script.stdout:
            self._script.stdout.readline()

    def _tell(self, line: bytes) -> None:
        if self._script and self._script.stdin:
            with suppress(BrokenPipeError):
                self._script.stdin.write(line)
                self._script.stdin.flush()
