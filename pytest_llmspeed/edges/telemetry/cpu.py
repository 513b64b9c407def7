"""The processor time that others took: processes that are not ours, and what the hypervisor stole."""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass

from pytest_llmspeed.edges import clock, processes

STAT = "/proc/stat"
SHORTEST_LOOK_S = 0.1
"""The kernel counts in ticks of 10 ms: over less than this, a share of them says nothing."""
TICKS_OF_DOUBT_S = 0.02


@dataclass(frozen=True, slots=True)
class CPUReading:
    """Processor seconds since boot: of everyone (stolen time among them), and of our processes."""

    at_s: float
    all_s: float
    own_s: float


def read(root: int | None = None) -> CPUReading | None:
    """Return the current reading, None where the system does not tell (it does on Linux).

    Ours are this process, and `root` with all its descendants if one is given.
    """
    try:
        with open(STAT, encoding="ascii") as file:
            fields = [int(field) for field in file.readline().split()[1:9]]
    except (OSError, ValueError):
        return None
    user, nice, system, _idle, _wait, irq, soft_irq, stolen = fields
    ticks = user + nice + system + irq + soft_irq + stolen
    own, per_s = os.times(), os.sysconf("SC_CLK_TCK")
    below = 0 if root is None else processes.ticks_of_tree(root)
    return CPUReading(clock.now_s(), ticks / per_s, own.user + own.system + below / per_s)


class CPUWatch:
    """Tells, at the end of each request, what share of the machine others had during it.

    `root` is the process whose descendants work for this one, where there is such a process.
    """

    def __init__(self, root: int | None = None) -> None:
        self._root = root
        self._cores = os.cpu_count() or 1
        self._readings: deque[CPUReading] = deque(maxlen=4096)
        self.look()

    def look(self) -> None:
        """Take a reading: before a request that does not follow another one at once."""
        if reading := read(self._root):
            self._readings.append(reading)

    def foreign_share(self, duration_s: float) -> float | None:
        """The share (0 to 1) of all cores that others used in the last `duration_s`, or a little more.

        None where it cannot be told. What the kernel's ticks leave in doubt counts as nobody's.
        """
        now = read(self._root)
        if now is None:
            return None
        start = self._reading_before(now.at_s - max(duration_s, SHORTEST_LOOK_S))
        self._readings.append(now)
        elapsed_s = now.at_s - start.at_s if start else 0.0
        if start is None or elapsed_s <= 0:
            return None
        foreign_s = (now.all_s - start.all_s) - (now.own_s - start.own_s)
        return max(0.0, foreign_s - TICKS_OF_DOUBT_S) / (elapsed_s * self._cores)

    def _reading_before(self, moment_s: float) -> CPUReading | None:
        """The last reading before a moment, else the first there is; older ones are forgotten."""
        while len(self._readings) > 1 and self._readings[1].at_s <= moment_s:
            self._readings.popleft()
        return self._readings[0] if self._readings else None
