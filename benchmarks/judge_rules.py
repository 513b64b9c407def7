"""Hold decision rules against simulated CI runs whose truth is known.

    python benchmarks/judge_rules.py                       the product's rule and three naive ones
    python benchmarks/judge_rules.py -- python MINE.py     a rule of your own

A rule is a command that reads JSON cases and prints words, as `decision_adapter.py` describes. Each
scenario makes so many cases with the machine of `noise_model.py`; shares stand with their 95 % Wilson
intervals. "same" scenarios ask for false alarms, the others for what is caught. In a suite of
unchanged tests the share is that of suites in which any test is called slower.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from noise_model import Seconds, Temper, pairs, sessions, slowed, suite
from scipy.stats import binomtest
from tabulate import tabulate

HERE = Path(__file__).parent
WORDS = ("slower", "ok", "inconclusive")
RULES = {
    "session rule": HERE / "decision_adapter.py",
    "Mann-Whitney p < .05": HERE / "rules" / "mann_whitney.py",
    "median > 10 %": HERE / "rules" / "median_threshold.py",
    "asv continuous": HERE / "rules" / "asv_step.py",
}
TESTS, COMMON = 20, 0.5
BLOCKS, PAIRS = 5, 10
SUITES_PER_CASE = 5
"""A suite costs as much as many single cases: of suites, a fifth as many are made."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One kind of case: `stored` sessions of so many `requests`, and a new one, `factor` times slower.

    `share` of the new session's requests are slowed.
    """

    name: str
    temper: Temper = field(default_factory=Temper)
    kind: str = "test"
    stored: int = 5
    requests: int = 20
    factor: float = 1.0
    share: float = 1.0

    def cases(self, count: int, rng: np.random.Generator) -> Iterator[dict[str, Any]]:
        """Yield the JSON cases; of suites a fifth of the count."""
        for _ in range(self.size(count)):
            yield getattr(self, f"_{self.kind}")(rng)

    def size(self, count: int) -> int:
        """How many cases there are where so many are asked for."""
        return max(1, count // SUITES_PER_CASE) if self.kind == "suite" else count

    def _test(self, rng: np.random.Generator) -> dict[str, Any]:
        new, *stored = sessions(rng, self.temper, 1 + self.stored, self.requests)
        return {"baseline": shown(stored), "current": shown(slowed(rng, new, self.factor, self.share))}

    def _suite(self, rng: np.random.Generator) -> dict[str, Any]:
        seconds = suite(rng, self.temper, TESTS, 1 + self.stored, self.requests, common=COMMON)
        return {"suite": [{"baseline": shown(each[1:]), "current": shown(each[0])} for each in seconds]}

    def _duet(self, rng: np.random.Generator) -> dict[str, Any]:
        seconds = pairs(rng, self.temper, BLOCKS, PAIRS)
        seconds[..., 1] *= self.factor
        return {"duet": shown(seconds)}


STEADY, TWO, FIVE, TEN = (Temper(between_sd=sd) for sd in (0.0, 0.02, 0.05, 0.10))
BUSY = Temper(between_sd=0.02, load_share=0.3)
SCENARIOS = (
    Scenario("same, sessions 0 %, K=5", STEADY),
    Scenario("same, sessions 2 %, K=1", TWO, stored=1),
    Scenario("same, sessions 2 %, K=5", TWO),
    Scenario("same, sessions 5 %, K=5", FIVE),
    Scenario("same, sessions 5 %, K=5, n=50", FIVE, requests=50),
    Scenario("same, sessions 10 %, K=5", TEN),
    Scenario("same, outliers 10 %", Temper(outlier_share=0.1)),
    Scenario("same, busy machine", BUSY),
    Scenario("suite of 20, same, sessions 5 %: any", FIVE, "suite"),
    Scenario("pairs 5x10, same, sessions 10 %", TEN, "duet"),
    Scenario("+10 %, sessions 2 %, K=5", TWO, factor=1.1),
    Scenario("+10 %, sessions 2 %, K=10", TWO, stored=10, factor=1.1),
    Scenario("+20 %, sessions 2 %, K=3", TWO, stored=3, factor=1.2),
    Scenario("+20 %, sessions 5 %, K=5", FIVE, factor=1.2),
    Scenario("+50 %, sessions 5 %, K=1", FIVE, stored=1, factor=1.5),
    Scenario("+50 %, busy machine, K=5", BUSY, factor=1.5),
    Scenario("half of requests x2, sessions 2 %", TWO, factor=2.0, share=0.5),
    Scenario("pairs 5x10, +10 %, sessions 10 %", TEN, "duet", factor=1.1),
    Scenario("30 % of requests x2, sessions 2 %", TWO, factor=2.0, share=0.3),
    Scenario("+20 %, sessions 2 %, K=5", TWO, factor=1.2),
    Scenario("pairs 5x10, +5 %, sessions 10 %", TEN, "duet", factor=1.05),
)


def shown(seconds: Seconds | Sequence[Seconds]) -> list[Any]:
    """Seconds with the digits that a report keeps."""
    rounded: list[Any] = np.round(np.asarray(seconds), 7).tolist()
    return rounded


def answers(command: Sequence[str], cases: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return a rule's words on each case; raises `SystemExit` if they do not fit the cases."""
    text = "".join(json.dumps(case) + "\n" for case in cases)
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    wanted = [len(case.get("suite", [case])) for case in cases]
    if [len(line) for line in lines] != wanted or not all(set(line) <= set(WORDS) for line in lines):
        raise SystemExit(f"{' '.join(command)} did not answer one of {', '.join(WORDS)} a test")
    return lines


