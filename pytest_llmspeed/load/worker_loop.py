"""What a worker process of a load waits with: sockets first, chores when none has anything to read."""

from __future__ import annotations

import selectors
import time
from collections import deque
from collections.abc import Callable
from math import inf

from pytest_llmspeed.system import clock
from pytest_llmspeed.transport.read_pacing import ReadPacing

MOST_CHORES = 2048
GATHER_FROM = 12
"""With fewer sockets than this, processes' own pipes among them, each is read at once."""


class LoadSelector(selectors.DefaultSelector):
    """Waits for the sockets; chores are done when none of them has anything to read.

    Where the kernel says when each byte came there is a `pacing`, and what arrives within it is read
    together: with many streams nearly every chunk would wake the process for itself, so to wait a little
    before reading costs no truth, and halves the processor time. No timer is kept waiting.
    """

    pacing: ReadPacing | None = None
    gathered_s = 0.0
    """The longest of these waits."""

    def __init__(self) -> None:
        super().__init__()
        self.chores: deque[Callable[[], object]] = deque()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready."""
        if self.chores and timeout != 0:
            return self._busy()
        pacing = self.pacing
        if pacing is None or timeout == 0 or len(self.get_map()) < GATHER_FROM:
            return super().select(timeout)
        due_s = inf if timeout is None else clock.now_s() + timeout
        if not (ready := super().select(timeout)):
            return ready
        wait_s = min(pacing.gather_s, due_s - clock.now_s())
        if wait_s <= 0:
            return ready
        self.gathered_s = max(self.gathered_s, wait_s)
        time.sleep(wait_s)
        return super().select(0)

    def _busy(self) -> list[tuple[selectors.SelectorKey, int]]:
        """Do chores until there is something to read, or none are left; one at least where many wait."""
        if len(self.chores) > MOST_CHORES:
            self.chores.popleft()()
        while not (ready := super().select(0)) and self.chores:
            self.chores.popleft()()
        return ready

    def do_chores(self) -> None:
        """Do all that is left."""
        while self.chores:
            self.chores.popleft()()
