"""The only source of time. Tests replace these functions and nothing else."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def now_s() -> float:
    """The monotonic clock in seconds, the one that all stamps are of."""
    return time.perf_counter()


def wall() -> datetime:
    """The time of day, in UTC."""
    return datetime.now(UTC)


def wall_ns() -> int:
    """The time of day in nanoseconds, the clock that the kernel stamps packets with."""
    return time.time_ns()
