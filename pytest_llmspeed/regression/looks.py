"""Looks at a comparison that may go on: what ends it early, and what its last look asks.

Whoever looks after each block and stops at the first small p value raises false alarms. So a comparison that
is looked at on the way has stricter limits: an early look may use a tenth of alpha and asks an interval
of 99.5% to pass, the last look six tenths. `benchmarks/old_against_new.py` simulates the error rates of
the whole procedure.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST_LOOK = 3
"""Blocks measured before the first look."""


@dataclass(frozen=True, slots=True)
class Look:
    """`share` is the part of alpha that a verdict may use, `level` that of the interval which has to pass."""

    share: float
    level: float


ONLY_LOOK = Look(share=1.0, level=0.95)
EARLY_LOOK = Look(share=0.1, level=0.995)
LAST_LOOK = Look(share=0.6, level=0.95)
