"""Processes of this machine, read from /proc: who descends from whom, and the processor time they took."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass

PROC = "/proc"


@dataclass(frozen=True, slots=True)
class Process:
    """A process: its parent, and the clock ticks that it and its ended children took."""

    parent: int
    ticks: int


def ticks_of_tree(root: int) -> int:
    """Return the clock ticks that a process and all its descendants took, 0 where there is no /proc."""
    return sum(process.ticks for process in _tree(root).values())


def numbers_of_tree(root: int) -> list[int]:
    """Return the numbers of a process and all its descendants, none where there is no /proc."""
    return list(_tree(root))


def is_stopped(pid: int) -> bool:
    """Return True if a process is stopped by a signal (Ctrl-Z, SIGSTOP), False where that is not known."""
    with suppress(OSError), open(f"{PROC}/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0] in (b"T", b"t")
    return False


def _tree(root: int) -> dict[int, Process]:
    everyone, found = _processes(), {}
    children: dict[int, list[int]] = {}
    for pid, process in everyone.items():
        children.setdefault(process.parent, []).append(pid)
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        if pid in everyone:
            found[pid] = everyone[pid]
        waiting += children.get(pid, ())
    return found


def _processes() -> dict[int, Process]:
    """All processes that can be seen, by number."""
    found = {}
    names = os.listdir(PROC) if os.path.isdir(f"{PROC}/self") else []
    for name in filter(str.isdigit, names):
        with suppress(OSError), open(f"{PROC}/{name}/stat", "rb") as file:  # it may end meanwhile
            fields = file.read().rpartition(b")")[2].split()  # the name before may hold anything
            found[int(name)] = Process(int(fields[1]), sum(map(int, fields[11:15])))
    return found
