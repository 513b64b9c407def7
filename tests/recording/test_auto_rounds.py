"""rounds="auto": more rounds while the times scatter, never because of what they are."""

from __future__ import annotations

import pytest
from helpers.project import shows

TEST = """
    import pytest

    @pytest.mark.parametrize("budget", [0])
    def test_it(llm_client, budget):
        llm_client.measure("hello", max_tokens=8, rounds="auto")
"""


@pytest.mark.parametrize(("spread", "expected"), [(0.001, 5), (0.5, 40)])
def test_it_stops_once_the_times_are_steady(project, spread, expected):
    """Steady times need five rounds, wild ones get forty."""
    project.write(TEST)
    project.script(spread=spread)
    project.run().assert_outcomes(passed=1)
    assert len(project.test()["measurement"]["requests"]) == expected


@pytest.mark.parametrize(("statistic", "expected"), [("p80", 5), ("p81", 10), ("p90", 10), ("p95", 20)])
def test_a_budget_that_needs_more_rounds_gets_them(project, statistic, expected):
    """A p90 needs ten and a p95 twenty, however steady the times are."""
    budget = f"@pytest.mark.llm_budget(ttft_{statistic}_ms=500)"
    project.write(TEST.replace("@pytest.mark.param", f"{budget}\n    @pytest.mark.param"))
    project.script(spread=0.001)
    project.run().assert_outcomes(passed=1)
    assert len(project.test()["measurement"]["requests"]) == expected


def test_no_round_at_all_is_a_mistake(project):
    """rounds=0 is told, not taken for as many as usual."""
    project.write(TEST.replace('"auto"', "0"))
    result = project.run()
    result.assert_outcomes(failed=1)
    shows(result, "rounds(0, warmup=2): at least one round")
