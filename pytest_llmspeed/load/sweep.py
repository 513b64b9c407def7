"""Loads one after the other, each higher than the last, until more of it only waits longer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pytest_llmspeed.errors import SettingsError, hides_our_frames
from pytest_llmspeed.load.arrivals import Rate
from pytest_llmspeed.load.run import Arrivals, Load
from pytest_llmspeed.metrics.budget_checks import missed_by
from pytest_llmspeed.metrics.budgets import Budget
from pytest_llmspeed.metrics.load_curve import Curve, Point, is_saturated
from pytest_llmspeed.metrics.load_result import LoadResult
from pytest_llmspeed.recording.recorder import Recorder

__tracebackhide__ = hides_our_frames

LEAST_LEVELS = 2


def levels_of(
    concurrency: Sequence[int] | None, rates: Sequence[float | Rate] | None
) -> list[tuple[float, Arrivals]]:
    """Return the loads of a sweep, each with its height, from the lowest; raises `SettingsError`."""
    if (concurrency is None) == (rates is None):
        raise SettingsError("sweep takes concurrency=[…] or rates=[…]")
    if concurrency is not None:
        levels = [(float(slots), Arrivals(concurrency=slots)) for slots in concurrency]
    else:
        parsed = [rate if isinstance(rate, Rate) else Rate(float(rate)) for rate in rates or ()]
        levels = [(rate.per_s, Arrivals(rate=rate)) for rate in parsed]
    if len({level for level, _ in levels}) < LEAST_LEVELS:
        raise SettingsError("sweep needs at least two different loads, as in concurrency=[1, 4, 16, 64]")
    return sorted(levels, key=lambda each: each[0])


def run_sweep(
    levels: Sequence[tuple[float, Arrivals]],
    ask: Callable[[Arrivals], Load],
    run: Callable[[Load], LoadResult],
    budgets: Sequence[Budget],
    recorder: Recorder,
    *,
    check: Callable[[Load], None],
    stop_early: bool = True,
) -> Curve:
    """Run the loads, and return their curve. All of them pass `check` before the first is run.

    Of its loads only one is held against the test's budgets: the highest that keeps them, or the lowest
    where none does. None is compared with a baseline, since which one it is may change from run to run.
    """
    by = "rate" if levels[0][1].concurrency is None else "concurrency"
    asked = [(level, ask(arrivals)) for level, arrivals in levels]
    for _, each in asked:
        check(each)
    declared = _declared(by, levels, asked[0][1])
    curve = Curve(by, (), bool(budgets))
    try:
        for level, each in asked:
            load = run(replace(each, declared=declared, counted=False, compared=False))
            point = Point(level, load, missed_by(load, budgets))
            before = curve.points[-1:]
            curve = replace(curve, points=(*curve.points, point))
            saturated = stop_early and any(is_saturated(low, point) for low in before)
            if reason := _reason_to_stop(curve, saturated=saturated):
                curve = replace(curve, stopped=reason if level != levels[-1][0] else None)
                break
    except BaseException:
        recorder.record_curve(replace(curve, stopped="it was interrupted"))
        raise
    recorder.record_curve(curve)
    counted = curve.highest or curve.points[0]
    if budgets:
        recorder.replace_loads([replace(counted.load, counted=True)])
    return curve


def _reason_to_stop(curve: Curve, *, saturated: bool) -> str | None:
    load = curve.points[-1].load
    if load.invalid:
        return str(load.invalid[0])
    if load.failures and len(load.failures) == len(load.samples):
        return f"every request failed, the last with: {load.failures[-1].error}"
    return "it is saturated: more load only adds queueing" if saturated else None


def _declared(by: str, levels: Sequence[tuple[float, Arrivals]], first: Load) -> str:
    """One line for all loads of the sweep, whichever of them are run."""
    heights = ",".join(f"{level:g}" for level, _ in levels)
    rest = [part for part in first.declared.split(" ")[1:] if not part.startswith(f"{by}=")]
    return " ".join(["sweep", f"{by}={heights}", *rest])
