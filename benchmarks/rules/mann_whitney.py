"""The trap: a Mann-Whitney test on requests. Slower if the one-sided p value is below 0.05.

New requests against all stored ones in one pool, as if requests of one session told as much as those
of many: `scipy.stats.mannwhitneyu`, exact for small samples without ties, else the normal limit. Of
interleaved pairs, all new values against all old ones. Reads and prints what `line_protocol` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from line_protocol import answer_lines
from scipy.stats import mannwhitneyu

ALPHA = 0.05


def is_slower(sessions: Sequence[Sequence[float]], new: Sequence[float]) -> bool:
    """Whether new requests rank higher than the stored ones."""
    pooled = list(chain.from_iterable(sessions))
    return float(mannwhitneyu(new, pooled, alternative="greater").pvalue) < ALPHA


if __name__ == "__main__":
    answer_lines(is_slower)
