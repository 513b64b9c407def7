"""Which commit made it slower: a probability for each, sharpened by measurement after measurement.

One commit is taken to be the first slow one, each as likely as the others at first. A measurement of commit j
against commit i asks whether it lies between them: i < k <= j. With d its shift in logs, se the standard
error, nu the degrees of freedom and D the shift of the last commit against the first,

    ratio = t_nu((d - D)/sqrt(se² + se_D²)) / t_nu(d/se)      (densities, scaled)

multiplies the probability of those between. A ratio is held within 1/50 and 50, since the noise of a
machine is not quite that of the model: no single measurement decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, hypot, log, log1p

from pytest_llmspeed.metrics.sample import metric_of
from pytest_llmspeed.metrics.stats import t_quantile
from pytest_llmspeed.regression.verdicts import Comparison

MOST_EVIDENCE = 50.0
PRIOR_WEIGHT = 4
"""The degrees of freedom that the rules on blocks give their prior."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a measurement says of a shift: its size in logs, larger is worse, and how well it is known."""

    d: float
    se: float
    nu: float

    @classmethod
    def of(cls, found: Comparison) -> Evidence | None:
        """Return what a comparison of blocks says; None of one that has no figures."""
        if found.delta is None or found.ci is None or not found.blocks:
            return None
        nu = PRIOR_WEIGHT + found.blocks - 1
        half = (log(found.ci[1]) - log(found.ci[0])) / 2
        sign = 1.0 if metric_of(found.metric).better == "lower" else -1.0
        return cls(sign * log(found.delta), half / t_quantile(0.975, nu), nu)

    def ratio(self, whole: Evidence) -> float:
        """Return how much likelier it is with the shift of the `whole` than with none."""
        se = hypot(self.se, whole.se)
        with_it = -log(se) - (self.nu + 1) / 2 * log1p(((self.d - whole.d) / se) ** 2 / self.nu)
        without = -log(self.se) - (self.nu + 1) / 2 * log1p((self.d / self.se) ** 2 / self.nu)
        bound = log(MOST_EVIDENCE)
        return exp(min(max(with_it - without, -bound), bound))


class Suspects:
    """The probability of each commit, 1 to `count`, to be the first slow one; 0 is the good one."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._weights = [1.0] * count

    def probability(self, after: int, upto: int) -> float:
        """Return the probability that the first slow commit is one of those after `after`, up to `upto`."""
        return sum(self._weights[after:upto]) / sum(self._weights)

    def learn(self, after: int, upto: int, ratio: float) -> None:
        """Take in a measurement of commit `upto` against commit `after`."""
        for place in range(after, upto):
            self._weights[place] *= ratio
        most = max(self._weights)
        self._weights = [weight / most for weight in self._weights]

    @property
    def likeliest(self) -> int:
        """The commit that is most likely the first slow one."""
        return max(range(1, self.count + 1), key=lambda k: self._weights[k - 1])

    def halving(self, testable: Iterable[int]) -> int | None:
        """Return the testable commit that splits the suspects most evenly; None if none splits them."""
        splits = {k: abs(self.probability(0, k) - 0.5) for k in testable if 0 < k < self.count}
        best = min(splits, key=splits.__getitem__, default=None)
        return best if best is not None and splits[best] < 0.5 - 1e-9 else None

    def likely(self, share: float) -> Sequence[int]:
        """Return the fewest commits that hold a share of the probability, likeliest first."""
        order = sorted(range(1, self.count + 1), key=lambda k: -self._weights[k - 1])
        total, held = sum(self._weights), 0.0
        for number, k in enumerate(order, 1):
            held += self._weights[k - 1]
            if held >= share * total:
                return order[:number]
        return order
