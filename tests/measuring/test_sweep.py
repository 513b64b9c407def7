"""Loads of rising height, on an engine that serves eight requests at once without slowing down."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from scripted_engine import CrowdEngine

from pytest_llmspeed import Curve, EngineSpec, LLMClient
from pytest_llmspeed.core.budgets import parse_budgets
from pytest_llmspeed.core.errors import SettingsError
from pytest_llmspeed.edges.loop import LoopThread
from pytest_llmspeed.measuring.recorder import Recorder


def client(loop: LoopThread, budgets: dict[str, Any] | None = None, **options: Any) -> LLMClient:
    engine = CrowdEngine.start(EngineSpec.of("crowd", "m", None, {"crowded": 8, **options}))
    limits = tuple(parse_budgets(budgets)) if budgets else ()
    return LLMClient(engine, loop, Recorder(), budgets=lambda: limits)


def levels(curve: Curve) -> list[float]:
    return [point.level for point in curve.points]


def test_a_sweep_stops_once_it_is_saturated(loop: LoopThread) -> None:
    """Up to eight at once more is served; beyond, it only waits longer: there is the knee."""
    curve = client(loop).sweep("hello", concurrency=[32, 1, 2, 4, 8, 16, 64])
    assert levels(curve) == [1, 2, 4, 8, 16]
    assert curve.knee is not None
    assert curve.knee.level == 8
    assert curve.stopped == "it is saturated: more load only adds queueing"
    assert curve.highest is curve.knee


def test_a_sweep_can_run_all_its_loads(loop: LoopThread) -> None:
    """Beyond its knee too, if that is asked; levels too short for a baseline are measured like others."""
    curve = client(loop).sweep("hello", concurrency=[1, 8, 16, 32], requests=40, stop_early=False)
    assert levels(curve) == [1, 8, 16, 32]
    assert curve.stopped is None


def test_all_loads_of_a_sweep_are_checked_before_the_first_runs(loop: LoopThread) -> None:
    """A level that cannot be run costs no time on the others."""
    llm_client = client(loop)
    with pytest.raises(SettingsError, match="concurrency=0"):
        llm_client.sweep("hello", concurrency=[4, 0])
    assert not llm_client.measurement.samples


def test_a_sweep_that_does_not_saturate_has_no_knee(loop: LoopThread) -> None:
    """All its loads are run."""
    curve = client(loop).sweep("hello", concurrency=[1, 2, 4])
    assert (levels(curve), curve.knee, curve.stopped) == ([1, 2, 4], None, None)


def test_the_highest_load_that_keeps_the_budgets(loop: LoopThread) -> None:
    """That one, and no other, is held against the budgets of the test."""
    llm_client = client(loop, {"e2e_ms": 300}, crowded=3)
    curve = llm_client.sweep("hello", concurrency=[1, 2, 4, 8])
    assert curve.highest is not None
    assert curve.highest.level == 2
    assert curve.points[2].missed == ("e2e_ms",)
    counted = [load.asked["concurrency"] for load in llm_client.measurement.loads if load.counted]
    assert counted == [2]


def test_where_no_load_keeps_the_budgets_the_lowest_is_held_against_them(loop: LoopThread) -> None:
    """So the test fails, with the figure of the lowest."""
    llm_client = client(loop, {"e2e_ms": 100})
    curve = llm_client.sweep("hello", concurrency=[1, 2])
    assert curve.highest is None
    assert [load.asked["concurrency"] for load in llm_client.measurement.loads if load.counted] == [1]
    with pytest.raises(SettingsError, match="no load of the sweep kept the budgets"):
        curve.capacity(10)


def test_capacity_leaves_headroom(loop: LoopThread) -> None:
    """Of what the highest load served, 60 % are used; what is assumed is said."""
    curve = client(loop, {"e2e_ms": 400}).sweep("hello", concurrency=[1, 2, 4, 8, 16])
    assert curve.highest is not None
    served = curve.highest.load.requests_per_s
    assert served == pytest.approx(8 / 0.24, rel=0.15)
    capacity = curve.capacity(peak_rps=100)
    assert capacity.requests_per_s_each == pytest.approx(0.6 * served)
    assert capacity.replicas == 5 + (100 / capacity.requests_per_s_each > 5)
    assert any(
        "at concurrency 8, the highest load that kept the budgets" in said for said in capacity.assumptions
    )
    assert any("40% of that stays free" in said for said in capacity.assumptions)
    assert str(capacity).startswith(f"{capacity.replicas} replicas at ")


def test_failed_requests_keep_no_budget(loop: LoopThread) -> None:
    """Unless an error_rate budget allows them."""
    strict = client(loop, {"e2e_ms": 400}, fail_every=25).sweep("hello", concurrency=[1, 4])
    assert strict.points[1].missed == ("error_rate",)
    lenient = client(loop, {"e2e_ms": 400, "error_rate": 0.2}, fail_every=25).sweep(
        "hello", concurrency=[1, 4]
    )
    assert lenient.highest is lenient.points[1]


def test_a_sweep_by_rate(loop: LoopThread) -> None:
    """Open loads, from the lowest rate."""
    curve = client(loop).sweep("hello", rates=[500, 250])
    assert (curve.by, levels(curve)) == ("rate", [250, 500])


def test_all_loads_of_a_sweep_are_one_workload(loop: LoopThread) -> None:
    """How far it went is no part of a baseline's key."""
    recorders = []
    for heights in ([1, 8, 16], [1, 8, 16]):
        llm_client = client(loop, crowded=2 if recorders else 8)
        llm_client.sweep("hello", concurrency=heights)
        recorders.append(llm_client._recorder)
    assert recorders[0].workload == recorders[1].workload
    assert recorders[0].workload[0].startswith("sweep concurrency=1,8,16 chat")


