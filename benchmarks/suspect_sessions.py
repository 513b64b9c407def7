"""What becomes of suspect sessions night by night: simulated updates of unchanged and of slower code.

A test has some stored sessions; then each night it is judged and, unless it is slower, stored. Two
ways to treat a suspect session:

    counted   it belongs to the baseline at once
    pending   it counts only once a later session is not suspect; until then the suspects before a
              flagged session are judged together with it (what the product does)

Per cent of nights with each verdict, by nights since the code became slower.
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np
from noise_model import Seconds, Temper, sessions
from tabulate import tabulate

from pytest_llmspeed.regression.session_test import compare
from pytest_llmspeed.regression.verdicts import Verdict

REQUESTS = 20
WORDS = (Verdict.SLOWER, Verdict.SUSPECT, Verdict.INCONCLUSIVE, Verdict.PASSED, Verdict.FASTER)
SPANS = ((0, 1), (1, 5), (5, 15))


def nights(stored: Seconds, new: Seconds, *, pending: bool) -> list[Verdict]:
    """Return the verdict of each night; a slower session is not stored, a faster one starts a level."""
    counting, waiting = list(stored.tolist()), list[list[float]]()
    verdicts = []
    for seconds in new.tolist():
        found = compare(counting, seconds, pending=waiting, pending_span_a_day=True).verdict
        verdicts.append(found)
        if found is Verdict.FASTER:
            counting, waiting = [seconds], []
        elif found is Verdict.SUSPECT and pending:
            waiting.append(seconds)
        elif found is not Verdict.SLOWER:
            counting, waiting = [*counting, *waiting, seconds], []
    return verdicts


def rows(factor: float, sd: float, stored: int, cases: int, seed: int) -> list[list[str]]:
    """The lines of one scenario: both treatments, each span of nights."""
    found: dict[tuple[bool, tuple[int, int]], Counter[Verdict]] = {}
    last = SPANS[-1][1]
    for case in range(cases):
        rng = np.random.default_rng([seed, case, int(1000 * sd), stored])
        made = sessions(rng, Temper(between_sd=sd), stored + last, REQUESTS)
        for pending in (False, True):
            verdicts = nights(made[:stored], made[stored:] * factor, pending=pending)
            for span in SPANS:
                found.setdefault((pending, span), Counter()).update(verdicts[slice(*span)])
    what = "same" if factor == 1 else f"+{(factor - 1) * 100:.0f}%"
    return [
        [
            f"{what}, sessions {sd * 100:.0f}%, K={stored}",
            "pending" if pending else "counted",
            f"{span[0] + 1} to {span[1]}",
            *(f"{100 * count[word] / count.total():.1f}" for word in WORDS),
        ]
        for (pending, span), count in sorted(found.items())
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", type=int, default=200, help="series of nights a scenario (default: 200)")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    given = parser.parse_args()
    scenarios = [(1.0, sd, k) for sd in (0.02, 0.05, 0.10) for k in (1, 5)]
    scenarios += [(factor, 0.02, 5) for factor in (1.1, 1.15)]
    lines = [row for scenario in scenarios for row in rows(*scenario, given.cases, given.seed)]
    print(tabulate(lines, ["per cent of nights", "suspects", "nights", *WORDS], tablefmt="github"))


if __name__ == "__main__":
    main()
