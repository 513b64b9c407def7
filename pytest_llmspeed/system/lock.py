"""One measurement at a time on a device, across processes: workers of one run, and runs side by side.

A lock file for each device, in a folder of the user's own. The system releases the lock of a process
that dies. Those who wait stand in a queue of ticket files, so that nobody who has just measured goes
before somebody who waits. That queue, and who holds the lock, is what the package `filelock` lacks.
"""

from __future__ import annotations

import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pytest_llmspeed.errors import DeviceBusyError
from pytest_llmspeed.system import processes
from pytest_llmspeed.system.environment import slug

try:
    import fcntl
except ImportError:  # Windows: there only servers elsewhere are measured
    fcntl = None  # type: ignore[assignment]

POLL_S = 0.05
PATIENCE_S = 2.0
"""How long to wait before reporting who holds the device."""
LIMIT_S = 1800.0
"""The default limit on waiting for one holder."""
STOPPED_S = 10.0
"""How long to wait for a stopped holder (Ctrl-Z, SIGSTOP)."""
SETTING = "llmspeed_lock_timeout_s"
FOLDER_VARIABLE = "LLMSPEED_LOCK_FOLDER"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who measures on a device: a test in a process, since a moment of the system's monotonic clock."""

    process: int
    since_s: float
    owner: str

    def told(self, now_s: float) -> str:
        """Return the sentence's middle: who it is, and how long it has measured."""
        return f"{self.owner} (process {self.process}) has been using it for {now_s - self.since_s:.0f} s"


class DeviceLock:
    """The right to measure on a device; `owner` tells others who has it."""

    def __init__(self, device: str, owner: str, folder: Path | None = None, limit_s: float = LIMIT_S) -> None:
        self.device = device
        self._owner, self._folder, self._limit_s = owner, folder, limit_s
        self._name = slug(device)
        self._file: int | None = None

    def try_acquire(self) -> bool:
        """Take the lock if it is free and nobody waits for it."""
        if fcntl is None or self._file is not None:
            return True
        return not any(self._waiting()) and self._take()

    def acquire(self, on_wait: Callable[[str], None] = lambda _: None) -> None:
        """Take the lock, waiting for its holder and for those who wait already.

        `on_wait` hears once, after a while, who holds it. Raises `DeviceBusyError` once one and the
        same holder has been waited for up to the limit, or is stopped.
        """
        if self.try_acquire():
            return
        ticket = f"{self._name}.{time.monotonic():020.9f}.{os.getpid()}.{secrets.token_hex(4)}.wait"
        path = self._own_folder / ticket
        file = _open(path)
        fcntl.flock(file, fcntl.LOCK_EX)  # a ticket that nobody holds is one of a dead process
        try:
            self._wait(ticket, on_wait)
        finally:
            path.unlink(missing_ok=True)
            os.close(file)

    def _wait(self, ticket: str, on_wait: Callable[[str], None]) -> None:
        started_s, told = time.monotonic(), False
        holder, since_s, stopped_s = self._holder(), started_s, None
        while any(other < ticket for other in self._waiting()) or not self._take():
            now_s = time.monotonic()
            if (current := self._holder()) != holder:
                holder, since_s, stopped_s = current, now_s, None
            is_stopped = holder is not None and processes.is_stopped(holder.process)
            stopped_s = (now_s if stopped_s is None else stopped_s) if is_stopped else None
            if not told and now_s - started_s >= PATIENCE_S:
                told = True
                on_wait(f"waiting for the device {self.device!r}: {_told(holder, now_s)}")
            if stopped_s is not None and now_s - stopped_s >= STOPPED_S:
                raise DeviceBusyError(self._given_up(holder, now_s, is_stopped=True))
            if now_s - since_s >= self._limit_s:
                raise DeviceBusyError(self._given_up(holder, now_s, is_stopped=is_stopped))
            time.sleep(POLL_S)

    def _given_up(self, holder: Holder | None, now_s: float, *, is_stopped: bool) -> str:
        what = f"cannot measure on the device {self.device!r}: {_told(holder, now_s)}"
        if is_stopped and holder:
            way_out = f"resume it (kill -CONT {holder.process}) or end it (kill {holder.process})"
            return f"{what} and is stopped; {way_out}"
        return f"{what}; end it if it hangs, or wait longer than {self._limit_s:g} s with {SETTING}"

    def release(self) -> None:
        """Give the lock back. Releasing twice is fine.

        Closing the file would not do: a child that was forked meanwhile holds it open.
        """
        if self._file is not None:
            os.ftruncate(self._file, 0)
            fcntl.flock(self._file, fcntl.LOCK_UN)
            os.close(self._file)
            self._file = None

    @property
    def _own_folder(self) -> Path:
        if self._folder is None:
            self._folder = own_folder()
        return self._folder

    @property
    def _path(self) -> Path:
        return self._own_folder / f"{self._name}.lock"

    def _take(self) -> bool:
        file = _open(self._path)
        try:
            if not _locked(file):
                os.close(file)
                return False
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()} {time.monotonic():.3f} {self._owner}".encode(), 0)
        except BaseException:
            os.close(file)
            raise
        self._file = file
        return True

    def _holder(self) -> Holder | None:
        """Return who holds the lock by its own account, None if it has written none (yet)."""
        with suppress(OSError, ValueError):
            number, since_s, owner = self._path.read_text("utf-8", "replace").split(" ", 2)
            return Holder(int(number), float(since_s), owner)
        return None

    def _waiting(self) -> Iterator[str]:
        """The tickets of those who wait and can go on, those of the dead removed."""
        for name in os.listdir(self._own_folder):
            if not (name.startswith(f"{self._name}.") and name.endswith(".wait")):
                continue
            with suppress(OSError):  # its owner may remove it meanwhile
                path = self._own_folder / name
                file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    if _locked(file):
                        path.unlink()
                    elif not processes.is_stopped(int(name.split(".")[-3])):
                        yield name
                finally:
                    os.close(file)


def _told(holder: Holder | None, now_s: float) -> str:
    return holder.told(now_s) if holder else "another process is using it"


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def own_folder() -> Path:
    """Return the folder of this user's locks, made if need be; raises `DeviceBusyError` if there is none.

    It does not depend on TMPDIR: runs with different ones share the device. Another user may have
    taken the name in /tmp; what is not a folder of ours that only we can write is left alone.
    """
    chosen = os.environ.get(FOLDER_VARIABLE)
    names = [chosen] if chosen else [f"/tmp/pytest-llmspeed-{os.getuid()}", "~/.cache/pytest-llmspeed/locks"]
    for name in names:
        folder = Path(name).expanduser()
        with suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if is_ours(folder):
                return folder
    raise DeviceBusyError(
        f"no folder for the device locks: {' and '.join(names)} cannot be written, or other users can "
        f"write there too; set {FOLDER_VARIABLE} to a folder of your own"
    )


def is_ours(folder: Path) -> bool:
    """Return True if a path is a folder, not a link to one, that belongs to us and only we can write."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return False
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return False
    return os.access(folder, os.W_OK | os.X_OK)
