"""Old against new, simulated: false alarms and power of both forms, with their looks on the way.

    python benchmarks/old_against_new.py --cases 2000 --seed 1

*Runs*: blocks of whole pytest runs, one of either side, whose moods are independent. *Pairs*: blocks in
which both sides start afresh and answer in turn; the mood of the minute falls out, and what is left
between blocks is that of fresh processes. After each block from the third on the rule looks, and a
verdict ends the comparison; the last block's look decides. Per cent of comparisons with each
verdict, and the mean number of blocks that were measured.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from noise_model import Temper, pairs, sessions
from tabulate import tabulate

from pytest_llmspeed.regression.block_test import compare_blocks
from pytest_llmspeed.regression.looks import EARLY_LOOK, FIRST_LOOK, LAST_LOOK, Look
from pytest_llmspeed.regression.paired_test import compare_pairs
from pytest_llmspeed.regression.verdicts import Verdict

SPREADS = (0.02, 0.05, 0.10)
FACTORS = (1.0, 1.05, 1.10, 1.15, 1.20, 1.50)
WORDS = (Verdict.SLOWER, Verdict.INCONCLUSIVE, Verdict.PASSED, Verdict.FASTER)
BURSTS = {"load_share": 0.15}

Judge = Callable[[int, Look], Verdict]
"""The verdict on the first so many blocks."""


def ended(judge: Judge, blocks: int) -> tuple[Verdict, int]:
    """Return the verdict of a comparison of at most so many blocks, and how many it took."""
    for count in range(min(FIRST_LOOK, blocks), blocks):
        if (verdict := judge(count, EARLY_LOOK)) is not Verdict.INCONCLUSIVE:
            return verdict, count
    return judge(blocks, LAST_LOOK), blocks


def of_runs(rng: np.random.Generator, temper: Temper, factor: float, blocks: int, requests: int) -> Judge:
    """Blocks of runs."""
    old = sessions(rng, temper, blocks, requests).tolist()
    new = (factor * sessions(rng, temper, blocks, requests)).tolist()
    both = list(zip(old, new, strict=True))
    return lambda count, look: compare_blocks(both[:count], look=look).verdict


def of_pairs(rng: np.random.Generator, temper: Temper, factor: float, blocks: int, requests: int) -> Judge:
    """Interleaved pairs: the spread between sessions is common to both sides, that of starts is not."""
    seconds = pairs(rng, temper, blocks, requests)
    seconds[:, :, 1] *= factor
    listed = [[(old, new) for old, new in block] for block in seconds.tolist()]
    return lambda count, look: compare_pairs(listed[:count], look=look).verdict


def row(make: Callable[[np.random.Generator], Judge], blocks: int, cases: Sequence[int]) -> list[str]:
    """Per cent of each verdict, and the mean number of blocks."""
    counts, used = Counter[Verdict](), 0
    for case in cases:
        verdict, taken = ended(make(np.random.default_rng(case)), blocks)
        counts[verdict] += 1
        used += taken
    shares = [f"{100 * counts[word] / len(cases):.1f}" for word in WORDS]
    return [*shares, f"{used / len(cases):.1f}"]


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000, help="comparisons a line (default: 1000)")
    parser.add_argument("--blocks", type=int, default=5, help="default: 5")
    parser.add_argument(
        "--requests", type=int, default=10, help="requests a run or pairs a block (default: 10)"
    )
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    given = parser.parse_args()
    cases = range(given.seed * 1_000_000, given.seed * 1_000_000 + given.cases)
    lines = []
    for name, form, spread in (("runs", of_runs, "between_sd"), ("pairs", of_pairs, "start_sd")):
        for bursts in (False, True):
            for sd in SPREADS:
                temper = Temper(**{"between_sd": 0.05, spread: sd, **(BURSTS if bursts else {})})
                for factor in FACTORS:
                    what = "same" if factor == 1 else f"+{100 * (factor - 1):.0f}%"
                    size = {"factor": factor, "blocks": given.blocks, "requests": given.requests}
                    make = partial(form, temper=temper, **size)
                    found = row(make, given.blocks, cases)
                    lines.append([name, f"{sd:.0%}", "bursts" if bursts else "", what, *found])
    print(tabulate(lines, ["form", "spread", "", "new side", *WORDS, "blocks"], tablefmt="github"))


if __name__ == "__main__":
    main()
