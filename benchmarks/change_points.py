"""Change points in simulated histories: false alarms, and steps that are found.

    python benchmarks/change_points.py --cases 1000

Sessions scatter by 3%, 2% of them are 1.2 to 1.5 times as slow; with a correlation each resembles the one
before it. A step is found if a change point lies within two sessions of it.
"""

from __future__ import annotations

import argparse

import numpy as np
from noise_model import Seconds, correlated
from tabulate import tabulate

from pytest_llmspeed.regression.change_points import change_points

LENGTHS = (10, 20, 50, 200)
STEPS = (1.0, 1.05, 1.10, 1.20)


def series(rng: np.random.Generator, n: int, correlation: float) -> Seconds:
    """Return so many sessions of unchanged code, in ms."""
    logs = 0.03 * correlated(rng, correlation, 1, n)[0]
    outliers = rng.random(n) < 0.02
    values: Seconds = 40.0 * np.exp(logs + outliers * np.log(rng.uniform(1.2, 1.5, n)))
    return values


def share(n: int, step: float, correlation: float, cases: int, seed: int) -> float:
    """Return in how many histories a change point is found: anywhere without a step, else beside it."""
    found = 0
    for case in range(cases):
        rng = np.random.default_rng([seed, case, n])
        values = series(rng, n, correlation)
        place = int(rng.integers(n // 3, 2 * n // 3 + 1))
        values[place:] *= step
        places = [point.place for point in change_points(values.tolist())]
        found += bool(places) if step == 1.0 else any(abs(other - place) <= 2 for other in places)
    return found / cases


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", type=int, default=500, help="histories a figure (default: 500)")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    given = parser.parse_args()
    lines = []
    for correlation in (0.0, 0.5):
        for n in LENGTHS:
            shares = [share(n, step, correlation, given.cases, given.seed) for step in STEPS]
            lines.append([f"{correlation:g}", n, *(f"{100 * each:.1f}" for each in shares)])
    heads = ["correlation", "sessions", "no step", *(f"+{100 * (step - 1):.0f}%" for step in STEPS[1:])]
    print(tabulate(lines, heads, tablefmt="github"))


if __name__ == "__main__":
    main()
