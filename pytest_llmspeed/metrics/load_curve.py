"""Loads of rising height → the curve: its knee, what is carried within the budgets, the replicas needed.

With L the load (concurrency or rate) and T what is served (requests per second), a step is
saturated where T grows by less than a fifth of what L grows by, in logs, while the median end-to-end
time grows by more than half of it: more load only adds queueing. The knee is where the first such
step begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, log

from pytest_llmspeed.errors import SettingsError
from pytest_llmspeed.metrics.load_result import LoadResult

STILL_GROWS = 0.2
WAITS_LONGER = 0.5


@dataclass(frozen=True, slots=True)
class Point:
    """One load of a sweep: its height, what it showed, and the budgets that it missed."""

    level: float
    load: LoadResult
    missed: tuple[str, ...] = ()

    @property
    def kept(self) -> bool:
        """True if it is the load that was asked, and kept every budget."""
        return not self.missed and not self.load.invalid


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many replicas a peak needs. `assumptions` are what has to hold for that."""

    replicas: int
    requests_per_s_each: float
    assumptions: tuple[str, ...]

    def __str__(self) -> str:
        """The number of replicas, and what has to hold for it, a line each."""
        replicas = f"{self.replicas} replica{'' if self.replicas == 1 else 's'}"
        head = f"{replicas} at {self.requests_per_s_each:.3g} requests/s each, if:"
        return "\n".join([head, *(f"  {assumption}" for assumption in self.assumptions)])


@dataclass(frozen=True, slots=True, repr=False)
class Curve:
    """The loads of a sweep from the lowest on.

    `by` is "concurrency" or "rate"; `has_budgets` whether there was anything to keep. `stopped` says
    why it ended before the last load, None where it did not.
    """

    by: str
    points: tuple[Point, ...]
    has_budgets: bool = False
    stopped: str | None = None

    @property
    def knee(self) -> Point | None:
        """The last load before more of it only waits longer; None where it did not come to that."""
        return next((low for low, high in pairwise(self.points) if is_saturated(low, high)), None)

    @property
    def highest(self) -> Point | None:
        """The highest load that kept the budgets, as all below it did; None where the lowest did not.

        Without any budget it is at most the knee. An invalid load, or one with failures, kept nothing.
        """
        found, knee = None, None if self.has_budgets else self.knee
        for point in self.points:
            if not point.kept:
                break
            found = point
            if point is knee:
                break
        return found

    def capacity(
        self, peak_rps: float, *, headroom: float = 0.4, budgets: Mapping[str, float] | None = None
    ) -> Capacity:
        """Return how many replicas carry a peak of `peak_rps` requests per second.

        A replica counts for what the highest load within the budgets served, less `headroom`: the share
        kept free for bursts, a failed replica and slower days. The default plans replicas at 60% of that
        load. `budgets` replaces the test's for this answer, as in {"ttft_p99_ms": 500, "goodput": 0.99}.
        Raises `SettingsError` if no load kept them.
        """
        if not peak_rps > 0 or not 0 <= headroom < 1:
            raise SettingsError(
                f"capacity({peak_rps}, headroom={headroom}): give a positive rate, and a headroom of at "
                f"least 0 and below 1 (0.4 is 40%)"
            )
        curve = self if budgets is None else self._held_against(budgets)
        at = curve.highest
        if at is None or not at.load.requests_per_s:
            raise SettingsError(f"capacity: {curve._nothing_to_rest_on()}")
        each = at.load.requests_per_s * (1 - headroom)
        named = ", ".join(f"{name}={limit:g}" for name, limit in (budgets or {}).items())
        return Capacity(ceil(peak_rps / each), each, tuple(_assumptions(curve, at, headroom, named)))

    def _held_against(self, limits: Mapping[str, float]) -> Curve:
        """The curve with other budgets than those of the test."""
        from pytest_llmspeed.metrics.budget_checks import missed_by  # these import the curve
        from pytest_llmspeed.metrics.budgets import NARROWING, parse_budgets

        if not limits or not limits.keys().isdisjoint(NARROWING):
            raise SettingsError(
                f'capacity(budgets={dict(limits)}): give limits only, as in {{"ttft_p99_ms": 500}}'
            )
        budgets = parse_budgets(limits)
        points = (replace(point, missed=missed_by(point.load, budgets)) for point in self.points)
        return replace(self, points=tuple(points), has_budgets=True)

    def _nothing_to_rest_on(self) -> str:
        lowest = self.points[0]
        if lowest.load.invalid:
            return f"even the lowest load of the sweep is invalid: {lowest.load.invalid[0]}"
        if lowest.load.failures and "error_rate" in lowest.missed:
            error = lowest.load.failures[-1].error
            return f"requests failed even at the lowest load of the sweep, the last with: {error}"
        missed = f" (the lowest missed {', '.join(lowest.missed)})" if lowest.missed else ""
        return f"no load of the sweep kept the budgets{missed}, so adding replicas will not help"

    def __str__(self) -> str:
        """The curve as a table, with what follows from it."""
        return "\n".join(_lines(self))

    def __repr__(self) -> str:
        """The levels, and where the knee is."""
        levels = ", ".join(f"{point.level:g}" for point in self.points)
        knee = f"{self.knee.level:g}" if self.knee else "None"
        return f"<Curve {self.by}=[{levels}] knee={knee}>"


