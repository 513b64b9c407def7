"""Loads of rising height, on an engine that serves eight requests at once without slowing down."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from helpers.scripted_engine import CrowdEngine

from pytest_llmspeed import Curve, EngineSpec, LLMClient
from pytest_llmspeed.errors import SettingsError
from pytest_llmspeed.metrics.budgets import parse_budgets
from pytest_llmspeed.recording.recorder import Recorder
from pytest_llmspeed.records.measurement_codec import measurement_from_builtins, measurement_to_builtins
from pytest_llmspeed.records.record import TestRecord
from pytest_llmspeed.reports.markdown import markdown
from pytest_llmspeed.reports.terminal import closing_section
from pytest_llmspeed.system.event_loop import LoopThread


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


def test_a_level_that_the_engine_cannot_serve_is_found_before_the_first(loop: LoopThread) -> None:
    """Its limit is known, so that nobody waits for the lower levels to hear of it."""
    llm_client = client(loop)
    llm_client._engine.max_concurrency = 4  # type: ignore[attr-defined]
    with pytest.raises(SettingsError, match="concurrency=8: the backend 'crowd' serves 4 requests at a time"):
        llm_client.sweep("hello", concurrency=[1, 4, 8])
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
    with pytest.raises(SettingsError, match=r"kept the budgets \(the lowest missed e2e_ms\), so adding"):
        curve.capacity(10)


def test_capacity_may_be_asked_for_other_budgets(loop: LoopThread) -> None:
    """One sweep answers for several targets; the test's own budgets stay as they are."""
    curve = client(loop, {"e2e_ms": 400}, crowded=3).sweep("hello", concurrency=[1, 2, 4])
    capacity = curve.capacity(peak_rps=100, headroom=0, budgets={"e2e_ms": 300})
    assert capacity.requests_per_s_each == curve.points[1].load.requests_per_s
    assert "at concurrency 2, the highest load that kept e2e_ms=300" in capacity.assumptions[0]
    assert curve.highest is curve.points[2]


@pytest.mark.parametrize("budgets", [{}, {"ttft_ms": 300, "label": "plan"}, {"tttft_ms": 300}])
def test_budgets_of_a_capacity_are_limits(loop: LoopThread, budgets: dict[str, Any]) -> None:
    """Nothing that only a mark can say, and nothing unknown."""
    curve = client(loop).sweep("hello", concurrency=[1, 2])
    with pytest.raises(SettingsError, match=r"give limits only|tttft_ms"):
        curve.capacity(10, budgets=budgets)


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
    assert any("40% of that is kept free" in said for said in capacity.assumptions)
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
    assert shown[0].split("  ")[0] == "concurrency"
    assert shown[2].endswith("knee")
    assert shown[3].endswith("missed e2e_ms")
    assert shown[4:] == [
        "knee: concurrency 8; more load only adds queueing",
        "highest load within the budgets: concurrency 8",
        "stopped: it is saturated: more load only adds queueing",
    ]


def test_the_curve_is_part_of_the_measurement(loop: LoopThread) -> None:
    """So that reports show it, whether or not the test keeps what `sweep` returned."""
    llm_client = client(loop, {"e2e_ms": 300})
    curve = llm_client.sweep("hello", concurrency=[4, 8, 16, 32])
    (kept,) = llm_client.measurement.curves
    assert kept == curve
    written = json.loads(json.dumps(measurement_to_builtins(llm_client.measurement, text=True)))
    shown = written["curves"][0]
    assert (shown["by"], shown["knee"], shown["highest"], len(shown["points"])) == ("concurrency", 8, 8, 3)
    assert shown["stopped"].startswith("it is saturated")
    (crossed,) = measurement_from_builtins(written).curves
    assert str(crossed) == str(curve)
    assert crossed.knee is not None
    assert crossed.knee.level == 8


def test_a_report_from_before_curves_is_read(loop: LoopThread) -> None:
    """It has none."""
    llm_client = client(loop)
    llm_client.sweep("hello", concurrency=[1, 2])
    written = measurement_to_builtins(llm_client.measurement, text=True)
    del written["curves"]
    assert measurement_from_builtins(written).curves == ()


def test_every_report_shows_the_curve(loop: LoopThread) -> None:
    """A table of its levels, and why it ended; the name of the test once."""
    llm_client = client(loop)
    llm_client.sweep("hello", concurrency=[4, 8, 16, 32])
    record = TestRecord("test_x.py::test_sweep", "test_x.py::test_sweep", measurement=llm_client.measurement)
    terminal = list(closing_section([record], verbose=False))
    assert "test_x.py::test_sweep: sweep by concurrency (times in ms)" in terminal
    assert terminal[-1] == "stopped: it is saturated: more load only adds queueing"
    page = list(markdown([record]))
    assert any(line.startswith("| concurrency | requests/s | tokens/s | TTFT p50 |") for line in page)
    assert any(line.startswith("| 8 | ") and line.endswith(" | knee |") for line in page)


def test_what_was_measured_reads_well(loop: LoopThread) -> None:
    """A line for a person in a debugger or an assertion; figures in `print`, no list of floats."""
    llm_client = client(loop)
    measured = llm_client.measure("hello", rounds=10)
    curve = llm_client.sweep("hello", concurrency=[1, 2])
    assert repr(measured).startswith("<Measurement of 10 requests ttft_ms=")
    assert str(measured).splitlines()[0] == "10 requests"
    assert str(measured).splitlines()[1].startswith("  ttft_ms  p50 ")
    assert repr(curve) == "<Curve concurrency=[1, 2] knee=None>"
    assert repr(curve.points[0].load).startswith("<LoadResult of 10 requests concurrency=1 throughput_tps=")
    assert len(repr(llm_client.measurement)) < 200


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
