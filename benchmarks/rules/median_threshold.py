"""A threshold on the median. Slower if the new median is more than 10 % above the stored ones.

The way of pytest-benchmark, `--benchmark-compare-fail=median:10%`, which takes one stored run to
compare with; here it gets the median of the stored sessions' medians, which is steadier. Of
interleaved pairs, the median of all new values against that of all old ones. No spread enters, so
there is nothing that it could be unsure of. Reads and prints what `line_protocol` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from line_protocol import answer_lines

FACTOR = 1.10


def is_slower(sessions: Sequence[Sequence[float]], new: Sequence[float]) -> bool:
    """Whether the new median exceeds the usual one by more than the factor."""
    return median(new) > FACTOR * median(median(session) for session in sessions)


if __name__ == "__main__":
    answer_lines(is_slower)
