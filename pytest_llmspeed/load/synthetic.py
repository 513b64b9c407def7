"""Prompts of a wanted number of tokens: seeded words, each one token of the common tokenizers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from random import Random
from typing import Literal

from pytest_llmspeed.errors import SettingsError

WORDS = (  # noqa: SIM905
    "time year people way day man thing woman life child world school state family student group country "
    "problem hand part place case week company system program question work government number night point "
    "home water room mother area money story fact month lot right study book eye job word business issue "
    "side kind head house service friend father power hour game line end member law car city community "
    "name president team minute idea body information back parent face others level office door health "
    "person art war history party result change reason research girl moment air teacher force education "
    "food light music paper field rate cost data plan model table river market form value film land record "
    "heart sound answer letter sea step south north west east summer winter spring"
).split()
"""Each is one token, with a space before it and without, of byte-pair vocabularies from 49,000 entries on."""

Shape = Literal["fixed", "uniform", "normal", "lognormal", "of"]


def words(random: Random, count: int) -> str:
    """Return a text of `count` such words."""
    return " ".join(random.choices(WORDS, k=count))


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many tokens: one number, or a distribution to draw from, cut to `at_least` and `at_most`."""

    shape: Shape
    parameters: tuple[float, ...]
    at_least: int = 1
    at_most: int | None = None

    def __post_init__(self) -> None:
        """Refuse a length below one token."""
        floor = min(self.parameters) if self.shape in ("fixed", "uniform", "of") else self.at_least
        if not self.parameters or floor < 1 or (self.at_most or self.at_least) < self.at_least:
            raise SettingsError(f"a length of {self} tokens: at least one token is needed")

    @classmethod
    def uniform(cls, low: int, high: int) -> Lengths:
        """Any number from `low` to `high`, both included."""
        return cls("uniform", (*sorted((low, high)),))

    @classmethod
    def normal(cls, mean: float, sd: float, *, at_least: int = 1, at_most: int | None = None) -> Lengths:
        """A bell around the mean."""
        return cls("normal", (mean, sd), at_least, at_most)

    @classmethod
    def lognormal(
        cls, median: float, sigma: float, *, at_least: int = 1, at_most: int | None = None
    ) -> Lengths:
        """A bell of the logarithms, with its long tail: what prompts of people look like."""
        return cls("lognormal", (median, sigma), at_least, at_most)

    @classmethod
    def of(cls, seen: Sequence[int]) -> Lengths:
        """One of the lengths that were seen elsewhere, each as likely."""
        return cls("of", tuple(seen))

    @classmethod
    def parse(cls, given: int | tuple[int, int] | Lengths) -> Lengths:
        """A number, a pair (from, to), or lengths as they stand."""
        if isinstance(given, Lengths):
            return given
        return cls("fixed", (given,)) if isinstance(given, int) else cls.uniform(*given)

    def draw(self, random: Random) -> int:
        """Return one length."""
        drawn = round(self._draw(random))
        return max(self.at_least, drawn if self.at_most is None else min(drawn, self.at_most))

    def _draw(self, random: Random) -> float:
        match self.shape:
            case "uniform":
                return random.randint(int(self.parameters[0]), int(self.parameters[1]))
            case "normal":
                return random.gauss(*self.parameters)
            case "lognormal":
                return exp(random.gauss(log(self.parameters[0]), self.parameters[1]))
            case _:
                return random.choice(self.parameters)

    def __str__(self) -> str:
        """As in `512`, or `uniform 100 200`."""
        numbers = [f"{number:g}" for number in self.parameters]
        bounds = [] if self.at_least == 1 and self.at_most is None else [f"{self.at_least}..{self.at_most}"]
        return " ".join(numbers if self.shape == "fixed" else [self.shape, *numbers, *bounds])
