"""How much memory an engine takes: of this process and its children, or of torch on a GPU.

Read from /proc, so on Linux only; elsewhere it is None.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pytest_llmspeed.system import processes

FORGET_PEAK = "5"
"""The value that, written to clear_refs, resets the peak to what is resident now."""
MIB = 2**20


class MemoryWatch:
    """Tells how high the memory of an engine rose, above what was resident before its start.

    Made before the engine starts. `forget_peak` lets the peak begin anew. `root` is the process whose tree
    is watched, by default this one.
    """

    def __init__(self, root: int | None = None) -> None:
        give_back_unused()
        self._root = os.getpid() if root is None else root
        self._before_mib = _resident_mib("VmRSS", self._root)
        self._highest_before_mib = 0.0
        self._forgotten = False

    @classmethod
    def of_process(cls, root: int) -> MemoryWatch:
        """Return a watch on a process that the engine started, with all that it holds already."""
        watch = cls(root)
        watch._before_mib = None if watch._before_mib is None else 0.0
        return watch

    def forget_peak(self) -> None:
        """Let the peak begin anew at what is held now."""
        if torch := _torch_on_gpu():
            for device in range(torch.cuda.device_count()):
                torch.cuda.reset_peak_memory_stats(device)
        self._highest_before_mib = 0.0
        self._forget_resident_peak()

    @contextmanager
    def not_counted(self) -> Iterator[None]:
        """Keep what is loaded in the block out of the engine's memory, also what is freed again."""
        give_back_unused()  # what is free here is not to make room for what is loaded
        self._highest_before_mib = self.peak_mib() or 0.0
        at_start_mib = _resident_mib("VmRSS", self._root)
        try:
            yield
        finally:
            give_back_unused()
            at_end_mib = _resident_mib("VmRSS", self._root)
            if self._before_mib is not None and at_start_mib is not None and at_end_mib is not None:
                self._before_mib += max(0.0, at_end_mib - at_start_mib)
            if self._forgotten:
                self._forget_resident_peak()

    def _forget_resident_peak(self) -> None:
        forgotten = [_forget_peak(pid) for pid in processes.numbers_of_tree(self._root)]
        self._forgotten = all(forgotten)

    def peak_mib(self) -> float | None:
        """The most memory held since `forget_peak`, less what was held before the engine; None if unknown."""
        peak_mib = _resident_mib("VmHWM", self._root)
        if not self._forgotten or peak_mib is None or self._before_mib is None:
            return None
        return max(self._highest_before_mib, peak_mib - self._before_mib)

    @staticmethod
    def gpu_peak_mib() -> float | None:
        """The most memory of all GPUs that torch of this process has given out since `forget_peak`."""
        torch = _torch_on_gpu()
        if torch is None:
            return None
        devices = range(torch.cuda.device_count())
        return float(sum(torch.cuda.max_memory_allocated(device) for device in devices)) / MIB


def _torch_on_gpu() -> Any | None:
    """The module torch, if it is loaded and uses a GPU."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and torch.cuda.is_initialized() else None


def _resident_mib(field: str, root: int) -> float | None:
    """The sum of a field of /proc/PID/status over a process and all below it."""
    found = [_status_kib(pid, field) for pid in processes.numbers_of_tree(root)]
    known = [kib for kib in found if kib is not None]
    return sum(known) / 1024 if known else None


def _status_kib(pid: int, field: str) -> int | None:
    """A field of a process's status; None of one that has ended, or where there is no /proc."""
    try:
        status = Path(processes.PROC, str(pid), "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) if found else None


def _forget_peak(pid: int) -> bool:
    try:
        Path(processes.PROC, str(pid), "clear_refs").write_text(FORGET_PEAK, encoding="ascii")
    except OSError as error:
        return isinstance(error, FileNotFoundError)  # it has ended meanwhile
    return True


def give_back_unused() -> None:
    """Let Python and the C library (glibc does) return what they hold free: it is not to count as used."""
    gc.collect()
    if sys.platform != "linux":
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
