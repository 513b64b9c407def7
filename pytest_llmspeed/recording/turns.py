"""Taking turns with another run: the requests of two runs that are compared never overlap.

`llmspeed ab` runs pytest on both sides at once and lets them send in turn. It names a Unix socket in the
environment; each line says what a test wants: "take TEST" is answered by "go" when it may send, "give"
says that its requests have ended. If the other end is gone, everyone goes.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from functools import lru_cache

VARIABLE = "LLMSPEED_TURNS"
TAKE, GO, GIVE = b"take", b"go", b"give"


class TurnConnection:
    """The turns of one process, over one connection."""

    def __init__(self, address: str) -> None:
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(address)
        self._answers = self._connection.makefile("rb")

    def take(self, test: str) -> None:
        """Wait until a test may send."""
        with suppress(OSError):
            self._connection.sendall(
                b"%s %s\n" % (TAKE, test.encode("utf-8", "replace").replace(b"\n", b" "))
            )
            self._answers.readline()

    def close(self) -> None:
        """Take no more turns."""
        self._answers.close()
        self._connection.close()

    def give(self) -> None:
        """Let the other side send."""
        with suppress(OSError):
            self._connection.sendall(GIVE + b"\n")


@lru_cache(maxsize=1)
def turns_of_this_process() -> TurnConnection | None:
    """Return the turns that this process takes; None unless it was started to take some."""
    address = os.environ.get(VARIABLE)
    return TurnConnection(address) if address else None


class TestTurns:
    """The turns of one test: taken with its first request under way, given back when the last has ended."""

    __test__ = False

    def __init__(self, turns: TurnConnection | None, test: str) -> None:
        self._turns, self._test = turns, test
        self._inside = 0

    def begin(self) -> None:
        """Note that something is sent; the first waits for the turn."""
        if self._turns is not None:
            self._inside += 1
            if self._inside == 1:
                self._turns.take(self._test)

    def end(self) -> None:
        """Note that something has ended; the last gives the turn back."""
        if self._turns is not None and self._inside:
            self._inside -= 1
            if not self._inside:
                self._turns.give()

    def close(self) -> None:
        """Give the turn back, whatever is still under way."""
        self._inside = min(self._inside, 1)
        self.end()


NO_TURNS = TestTurns(None, "")
