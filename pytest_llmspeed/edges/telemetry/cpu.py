"""The processor time that others took: other processes, and what the hypervisor stole."""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass

from pytest_llmspeed.edges import clock

STAT = "/proc/stat"
SHORTEST_LOOK_S = 0.1
"""The kernel counts in ticks of 10 ms: over less than this, a share of them says nothing."""
TICKS_OF_DOUBT_S = 0.02


@dataclass(frozen=True, slots=True)
class CPUReading:
    """Processor seconds since boot: of everyone (stolen time among them), and of this process."""

    at_s: float
    all_s: float
    own_s: float


def read() -> CPUReading | None:
    """Return the current reading, None where the system does not tell (it does on Linux)."""
    try:
        with open(STAT, encoding="ascii") as file:
            fields = [int(field) for field in file.readline().split()[1:9]]
    except (OSError, ValueError):
        return None
    user, nice, system, _idle, _wait, irq, soft_irq, stolen = fields
    ticks = user + nice + system + irq + soft_irq + stolen
    own = os.times()
    return CPUReading(clock.now_s(), ticks / os.sysconf("SC_CLK_TCK"), own.user + own.system)


class CPUWatch:
    """Tells, at the end of each request, what share of the machine others had during it."""

    def __init__(self) -> None:
        self._cores = os.cpu_count() or 1
        self._readings: deque[CPUReading] = deque(maxlen=4096)
        self.look()

    def look(self) -> None:
        """Take a reading: before a request that does not follow another one at once."""
        if reading := read():
            self._readings.append(reading)

    def foreign_share(self, duration_s: float) -> float | None:
        """The share (0 to 1) of all cores that others used in the last `duration_s`, or a little more.

        None where it cannot be told. What the kernel's ticks leave in doubt counts as nobody's.
        """
        now = read()
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
