"""Two ways to do the same, timed in alternated pairs: their median, its interval, and a target."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from math import comb
from typing import Any, TypeVar

Found = TypeVar("Found")
LEAST_PAIRS = 6
"""So few hold the median with 95 % between the outermost of them."""
EXIT = {"met": 0, "missed": 1, "undecided": 2}


def seconds(call: Callable[[], Any]) -> float:
    """Return how long one call took."""
    started_s = time.perf_counter()
    call()
    return time.perf_counter() - started_s


def alternated(one: Callable[[], Found], other: Callable[[], Found], pairs: int) -> list[tuple[Found, Found]]:
    """Return what both found in each pair, the order flipped from pair to pair."""
    found = []
    for number in range(pairs):
        if number % 2 == 0:
            of_one = one()
            of_other = other()
        else:
            of_other = other()
            of_one = one()
        found.append((of_one, of_other))
    return found


def interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """Return the order statistics that hold the median with at least `level`, by the sign test.

    Needs `LEAST_PAIRS` values: the outermost of fewer hold it less often.
    """
    ordered, n = sorted(values), len(values)
    tail, cut = 0.0, 0
    while (tail := tail + comb(n, cut) / 2**n) <= (1 - level) / 2:
        cut += 1
    return ordered[cut - 1], ordered[n - cut]


def verdict(more: float, high: float, target: float) -> str:
    """Return what a median and the end of its interval say of a target: a word of `EXIT`."""
    if more > target:
        return "missed"
    return "met" if high <= target else "undecided"


def add_pairs(parser: argparse.ArgumentParser, default: int) -> None:
    """Add the option `--pairs`."""
    parser.add_argument("--pairs", type=_pairs, default=default, help=f"default: {default}")


def _pairs(given: str) -> int:
    if (pairs := int(given)) < LEAST_PAIRS:
        raise argparse.ArgumentTypeError(f"{pairs}: an interval needs at least {LEAST_PAIRS}")
    return pairs
