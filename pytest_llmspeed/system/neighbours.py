"""Other programs on this machine, and how much of the processor makes them a disturbance."""

from __future__ import annotations

from dataclasses import dataclass

BUSY_SHARE = 0.1
"""A request whose engine lost this share of its processor time to others, or more, is disturbed."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another program on the machine, and how many cores it used on average."""

    name: str
    cores: float