def test_a_curve_is_a_table(loop: LoopThread) -> None:
    """With the knee and what was missed."""
    shown = str(client(loop, {"e2e_ms": 300}).sweep("hello", concurrency=[4, 8, 16, 32])).splitlines()
    assert len(shown) == 5
    assert shown[2].endswith("knee")
    assert shown[3].endswith("missed e2e_ms")
    assert shown[4].startswith("stopped: it is saturated")


@pytest.mark.parametrize("given", [{}, {"concurrency": [1, 2], "rates": [1, 2]}, {"concurrency": [4]}])
def test_a_senseless_sweep_is_refused(loop: LoopThread, given: dict[str, Any]) -> None:
    """It takes one kind of load, and at least two of it."""
    with pytest.raises(SettingsError, match="sweep"):
        client(loop).sweep("hello", **given)


def test_no_capacity_is_made_of_a_load_that_was_not_what_was_asked(loop: LoopThread) -> None:
    """Without budgets too, it rests on what was valid and answered; where nothing was, the error says why."""
    curve = client(loop).sweep("hello", concurrency=[1, 2, 4])
    low, middle, high = curve.points
    spoilt = replace(high, load=replace(high.load, invalid=("the client was busy",)))
    assert replace(curve, points=(low, middle, spoilt)).highest is middle
    nothing = replace(curve, points=(replace(spoilt, level=1.0),))
    with pytest.raises(
        SettingsError, match="even the lowest load of the sweep is invalid: the client was busy"
    ):
        nothing.capacity(10)


@pytest.mark.parametrize(
    ("budgets", "told"),
    [
        (None, "requests failed even at the lowest load of the sweep, the last with: scripted failure"),
        ({"error_rate": 0.5, "e2e_ms": 100}, "budgets"),
    ],
)
def test_what_no_capacity_rests_on_is_named(
    loop: LoopThread, budgets: dict[str, Any] | None, told: str
) -> None:
    """Failures where nothing allows them; where a budget does, the other that was missed."""
    curve = client(loop, budgets, fail_every=5).sweep("hello", concurrency=[2, 4])
    assert curve.points[0].load.failures
    with pytest.raises(SettingsError, match=told):
        curve.capacity(10)
