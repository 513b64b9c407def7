"""What a report calls `ttft_ms` or `throughput_tps` is one figure, the same in every place that shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from pytest_llmspeed.messages.speed import quantity

if TYPE_CHECKING:
    from helpers.project import Project

TEST = """
import pytest

@pytest.mark.llm_backend("crowd", tpot_ms=20)
@pytest.mark.llm_backend("crowd", tpot_ms=30)
@pytest.mark.llm_budget(ttft_ms=900, throughput_tps=1)
def test_it(llm_client):
    {body}
"""
MEASURE = 'llm_client.measure("hello", max_tokens=8)'
LOAD = 'llm_client.load("hello", concurrency=4, requests=80)'


def figures(project: Project, metric: str) -> float:
    """What the raw samples of the first engine, or its load, say of a metric."""
    measured = project.test("crowd]")["measurement"]
    for load in measured["loads"]:
        return load["summary"]["ttft_ms"]["p50"] if metric == "ttft_ms" else load[metric]
    return measured["summary"][metric]["p50"]


@pytest.mark.parametrize("body", [MEASURE, LOAD], ids=["measure", "load"])
@pytest.mark.parametrize("metric", ["ttft_ms", "throughput_tps"])
def test_a_figure_reads_the_same_in_every_report(project: Project, body: str, metric: str) -> None:
    """Budget, comparison, side by side, markdown, JUnit and JSON, with a baseline and a noisy engine."""
    project.script(spread=0.2)
    project.write(TEST.format(body=body))
    project.record(3)
    result = project.run("-v", "--junitxml=junit.xml", "--llmspeed-markdown=report.md")
    exact = figures(project, metric)
    shown = quantity(exact, metric)
    lines = [line for line in result.outlines if "  " in line]
    first = lines[next(n for n, line in enumerate(lines) if "test_it[crowd] " in line) :]
    budget = next(line for line in first if f" {metric} " in line)
    assert shown in budget
    comparison = next(line for line in first if f" {metric}  " in line)
    assert shown in comparison
    assert "at the fastest 10%" in comparison or "at the median of the load's parts" in comparison
    side_by_side = next(line for line in reversed(lines) if " crowd  " in line)
    assert shown in side_by_side
    markdown = (project.path / "report.md").read_text(encoding="utf-8")
    assert markdown.count(shown) >= 3
    test = project.test("crowd]")
    (check,) = (each for each in test["budgets"] if each["name"] == metric)
    assert check["observed"] == pytest.approx(exact, rel=1e-3)
    (found,) = (each for each in test["comparisons"] if each["metric"] == metric)
    assert found["now"] == pytest.approx(exact, rel=1e-3)
    (case,) = (
        c
        for c in ElementTree.parse(project.path / "junit.xml").iter("testcase")
        if "crowd]" in c.attrib["name"]
    )
    properties = {p.attrib["name"]: p.attrib["value"] for p in case.iter("property")}
    assert float(properties[f"llmspeed_{metric}"]) == pytest.approx(exact, rel=1e-3)
    assert properties[f"llmspeed_{metric}_compared_at"].startswith("the ")


def test_loads_and_other_requests_are_rows_of_their_own_side_by_side(project: Project) -> None:
    """They are never pooled: a load has its own throughput and its own latencies."""
    project.write(TEST.format(body=f"{MEASURE}\n    {LOAD}"))
    result = project.run()
    rows = [line for line in result.outlines if line.startswith("test_it.py::test_it")]
    names = [line.split("  ")[0] for line in rows[-2:]]
    assert names == ["test_it.py::test_it", "test_it.py::test_it, load concurrency=4"]
    (load,) = project.test("crowd]")["measurement"]["loads"]
    assert quantity(load["throughput_tps"], "throughput_tps") in rows[-1]


def test_each_series_of_a_test_is_named(project: Project) -> None:
    """Two prompts and a load are three rows' worth of ttft_ms: none has the plain name."""
    project.write(
        """
        import pytest

        @pytest.mark.llm_backend("crowd")
        def test_it(llm_client):
            llm_client.measure("one", label="chat")
            llm_client.measure("two")
            llm_client.load("hello", concurrency=4, requests=80)
        """
    )
    project.run("--junitxml=junit.xml")
    names = {found["part"] for found in project.test()["comparisons"]}
    assert names == {"'chat'", "measured prompt", "load"}
    properties = {p.attrib["name"] for p in ElementTree.parse(project.path / "junit.xml").iter("property")}
    assert "llmspeed_ttft_ms" not in properties
    assert {"llmspeed_ttft_ms[chat]", "llmspeed_throughput_tps[load]"} <= properties
