"""How often the suite verdict is wrong, and what it sees: simulated suites whose truth is known.

The sessions of a suite share a part of their spread (the machine, the engine) and have the rest each
for itself. Of each case the product's own functions say whether the whole suite is `slower`, and
which tests are slower beside the others; shares stand with their 95 % Wilson intervals.

    suite     the run would fail with "the whole suite is slower"
    beside    some unchanged test is called slower beside the others
    the one   the test that became slower, where there is one, is seen: alone, or beside the others
    alone     … by its own samples only: what the suite adds is the difference
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from noise_model import Seconds, Temper, suite
from scipy.stats import binomtest
from tabulate import tabulate

from pytest_llmspeed.regression.session_test import Prior, compare
from pytest_llmspeed.regression.suite_test import SuiteTest, common_shift, learned_prior, slower_beside
from pytest_llmspeed.regression.verdicts import Verdict

REQUESTS = 20


@dataclass(frozen=True, slots=True)
class Scenario:
    """A suite of `tests` with `stored` sessions: `factor` slower in all, or in the first one only."""

    between_sd: float
    common: float
    tests: int = 20
    stored: int = 5
    factor: float = 1.0
    only_one: bool = False

    @property
    def name(self) -> str:
        """What is simulated, in words."""
        what = "same" if self.factor == 1 else f"+{(self.factor - 1) * 100:.0f} %"
        who = " in one test" if self.only_one else ""
        machine = f"sessions {self.between_sd * 100:.0f} %, {self.common * 100:.0f} % of it shared"
        return f"{what}{who}, {machine}, {self.tests} tests, K={self.stored}"


@dataclass(frozen=True, slots=True)
class Seen:
    """What was said of one suite."""

    suite: bool
    beside: bool
    the_one: bool
    alone: bool


SAME = [
    Scenario(sd, common, tests, stored)
    for sd in (0.02, 0.05, 0.10)
    for common in (0.0, 0.5, 1.0)
    for tests, stored in ((6, 1), (20, 3), (20, 5), (50, 10))
]
CHANGED = [
    *(Scenario(sd, 0.5, 20, 5, factor) for sd in (0.02, 0.05) for factor in (1.1, 1.2, 1.5)),
    *(Scenario(0.02, 0.5, 20, stored, 1.2) for stored in (1, 3, 10)),
    *(Scenario(sd, 0.8, 50, 5, 1.2, only_one=True) for sd in (0.02, 0.05, 0.10)),
]


def seen(scenario: Scenario, rng: np.random.Generator) -> Seen:
    """Simulate one suite and judge it as a run does."""
    temper = Temper(between_sd=scenario.between_sd)
    count = scenario.stored + 1
    seconds = suite(rng, temper, scenario.tests, count, REQUESTS, common=scenario.common)
    changed = slice(0, 1) if scenario.only_one else slice(None)
    seconds[changed, 0] *= scenario.factor
    tests = list(comparisons(seconds))
    shift = common_shift(tests)
    if shift is None:
        raise SystemExit("a suite needs six tests")
    prior = learned_prior([list(test.baseline.values()) for test in tests])
    slower_alone = {test.name for test in tests if is_slower_alone(test, len(tests), prior)}
    beside = {
        test.name
        for test in tests
        if test.name not in slower_alone and slower_beside(test, shift, comparisons=len(tests))
    }
    one = tests[0].name if scenario.only_one else None
    return Seen(
        suite=shift.verdict is Verdict.SLOWER,
        beside=bool(beside - {one}),
        the_one=one in slower_alone | beside,
        alone=one in slower_alone,
    )


def comparisons(seconds: Seconds) -> Iterator[SuiteTest]:
    """The simulated sessions of each test; the first is the new one."""
    for place, (new, *stored) in enumerate(seconds.tolist()):
        yield SuiteTest(str(place), {str(number): values for number, values in enumerate(stored)}, new)


def is_slower_alone(test: SuiteTest, count: int, prior: Prior) -> bool:
    """True if the test's own samples say so."""
    found = compare(list(test.baseline.values()), test.new, comparisons=count, prior=prior)
    return found.verdict is Verdict.SLOWER


def share(hits: int, cases: int) -> str:
    """Per cent with the interval."""
    low, high = binomtest(hits, cases).proportion_ci(method="wilson")
    return f"{100 * hits / cases:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def row(scenario: Scenario, cases: int, seed: int) -> list[str]:
    """One line of the table."""
    rng = np.random.default_rng([seed, *scenario.name.encode()])
    found = [seen(scenario, rng) for _ in range(cases)]
    shown = ("suite", "beside", "the_one", "alone") if scenario.only_one else ("suite", "beside")
    shares = [share(sum(getattr(each, name) for each in found), cases) for name in shown]
    return [scenario.name, *shares, *[""] * (4 - len(shares))]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", type=int, default=500, help="suites of each scenario (default: 500)")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    given = parser.parse_args()
    rows = [row(scenario, given.cases, given.seed) for scenario in (*SAME, *CHANGED)]
    print(tabulate(rows, ["per cent of suites", "suite", "beside", "the one", "alone"], tablefmt="github"))


if __name__ == "__main__":
    main()
