"""The session rule on recorded sessions of two machines, each left out in turn.

Two files of `records/` hold sessions of unchanged code, in seconds: SmolLM2 on a shared CPU (12 sessions
of 15 requests in 16 minutes) and Qwen2 1.5B on an H200 (6 of 16 in 5 minutes). Each session is held against
K of the others through the product's own `compare`, the next time multiplied by 1.2, 1.5 and 2: all
K-subsets of the others, or so many random ones. Plain Mann-Whitney (one-sided p < 0.05) stands beside it.

The comparisons share their sessions, so they are far from independent: a Wilson interval of them is
narrower than what is known. The sessions do not span a day, and the rule is told so; `--days` shows
what it would say if they did. Foreign load was recorded with the CPU sessions, but not on how many
cores: no request is left out as disturbed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from pathlib import Path

import numpy as np
from scipy.stats import binomtest, mannwhitneyu
from tabulate import tabulate

from pytest_llmspeed.regression.session_test import compare
from pytest_llmspeed.regression.verdicts import Verdict

RECORDS = Path(__file__).parent / "records"
SESSIONS = [RECORDS / "cpu_smollm2.jsonl", RECORDS / "h200_qwen2_1.5b.jsonl"]
METRICS = ("ttft", "tpot")
STORED = (1, 3, 5)
SLOWDOWNS = (1.0, 1.2, 1.5, 2.0)
ALPHA = 0.05

Session = Sequence[float]


@dataclass(frozen=True, slots=True)
class Fold:
    """A left-out session and the stored ones that it is held against."""

    new: Session
    stored: tuple[Session, ...]


@dataclass(frozen=True, slots=True)
class Count:
    """How many of some comparisons were called slower."""

    hits: int
    total: int

    @property
    def shown(self) -> str:
        """The count, its share, and the 95 % Wilson interval in percent."""
        found = binomtest(self.hits, self.total).proportion_ci(method="wilson")
        share = f"{100 * self.hits / self.total:.0f} %"
        return f"{self.hits}/{self.total} = {share} [{100 * found.low:.0f}, {100 * found.high:.0f}]"


def sessions_of(file: Path, metric: str) -> list[Session]:
    """Return a metric of each recorded session, in ms."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return [[1000 * seconds for seconds in json.loads(line)[metric]] for line in lines]


def folds(sessions: Sequence[Session], k: int, most: int, rng: np.random.Generator) -> Iterator[Fold]:
    """Yield each session against all k-subsets of the others, or against `most` random ones."""
    for place, new in enumerate(sessions):
        others = [session for other, session in enumerate(sessions) if other != place]
        subsets = list(combinations(others, k))
        if len(subsets) > most:
            subsets = [subsets[chosen] for chosen in rng.choice(len(subsets), most, replace=False)]
        for stored in subsets:
            yield Fold(new, stored)


def rule_says_slower(fold: Fold, factor: float, *, days: bool) -> bool:
    """What the product says of a session that is so many times slower."""
    new = [factor * value for value in fold.new]
    return compare(fold.stored, new, spans_a_day=days).verdict is Verdict.SLOWER


def mann_whitney_says_slower(fold: Fold, factor: float) -> bool:
    """What a plain test on pooled requests says."""
    new = [factor * value for value in fold.new]
    pooled = list(chain.from_iterable(fold.stored))
    return float(mannwhitneyu(new, pooled, alternative="greater").pvalue) < ALPHA


def row(file: Path, metric: str, k: int, given: argparse.Namespace) -> list[str]:
    """One line of the table."""
    rng = np.random.default_rng([given.seed, k])
    found = list(folds(sessions_of(file, metric), k, given.subsets, rng))
    ours = [sum(rule_says_slower(fold, x, days=given.days) for fold in found) for x in SLOWDOWNS]
    plain = sum(mann_whitney_says_slower(fold, 1.0) for fold in found)
    power = [f"{100 * hits / len(found):.0f} %" for hits in ours[1:]]
    counts = Count(ours[0], len(found)), Count(plain, len(found))
    return [file.stem, metric, str(k), counts[0].shown, *power, counts[1].shown]


def spread(file: Path, metric: str) -> str:
    """Return how far the sessions lie apart: the sd of the logs of medians and of 10 % quantiles."""
    logs = [np.log(session) for session in sessions_of(file, metric)]
    medians, lows = (np.std([np.quantile(x, q) for x in logs], ddof=1) for q in (0.5, 0.1))
    return (
        f"{file.stem} {metric}: {len(logs)} sessions of {len(logs[0])} requests, "
        f"sd of medians {medians:.1%}, of 10 % quantiles {lows:.1%}"
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--subsets", type=int, default=40, help="at most, for each session (default: 40)")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    parser.add_argument("--days", action="store_true", help="as if the sessions spanned a day")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    places = [(file, metric) for file in SESSIONS for metric in METRICS]
    for file, metric in places:
        print(spread(file, metric))
    headers = ["file", "metric", "K", "false alarms", "x1.2", "x1.5", "x2", "Mann-Whitney: false alarms"]
    rows = [row(file, metric, k, given) for file, metric in places for k in STORED]
    print(f"\n{tabulate(rows, headers, disable_numparse=True)}")


if __name__ == "__main__":
    main()
