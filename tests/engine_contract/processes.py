"""Processes of this machine, as /proc shows them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

TRACKER = "multiprocessing.resource_tracker"
"""Python's own, one a process that has ever spawned; it ends with that."""


def children(parent: int) -> dict[int, str]:
    """The command lines of all that descends from a process and runs, Python's resource tracker left out."""
    return {pid: command for pid, command in descendants(parent).items() if TRACKER not in command}


def descendants(parent: int) -> dict[int, str]:
    """The command lines of all that descends from a process and runs, the nearest first."""
    parents: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            state, ppid = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                parents.setdefault(int(ppid), []).append(int(name))
    found: dict[int, str] = {}
    waiting = [parent]
    while waiting:
        below = parents.get(waiting.pop(0), [])
        waiting += below
        found |= {pid: _command(pid) for pid in below}
    return found


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""


def running(pids: list[int]) -> list[int]:
    """Those of some processes that still run."""
    found = []
    for pid in pids:
        with suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.append(pid)
    return found


def until(holds: Callable[[], bool], seconds: float = 30) -> bool:
    """Wait until something holds, or too long."""
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.1)
    return holds()