def is_saturated(low: Point, high: Point) -> bool:
    """Return whether the step from one load to a higher one serves little more, and only waits longer."""
    grown = log(high.level / low.level)
    served = _growth(low.load.requests_per_s, high.load.requests_per_s)
    waited = _growth(_median_ms(low.load), _median_ms(high.load))
    if grown <= 0 or served is None or waited is None:
        return False
    return served < STILL_GROWS * grown and waited > WAITS_LONGER * grown


def _growth(before: float | None, after: float | None) -> float | None:
    return log(after / before) if before and after else None


def _median_ms(load: LoadResult) -> float | None:
    found = load.summary("e2e_ms")
    return found.p50 if found else None


def _assumptions(curve: Curve, at: Point, headroom: float, named: str) -> Iterator[str]:
    limit = f"that kept {named or 'the budgets'}" if curve.has_budgets else "before it saturates"
    served = f"{at.load.requests_per_s:.3g} requests/s at {curve.by} {at.level:g}"
    yield f"one replica serves {served}, the highest load {limit}"
    yield f"{headroom:.0%} of that is kept free for bursts, a failed replica, and slower days"
    yield "requests are spread evenly, and replicas share nothing that saturates before they do"
    yield "production traffic resembles the measured load: the same lengths, the same share cached"
    if curve.by == "concurrency":
        yield "the headroom also covers queueing by independent arrivals, which a closed loop lacks"
    if at is curve.points[-1] and curve.knee is None:
        yield "the sweep never saturated: the true capacity may be higher"


def headers(curve: Curve) -> tuple[str, ...]:
    """Return what the cells of a curve are called."""
    return (curve.by, "requests/s", "tokens/s", "TTFT p50", "TTFT p99", "TPOT p50", "goodput", "errors", "")


def cells(curve: Curve) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each load, as `headers` names them, times in ms; last what is to be known of it."""
    for point in curve.points:
        load = point.load
        ttft, tpot = load.summary("ttft_ms"), load.summary("tpot_ms")
        times = (ttft.p50 if ttft else None, ttft.p99 if ttft else None, tpot.p50 if tpot else None)
        figures = (load.requests_per_s, load.throughput_tps, *times, load.goodput)
        shown = [_shown(figure) for figure in figures]
        yield (f"{point.level:g}", *shown, f"{len(load.failures)}", ", ".join(_notes(curve, point)))


def _notes(curve: Curve, point: Point) -> Iterator[str]:
    if point is curve.knee:
        yield "knee"
    if point.missed:
        yield f"missed {', '.join(point.missed)}"
    if point.load.invalid:
        yield "invalid"


def findings(curve: Curve) -> Iterator[str]:
    """Yield what the loads say together: the knee, what is carried within the budgets, why it ended."""
    if curve.knee:
        yield f"knee: {curve.by} {curve.knee.level:g}; more load only adds queueing"
    elif curve.points:
        yield f"no knee up to {curve.by} {curve.points[-1].level:g}"
    if curve.has_budgets:
        highest = f"{curve.by} {curve.highest.level:g}" if curve.highest else "none of these loads"
        yield f"highest load within the budgets: {highest}"
    if curve.stopped:
        yield f"stopped: {curve.stopped}"


def _lines(curve: Curve) -> Iterator[str]:
    table = [headers(curve), *cells(curve)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for *figures, notes in table:
        shown = [f"{cell:>{width}}" for cell, width in zip(figures, widths, strict=False)]
        yield "  ".join([*shown, notes]).rstrip()
    yield from findings(curve)


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
