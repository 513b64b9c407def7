"""Processes of this machine: who descends from whom, the processor time they took, who listens where.

What is asked before and after each request is read from /proc: psutil takes four times as long for all
processes, and does not know how long threads waited for a core.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

PROC = "/proc"
XDIST_WORKER = "PYTEST_XDIST_WORKER"
INTERPRETERS = ("python", "node", "java", "ruby", "perl", "bash", "sh")


@dataclass(frozen=True, slots=True)
class Process:
    """A process: its parent, the clock ticks that it and its ended children took, its name and start."""

    parent: int
    ticks: int
    name: str = ""
    started: int = 0


def numbers_of_tree(root: int) -> list[int]:
    """Return the numbers of a process and all its descendants, none where there is no /proc."""
    return _descendants(everyone(), [root])


def numbers_of_trees(*roots: int) -> set[int]:
    """Return the numbers of several processes and all their descendants."""
    return set(_descendants(everyone(), roots))


def ticks(pids: Iterable[int]) -> int:
    """Return the clock ticks that processes and their ended children took."""
    return sum(process.ticks for pid in pids if (process := _process(str(pid))))


def waited_s(pids: Iterable[int]) -> float | None:
    """Return how long the threads of processes were ready to run and had no core; None if not counted."""
    total_ns, is_counted = 0, False
    for pid in pids:
        with suppress(OSError):  # it may end meanwhile
            for thread in os.listdir(f"{PROC}/{pid}/task"):
                with (
                    suppress(OSError, ValueError),
                    open(f"{PROC}/{pid}/task/{thread}/schedstat", "rb") as file,
                ):
                    total_ns += int(file.read().split()[1])
                    is_counted = True
    return total_ns / 1e9 if is_counted else None


def is_stopped(pid: int) -> bool:
    """Return True if a process is stopped by a signal (Ctrl-Z, SIGSTOP), False where that is not known."""
    import psutil

    with suppress(psutil.Error):
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    return False


def numbers_of_other_workers() -> set[int]:
    """Return the processes of the other workers of this run of pytest-xdist, and their descendants."""
    if XDIST_WORKER not in os.environ:
        return set()
    found = everyone()
    ours = set(_descendants(found, [os.getpid()]))
    return set(_descendants(found, [os.getppid()])) - ours - {os.getppid()}


def listener(port: int) -> int | None:
    """Return the process that listens on a TCP port of this machine, None if it cannot be seen.

    Of several that share the socket the one that the others descend from.
    """
    import psutil

    with suppress(psutil.Error):
        listening = (found for found in psutil.net_connections("tcp") if found.status == psutil.CONN_LISTEN)
        owners = {found.pid for found in listening if found.laddr.port == port and found.pid is not None}
        return next((pid for pid in sorted(owners) if psutil.Process(pid).ppid() not in owners), None)
    return None


def name_of(pid: int, process: Process) -> str:
    """Return what a process is called by people: the program, of an interpreter its script or module.

    The other arguments are left out: they may hold secrets.
    """
    if not process.name.startswith(INTERPRETERS):
        return process.name
    with suppress(OSError), open(f"{PROC}/{pid}/cmdline", "rb") as file:
        words = file.read().decode("utf-8", "replace").split("\0")[1:]
        for word, following in zip(words, [*words[1:], ""], strict=False):
            if word == "-m":
                return f"{process.name} -m {following}"
            if word in ("-c", "-e"):
                break
            if word and not word.startswith("-"):
                return f"{process.name} {os.path.basename(word)}"
    return process.name


def _descendants(found: Mapping[int, Process], roots: Iterable[int]) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, process in found.items():
        children.setdefault(process.parent, []).append(pid)
    waiting, tree = list(roots), []
    while waiting:
        pid = waiting.pop()
        if pid in found:
            tree.append(pid)
        waiting += children.get(pid, ())
    return tree


def everyone() -> dict[int, Process]:
    """Return all processes that can be seen, by number; none where there is no /proc."""
    names = os.listdir(PROC) if os.path.isdir(f"{PROC}/self") else []
    found = ((int(name), _process(name)) for name in names if name.isdigit())
    return {pid: process for pid, process in found if process is not None}


def _process(pid: str) -> Process | None:
    with suppress(OSError), open(f"{PROC}/{pid}/stat", "rb") as file:  # it may end meanwhile
        head, _, rest = file.read().rpartition(b")")  # the name between may hold anything
        fields = rest.split()
        name = head.partition(b"(")[2].decode("utf-8", "replace")
        return Process(int(fields[1]), sum(map(int, fields[11:15])), name, int(fields[19]))
    return None
