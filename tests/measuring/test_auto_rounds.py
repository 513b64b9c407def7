"""rounds="auto": more rounds while the times scatter, never because of what they are."""

from __future__ import annotations

import pytest

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


def test_a_budget_that_needs_more_rounds_gets_them(project):
    """A p95 needs twenty, however steady the times are."""
    project.write(
        TEST.replace("@pytest.mark.param", "@pytest.mark.llm_budget(ttft_p95_ms=500)\n    @pytest.mark.param")
    )
    project.script(spread=0.001)
    project.run().assert_outcomes(passed=1)
    assert len(project.test()["measurement"]["requests"]) == 20
