"""How fast the streams of a load come, and so how long what has come may wait to be read together."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from operator import sub

LEAST_S, MOST_S = 0.0005, 0.002
SHARE = 0.1
FEWEST = 8
"""The least number of pieces in an answer that pacing learns from."""
RECENT = 64


class ReadPacing:
    """A tenth of the time between two pieces of the same answer, as the fastest of the last answers came.

    It is the time that a tenth of an answer's pieces fell below, so that a piece that came right behind
    another by accident changes nothing, but a server that sends several at a time does.
    """

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=RECENT)
        self.gather_s = LEAST_S

    def learn(self, stamps_s: Sequence[float]) -> None:
        """Learn from the stamps of an answer's pieces."""
        if len(stamps_s) < FEWEST:
            return
        gaps_s = sorted(map(sub, stamps_s[1:], stamps_s))
        self._recent.append(gaps_s[len(gaps_s) // 10])
        self.gather_s = min(MOST_S, max(LEAST_S, SHARE * min(self._recent)))
