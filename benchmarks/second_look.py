"""The second look, simulated: what one job calls slower, and what two jobs do, on sessions of known truth.

    python benchmarks/second_look.py --cases 4000

A test has K stored sessions of 20 requests. The first job's session is judged by the session rule alone
("one job"); if it is grey, a second job measures again, and both decide together. The mood of the second job
is correlated with that of the first by one half ("hours later"), or its own ("another day"). "oracle" knows
how far sessions differ, and not where the baseline lies. Per cent of tests called slower, and of tests
that need a second job.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import numpy as np
from noise_model import USUAL_S, Seconds, Temper, slowed, within
from scipy.stats import norm
from tabulate import tabulate

from pytest_llmspeed.regression.second_look import Looks, compare_twice, is_grey
from pytest_llmspeed.regression.session_test import compare
from pytest_llmspeed.regression.verdicts import Verdict

REQUESTS = 20
CORRELATION = 0.5
Moods = Callable[[np.random.Generator, int], Seconds]


@dataclass(frozen=True, slots=True)
class Scenario:
    """Sessions of a machine with such moods, and a new version that slows a share of its requests."""

    name: str
    moods: Moods
    sd: float
    stored: int = 5
    factor: float = 1.0
    share: float = 1.0


def normal(sd: float) -> Moods:
    """Moods that lie around the usual one."""
    return lambda rng, count: rng.normal(0.0, sd, count)


def skewed(sd: float) -> Moods:
    """Moods that are only ever bad, exponentially."""
    return lambda rng, count: rng.exponential(sd, count)


def bimodal(slow: float, share: float) -> Moods:
    """One machine in so many is another, slower model."""
    return lambda rng, count: np.log1p(slow) * (rng.random(count) < share)


SCENARIOS = (
    *(Scenario(f"same, sessions {sd:.0%}, K=5", normal(sd), sd) for sd in (0.02, 0.05, 0.10)),
    Scenario("same, skewed 5%, K=5", skewed(0.05), 0.05),
    Scenario("same, one runner in ten 15% slower, K=5", bimodal(0.15, 0.1), 0.15 * sqrt(0.09)),
    *(Scenario(f"+10%, sessions 2%, K={k}", normal(0.02), 0.02, k, 1.10) for k in (3, 5, 10)),
    Scenario("+20%, sessions 5%, K=5", normal(0.05), 0.05, 5, 1.20),
    Scenario("half of the requests x2, sessions 2%, K=5", normal(0.02), 0.02, 5, 2.0, 0.5),
    Scenario("30% of the requests x2, sessions 2%, K=5", normal(0.02), 0.02, 5, 2.0, 0.3),
)


def measured(rng: np.random.Generator, moods: Seconds, scenario: Scenario, *, new: bool) -> list[list[float]]:
    """Return the seconds of a session for each mood."""
    inner = within(rng, Temper(), len(moods), REQUESTS)
    seconds = USUAL_S * np.exp(moods[:, None] + inner)
    if new:
        seconds = slowed(rng, seconds, scenario.factor, scenario.share)
    found: list[list[float]] = seconds.tolist()
    return found


def case(rng: np.random.Generator, scenario: Scenario) -> tuple[bool, bool, bool, bool]:
    """Return whether one job is slower, whether it is grey, and whether two are: hours later, another day."""
    stored = measured(rng, scenario.moods(rng, scenario.stored), scenario, new=False)
    moods = scenario.moods(rng, 2)
    (first,) = measured(rng, moods[:1], scenario, new=True)
    alone = compare(stored, first).verdict is Verdict.SLOWER
    if not (grey := is_grey(stored, first)):
        return alone, grey, False, False
    alike = CORRELATION * moods[:1] + sqrt(1 - CORRELATION**2) * moods[1:]
    (soon,) = measured(rng, alike, scenario, new=True)
    (later,) = measured(rng, moods[1:], scenario, new=True)
    hours = compare_twice(stored, first, soon).verdict is Verdict.SLOWER
    day = compare_twice(stored, first, later, looks=Looks(on_another_day=True)).verdict is Verdict.SLOWER
    return alone, grey, hours, day


def oracle(scenario: Scenario) -> str:
    """Per cent that a test calls slower which knows the spread of sessions; only where all requests are."""
    if scenario.share < 1 or scenario.factor == 1:
        return "–"
    within_sd = 0.03 * sqrt((1.3 / 0.7) / REQUESTS)
    se = sqrt((scenario.sd**2 + within_sd**2) * (1 + 1 / scenario.stored))
    return f"{100 * norm.sf(norm.isf(0.005) - np.log(scenario.factor) / se):.0f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", type=int, default=2000, help="tests a line (default: 2000)")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    given = parser.parse_args()
    lines = []
    for number, scenario in enumerate(SCENARIOS):
        found = [case(np.random.default_rng([given.seed, number, c]), scenario) for c in range(given.cases)]
        alone, grey, hours, day = (
            f"{100 * sum(column) / given.cases:.1f}" for column in zip(*found, strict=True)
        )
        lines.append([scenario.name, alone, oracle(scenario), hours, day, grey])
    heads = ["", "one job", "oracle", "second look, hours later", "another day", "second jobs"]
    print(tabulate(lines, heads, tablefmt="github"))


if __name__ == "__main__":
    main()
