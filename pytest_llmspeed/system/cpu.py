"""The processor time that an engine asked for and did not get, and the programs that had it instead."""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass

from pytest_llmspeed.system import clock, processes
from pytest_llmspeed.system.neighbours import BUSY_SHARE, Neighbour

STAT = "/proc/stat"
SHORTEST_LOOK_S = 0.1
"""The kernel counts in ticks of 10 ms: over less than this, a share of them says nothing."""
TICKS_OF_DOUBT_S = 0.02
FRESH_S = 0.03
"""A reading of this age is as good as another one: many requests at once ask for fewer."""
SATURATED = 0.05
"""Where the kernel does not count waits, cores that are idle for less than this share make some."""
MOST_NAMED, LEAST_CORES = 3, 0.05


@dataclass(frozen=True, slots=True)
class CPUReading:
    """Processor seconds since boot: of everyone, stolen ones among them, and of our processes.

    `waited_s` is how long our threads were ready to run and had no core, None where the kernel does
    not count it; `stolen_s` what the hypervisor gave to other machines.
    """

    at_s: float
    all_s: float
    own_s: float
    waited_s: float | None = None
    stolen_s: float = 0.0


def read(root: int | None = None) -> CPUReading | None:
    """Return the current reading, None where the system does not tell (it does on Linux).

    Ours are this process, and with a `root` all its descendants and those of this process.
    """
    try:
        with open(STAT, encoding="ascii") as file:
            fields = [int(field) for field in file.readline().split()[1:9]]
    except (OSError, ValueError):
        return None
    user, nice, system, _idle, _wait, irq, soft_irq, stolen = fields
    ticks, per_s = user + nice + system + irq + soft_irq + stolen, os.sysconf("SC_CLK_TCK")
    own = {os.getpid()} if root is None else processes.numbers_of_trees(os.getpid(), root)
    own_s = processes.ticks(own) / per_s
    return CPUReading(clock.now_s(), ticks / per_s, own_s, processes.waited_s(own), stolen / per_s)


def lost_share(before: CPUReading, now: CPUReading, cores: int) -> float | None:
    """Return the share (0 to 1) of the processor time that our threads asked for and others had.

    A wait counts as far as others used the processor meanwhile: our own threads wait for each other
    too. So a program on a core that the engine leaves free takes nothing. Time that the hypervisor
    stole is ours in proportion to what we ran. None if no time has passed.
    """
    elapsed_s, own_s = now.at_s - before.at_s, now.own_s - before.own_s
    if elapsed_s <= 0:
        return None
    all_s, stolen_s = now.all_s - before.all_s, now.stolen_s - before.stolen_s
    foreign_s = max(0.0, all_s - stolen_s - own_s - TICKS_OF_DOUBT_S)
    if before.waited_s is None or now.waited_s is None:
        idle_s = cores * elapsed_s - all_s
        taken_s = foreign_s if idle_s < SATURATED * cores * elapsed_s else 0.0
    else:
        taken_s = min(max(0.0, now.waited_s - before.waited_s), foreign_s)
    ran_s = all_s - stolen_s
    lost_s = taken_s + (max(0.0, stolen_s - TICKS_OF_DOUBT_S) * own_s / ran_s if ran_s > 0 else 0.0)
    return min(1.0, lost_s / max(elapsed_s, own_s + lost_s))


class CPUWatch:
    """Tells, at the end of each request, what share of its processor time an engine lost to others.

    `root` is the process whose descendants work for this one, where there is such a process. From
    `busy_share` on, a request counts as disturbed.
    """

    def __init__(self, root: int | None = None, busy_share: float = BUSY_SHARE) -> None:
        self.busy_share = busy_share
        self._root = root
        self._cores = os.cpu_count() or 1
        self._readings: deque[CPUReading] = deque(maxlen=4096)
        self._everyone, self._began_s = processes.everyone(), clock.now_s()
        self.look()

    def look(self) -> None:
        """Take a reading: before a request that does not follow another one at once."""
        self._now()

    def _now(self) -> CPUReading | None:
        last = self._readings[-1] if self._readings else None
        if last is not None and 0 <= clock.now_s() - last.at_s < FRESH_S:
            return last
        if reading := read(self._root):
            self._readings.append(reading)
        return reading

    def foreign_share(self, duration_s: float) -> float | None:
        """Return the share (0 to 1) of its processor time that the engine lost in the last `duration_s`.

        Or in a little more. None where it cannot be told; what the kernel's ticks leave in doubt
        counts as nobody's.
        """
        now = self._now()
        if now is None:
            return None
        start = self._reading_before(now.at_s - max(duration_s, SHORTEST_LOOK_S))
        return lost_share(start, now, self._cores) if start else None

    def _reading_before(self, moment_s: float) -> CPUReading | None:
        """The last reading before a moment, else the first there is; older ones are forgotten."""
        while len(self._readings) > 1 and self._readings[1].at_s <= moment_s:
            self._readings.popleft()
        return self._readings[0] if self._readings else None

    def neighbours(self) -> tuple[Neighbour, ...]:
        """Return the programs that used the processor most since the watch began, ours left out."""
        elapsed_s = clock.now_s() - self._began_s
        if elapsed_s <= 0 or not self._everyone:
            return ()
        now, per_s = processes.everyone(), os.sysconf("SC_CLK_TCK")
        own = processes.numbers_of_trees(os.getpid(), self._root or os.getpid())
        workers = processes.numbers_of_other_workers()
        cores: dict[str, float] = {}
        for pid, process in now.items():
            before = self._everyone.get(pid)
            since = before.ticks if before and before.started == process.started else 0
            used = (process.ticks - since) / per_s / elapsed_s
            if pid not in own and used > 0:
                name = "another worker of this run" if pid in workers else processes.name_of(pid, process)
                cores[name] = cores.get(name, 0.0) + used
        busiest = sorted(cores.items(), key=lambda item: -item[1])[:MOST_NAMED]
        return tuple(Neighbour(name, used) for name, used in busiest if used >= LEAST_CORES)
