"""A guard over processes that a library starts in ours: it ends them should we be gone, even by SIGKILL.

The guard of a server (`guard`) starts what it guards, so it is its parent, hears of its end and adopts
what leaves it. Here the library is the parent, in our process: the guard is a sibling that can only
look, and ends nothing that the library ends by itself.

The script (run by path, with the standard library alone, in a process group of its own, so that Ctrl-C
does not reach it) holds the read end of a pipe as its standard input. Until a word comes it takes note of
what descends from its parent; then it rests. When its parent is gone, or asks for it, it kills what it
noted, with all that descends from it. It reads /proc: elsewhere than on Linux there is no guard.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress

POLL_S = 0.3
SETTLED, DONE, KILL = b"settled\n", b"done\n", b"kill\n"
"""What the parent says: a word each, since the end of the pipe may never come (`heard`)."""
SPARED = b"multiprocessing.resource_tracker"
"""It removes what the others leave in shared memory, and ends by itself."""

Process = tuple[int, str]
"""A process id, and when it started: numbers are used again."""


class ChildWatchdog:
    """The guard of the processes that are started between `__init__` and `settled`."""

    def __init__(self) -> None:
        self._script: subprocess.Popen[bytes] | None = None
        if os.path.isdir("/proc/self"):
            self._script = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                process_group=0,  # a session of its own was starved beside an engine that kept the core busy
            )
            self._wait_until_it_has_looked()

    def settled(self) -> None:
        """All processes have been started: the guard need not look any more."""
        self._tell(SETTLED)
        self._wait_until_it_has_looked()

    def release(self) -> None:
        """The processes have ended: the guard may go."""
        self._end(DONE)

    def kill(self) -> None:
        """End the processes that are still there, and the guard."""
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


def guard(parent: int) -> None:
    """Note the descendants of `parent` until it says that all are there, and end them if it dies."""
    before = descendants(parent)
    noted: set[Process] = set()
    tell_that_it_looked()
    while (said := heard(parent)) is None:
        noted |= descendants(parent) - before
    if said == SETTLED:
        noted |= descendants(parent) - before
        tell_that_it_looked()
        while (said := heard(parent)) is None:
            pass
    if said != DONE:
        kill(noted)


def heard(parent: int) -> bytes | None:
    """A word of the parent, None if it said nothing for a while, an empty one when it is gone.

    What was forked from it may hold its end of the pipe open: that it is gone is also seen by the
    change of our parent. Nothing is buffered: a second word has to be seen by `select`.
    """
    if select.select([0], [], [], POLL_S)[0]:
        with open(0, "rb", buffering=0, closefd=False) as words:
            return words.readline()
    return None if os.getppid() == parent else b""


def tell_that_it_looked() -> None:
    """Answer the parent, which waits for it, unless that is gone already."""
    with suppress(OSError):
        os.write(1, b"looked\n")


def kill(noted: set[Process]) -> None:
    """Kill the processes noted that are still those, and all that descends from them."""
    alive = [process for process in noted if started(process[0]) == process[1]]
    below = [process for pid, _ in alive for process in descendants(pid)]
    for pid, _ in {*alive, *below}:
        with suppress(OSError):
            if SPARED not in read(pid, "cmdline"):
                os.kill(pid, signal.SIGKILL)


def descendants(root: int) -> set[Process]:
    """All that descends from a process, but for this one."""
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        if (stat := fields(int(name))) and int(name) != os.getpid():
            children.setdefault(int(stat[1]), []).append(int(name))
    found, waiting = set(), [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        waiting += below
        found |= {(pid, started(pid)) for pid in below}
    return found


def started(pid: int) -> str:
    """When a process started, in clock ticks since boot; empty if there is none."""
    stat = fields(pid)
    return stat[19] if stat else ""


def fields(pid: int) -> list[str]:
    """What /proc tells of a process, from its state on; nothing of one that is gone."""
    with suppress(OSError):
        return read(pid, "stat").rpartition(b")")[2].decode().split()
    return []


def read(pid: int, name: str) -> bytes:
    """A file of /proc."""
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()


if __name__ == "__main__":
    guard(int(sys.argv[1]))