def share(hits: int, count: int) -> str:
    """Return a share with its 95 % Wilson interval, in percent."""
    found = binomtest(hits, count).proportion_ci(method="wilson")
    return f"{100 * hits / count:5.1f} [{100 * found.low:.1f}, {100 * found.high:.1f}]"


def gravest(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return one word a case, of a suite its gravest: slower, then inconclusive, then ok."""
    order = ("slower", "inconclusive", "ok")
    return [min(line, key=order.index) for line in lines]


def judged(command: Sequence[str], count: int, seed: int) -> list[list[str]]:
    """Return one word a case for each scenario; all go to the command at once."""
    made = [
        list(scenario.cases(count, np.random.default_rng([seed, place])))
        for place, scenario in enumerate(SCENARIOS)
    ]
    lines = iter(gravest(answers(command, [case for cases in made for case in cases])))
    return [[next(lines) for _ in cases] for cases in made]


def table(found: Sequence[Sequence[str]]) -> str:
    """Return all shares of one rule."""
    rows = [
        [scenario.name, *(share(words.count(word), len(words)) for word in WORDS)]
        for scenario, words in zip(SCENARIOS, found, strict=True)
    ]
    return str(tabulate(rows, ["scenario", *(f"{word} %" for word in WORDS)], disable_numparse=True))


def comparison(found: dict[str, list[list[str]]]) -> str:
    """Return the share of slower, a column for each rule."""
    rows = [
        [scenario.name, *(share(rule[place].count("slower"), len(rule[place])) for rule in found.values())]
        for place, scenario in enumerate(SCENARIOS)
    ]
    return str(tabulate(rows, ["slower %", *found], disable_numparse=True))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", type=int, default=500, help="a scenario, of suites a fifth (default: 500)")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    parser.add_argument("command", nargs="*", help="the rule, after --")
    given = parser.parse_args()
    if given.cases < 1:
        parser.error("--cases: at least one")
    return given


def main() -> None:
    given = arguments()
    rules = {name: [sys.executable, str(file)] for name, file in RULES.items()}
    if given.command:
        rules = {" ".join(given.command): given.command}
    found = {}
    for name, command in rules.items():
        found[name] = judged(command, given.cases, given.seed)
        print(f"{name}, {given.cases} cases, seed {given.seed}\n\n{table(found[name])}\n", flush=True)
    if len(found) > 1:
        print(comparison(found))


if __name__ == "__main__":
    main()
