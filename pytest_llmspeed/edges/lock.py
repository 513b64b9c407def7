"""One measurement at a time on a device, across processes: workers of one run, and runs beside each other.

A lock file a device, in the user's own folder among the temporary files. The system releases the
lock of a process that dies.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from pytest_llmspeed.core.environment import slug

try:
    import fcntl
except ImportError:  # Windows: there only servers elsewhere are measured
    fcntl = None  # type: ignore[assignment]

POLL_S = 0.02
PATIENCE_S = 2.0
"""After so long a wait it is told who is waited for."""


class DeviceLock:
    """The right to measure on a device; `owner` tells others who has it."""

    def __init__(self, device: str, owner: str, folder: Path | None = None) -> None:
        self.device = device
        self._owner = owner
        self._folder = folder or _own_folder()
        self._file: IO[str] | None = None

    def acquire(self, on_wait: Callable[[str], None] = lambda _: None) -> None:
        """Take the lock, waiting for its holder; `on_wait` is told once, after a while, who that is."""
        if fcntl is None or self._file is not None:
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = (self._folder / f"{slug(self.device)}.lock").open("a+", encoding="utf-8")
        try:
            self._wait(file, on_wait)
        except BaseException:
            file.close()
            raise
        file.truncate(0)
        file.write(f"{self._owner} (process {os.getpid()})")
        file.flush()
        self._file = file

    def _wait(self, file: IO[str], on_wait: Callable[[str], None]) -> None:
        tell_at, told = time.monotonic() + PATIENCE_S, False
        while not _locked(file):
            if not told and time.monotonic() > tell_at:
                told = True
                file.seek(0)
                on_wait(f"waiting for {self.device!r}, which {file.read() or 'another process'} measures on")
            time.sleep(POLL_S)

    def release(self) -> None:
        """Give the lock back. Releasing twice is fine.

        Closing the file would not do: a child that was forked meanwhile holds it open.
        """
        if self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)
            self._file.close()
            self._file = None


def _locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _own_folder() -> Path:
    user = os.getuid() if hasattr(os, "getuid") else "all"
    return Path(tempfile.gettempdir()) / f"pytest-llmspeed-{user}"
