"""When the requests of an open load are due: seeded schedules as plain numbers.

Gaps between arrivals are gamma distributed with mean 1/rate and shape `burstiness`: 1 is Poisson,
less comes in bursts, more comes ever more evenly, and infinity at constant distances. The gaps of a
schedule are scaled together, so that it offers its rate exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from math import ceil, inf, isfinite
from random import Random

from pytest_llmspeed.errors import SettingsError

TINY = 1e-9
"""A product of time and rate may miss a whole number by its rounding."""


@dataclass(frozen=True, slots=True)
class Rate:
    """How many requests a second arrive, and how evenly; one seed, one schedule."""

    per_s: float
    burstiness: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what is no rate."""
        if not (isfinite(self.per_s) and self.per_s > 0):
            raise SettingsError(f"rate={self.per_s!r}: a load needs a positive number of requests a second")
        if not self.burstiness > 0:
            raise SettingsError(
                f"burstiness={self.burstiness!r}: must be positive: 1 is Poisson, lower is burstier"
            )

    @classmethod
    def poisson(cls, per_s: float, *, seed: int = 0) -> Rate:
        """Arrivals that know nothing of each other, as those of many independent users."""
        return cls(per_s, 1.0, seed)

    @classmethod
    def constant(cls, per_s: float) -> Rate:
        """Arrivals at equal distances."""
        return cls(per_s, inf)

    @classmethod
    def gamma(cls, per_s: float, *, burstiness: float, seed: int = 0) -> Rate:
        """Arrivals whose gaps vary by 1/sqrt(burstiness) of their mean."""
        return cls(per_s, burstiness, seed)

    def first(self, requests: int) -> tuple[float, ...]:
        """Return the due times of so many requests, in seconds: from 0 to (requests - 1) / rate.

        So the rate is offered exactly. Gaps that were only drawn would miss it by a share of
        1/sqrt(requests), and since the seed is fixed by the same share each time.
        """
        gaps = self._gaps(requests - 1)
        scale_s = (requests - 1) / self.per_s / (sum(gaps) or 1.0)
        return tuple(offset * scale_s for offset in accumulate(gaps, initial=0.0))[:requests]

    def within(self, duration_s: float) -> tuple[float, ...]:
        """Return the due times of the requests within a duration, in seconds."""
        return self.first(max(1, ceil(duration_s * self.per_s - TINY)))

    def _gaps(self, count: int) -> list[float]:
        """The gaps between requests, in any unit."""
        if self.burstiness == inf:
            return [1.0] * count
        random = Random(self.seed)
        return [random.gammavariate(self.burstiness, 1.0) for _ in range(count)]

    def __str__(self) -> str:
        """Return the rate as a declared workload shows it: `20/s` or `20/s burstiness=0.5 seed=3`."""
        shape = "" if self.burstiness == 1 else f" burstiness={self.burstiness:g}"
        return f"{self.per_s:g}/s{shape}" + (f" seed={self.seed}" if self.seed else "")
