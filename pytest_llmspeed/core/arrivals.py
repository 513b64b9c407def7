"""When the requests of an open load are due: seeded schedules as plain numbers.

Gaps between arrivals are gamma distributed with mean 1/rate and shape `burstiness`: 1 is Poisson,
less comes in bursts, more comes ever more evenly, and infinity at constant distances.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, count, islice, takewhile
from math import inf, isfinite
from random import Random

from pytest_llmspeed.core.errors import SettingsError


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
                f"burstiness={self.burstiness!r}: it is positive: 1 is Poisson, less comes in bursts"
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

    def offsets_s(self) -> Iterator[float]:
        """Yield, without end, when each request is due, in seconds from the first, which is due at 0."""
        if self.burstiness == inf:
            return (place / self.per_s for place in count())
        return accumulate(self._gaps_s(), initial=0.0)

    def _gaps_s(self) -> Iterator[float]:
        random, scale_s = Random(self.seed), 1 / self.per_s / self.burstiness
        while True:
            yield random.gammavariate(self.burstiness, scale_s)

    def first(self, requests: int) -> tuple[float, ...]:
        """The offsets of so many requests."""
        return tuple(islice(self.offsets_s(), requests))

    def within(self, duration_s: float) -> tuple[float, ...]:
        """The offsets of the requests that are due before `duration_s`."""
        return tuple(takewhile(lambda offset_s: offset_s < duration_s, self.offsets_s()))

    def __str__(self) -> str:
        """What a declared workload says of it, as in `20/s` or `20/s burstiness=0.5 seed=3`."""
        shape = "" if self.burstiness == 1 else f" burstiness={self.burstiness:g}"
        return f"{self.per_s:g}/s{shape}" + (f" seed={self.seed}" if self.seed else "")
