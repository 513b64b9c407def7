"""Whose turn it is: two runs of pytest send their requests in the order AB BA AB …, test by test."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType

from pytest_llmspeed.recording.turns import GIVE, GO, TAKE

ORDER = (0, 1, 1, 0)
"""Old first, new first: what comes second in one pair begins the next."""
SIDES = (0, 1)


@dataclass(slots=True)
class Waiting:
    """A test of one side that wants to send; `go` tells it that it may, and fails if it is gone."""

    test: str
    go: Callable[[], object]


@dataclass(slots=True)
class Turns:
    """The decision whose turn it is; `side` is 0 for old and 1 for new.

    While both sides are in the same test they alternate, each waiting for the other. A side that is
    behind goes on alone until it has caught up; one that is gone is not waited for.
    """

    waiting: tuple[deque[Waiting], deque[Waiting]] = field(default_factory=lambda: (deque(), deque()))
    seen: tuple[set[str], set[str]] = field(default_factory=lambda: (set(), set()))
    gone: list[bool] = field(default_factory=lambda: [False, False])
    holder: int | None = None
    together: str | None = None
    turn: int = 0

    def ask(self, side: int, waiting: Waiting) -> None:
        """Note that a side wants to send."""
        self.seen[side].add(waiting.test)
        self.waiting[side].append(waiting)

    def next(self) -> tuple[int, Waiting] | None:
        """Return who may send now, None while somebody sends or has to be waited for."""
        if self.holder is not None or (side := self._side()) is None:
            return None
        self.holder = side
        return side, self.waiting[side].popleft()

    def _side(self) -> int | None:
        tests = [queue[0].test if queue else None for queue in self.waiting]
        if None not in tests and tests[0] == tests[1] != self.together:
            self.together, self.turn = tests[0], 0
        due = ORDER[self.turn % len(ORDER)]
        for side in SIDES:
            if tests[side] is not None and self.gone[1 - side]:
                return side
        if tests[due] is not None and tests[due] == self.together:
            self.turn += 1
            return due
        if None in tests or tests[0] == tests[1]:
            return None
        return next((side for side in SIDES if tests[side] in self.seen[1 - side]), 0)

    def give(self, side: int) -> None:
        """Note that a side has ended what it sent."""
        if self.holder == side:
            self.holder = None

    def leave(self, side: int) -> None:
        """Note that a side is gone."""
        self.gone[side] = True
        self.waiting[side].clear()
        self.give(side)


class TurnServer:
    """The sockets on which both sides ask; a thread for each connection."""

    def __enter__(self) -> TurnServer:
        self._folder = tempfile.TemporaryDirectory(prefix="llmspeed-turns-")
        self._changed = threading.Lock()
        self.turns = Turns()
        self._listeners = [self._listen(side) for side in SIDES]
        return self

    def address(self, side: int) -> str:
        """The address for a side's children."""
        return str(Path(self._folder.name, str(side)))

    def _listen(self, side: int) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.address(side))
        os.chmod(self.address(side), 0o600)
        listener.listen()
        threading.Thread(target=self._accept, args=(listener, side), daemon=True).start()
        return listener

    def _accept(self, listener: socket.socket, side: int) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=self._serve, args=(connection, side), daemon=True).start()

    def _serve(self, connection: socket.socket, side: int) -> None:
        with suppress(OSError), connection, connection.makefile("rb") as lines:
            for line in lines:
                word, _, test = line.rstrip(b"\n").partition(b" ")
                with self._changed:
                    if word == TAKE:
                        self.turns.ask(
                            side,
                            Waiting(test.decode("utf-8", "replace"), partial(connection.sendall, GO + b"\n")),
                        )
                    elif word == GIVE:
                        self.turns.give(side)
                    self._let_go()
        with self._changed:
            self.turns.give(side)
            self._let_go()

    def ended(self, side: int) -> None:
        """Note that the run of a side has ended: the other goes on alone."""
        with self._changed:
            self.turns.leave(side)
            self._let_go()

    def _let_go(self) -> None:
        while (granted := self.turns.next()) is not None:
            side, waiting = granted
            try:
                waiting.go()
            except OSError:  # it is gone: its turn goes to the next
                self.turns.give(side)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for listener in self._listeners:
            listener.close()
        self._folder.cleanup()
