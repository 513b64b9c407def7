"""Beside the plugins that people have: each changes how tests run, none what is measured and judged."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from helpers.project import shows

if TYPE_CHECKING:
    from helpers.project import Project

TESTS = """
    import pytest

    @pytest.mark.parametrize("n", range(4))
    def test_it(llm_client, n): llm_client.measure(f"hello {n}", max_tokens=8)
"""


@pytest.fixture
def four(project: Project) -> Project:
    """Four tests with three stored sessions, now all slower."""
    project.write(TESTS)
    project.record(3, "-p", "no:randomly")
    project.script(factor=1.6)
    return project


def test_keyword_selection_gives_the_same_verdict(four: Project) -> None:
    """-k judges by the same number of comparisons as the whole suite."""
    four.run("-p", "no:randomly").assert_outcomes(failed=4)
    whole = four.test("test_it[2]")["comparisons"]
    four.script(seed=102)
    four.run("-p", "no:randomly", "-k", "test_it and 2").assert_outcomes(failed=1, deselected=3)
    alone = four.test("test_it[2]")["comparisons"]
    assert [found["verdict"] for found in alone] == [found["verdict"] for found in whole]


def test_last_failed_runs_what_was_slower(four: Project) -> None:
    """--lf selects the tests that failed for being slower, and fails them again."""
    four.run().assert_outcomes(failed=4)
    four.run("--lf").assert_outcomes(failed=4)


def test_exit_first_stops_at_a_slower_test(four: Project) -> None:
    """-x ends the run after one, which is reported."""
    four.run("-x").assert_outcomes(failed=1)
    assert len(four.report["tests"]) == 1


def test_random_order_keeps_engines_together(project: Project) -> None:
    """pytest-randomly shuffles; items of one engine still stand together, each engine starts once."""
    project.write(
        """
        import pytest

        @pytest.mark.parametrize("n", range(6))
        @pytest.mark.llm_backend("scripted")
        @pytest.mark.llm_backend("scripted2")
        def test_it(llm_client, n): llm_client.generate("x")
        """
    )
    project.run("-p", "randomly").assert_outcomes(passed=12)
    assert len([line for line in project.engine_log if line.startswith("start")]) == 2


@pytest.mark.parametrize("method", ["signal", "thread"])
def test_a_time_limit_does_not_disturb_a_test_that_keeps_it(project: Project, method: str) -> None:
    """pytest-timeout, by either method, around a test that ends in time."""
    project.write(TESTS)
    project.run("--timeout=60", f"--timeout-method={method}").assert_outcomes(passed=4)


def test_a_test_that_runs_out_of_time_fails_and_the_next_is_measured(project: Project) -> None:
    """The request in flight is cancelled; the engine serves the next test; nothing is left."""
    project.write(
        """
        import pytest

        @pytest.mark.timeout(1, method="signal", func_only=True)
        def test_hangs(llm_client): llm_client.generate("hello", max_tokens=8000, timeout_s=60)

        def test_next(llm_client): llm_client.generate("hello", max_tokens=4)
        """
    )
    result = project.pytester.runpytest_subprocess(
        "--llmspeed-backend=tiny", "--llmspeed-json=report.json", "-p", "no:randomly", timeout=120
    )
    result.assert_outcomes(failed=1, passed=1)
    shows(result, "Timeout")
    assert len(project.test("test_next")["measurement"]["requests"]) == 1


def test_coverage_measures_beside(four: Project) -> None:
    """pytest-cov and the gate do not mind each other."""
    result = four.run("--cov=.", "--cov-report=term")
    result.assert_outcomes(failed=4)
    shows(result, "TOTAL", "4 tests measured: 4 slower")


def test_an_async_test_is_measured(project: Project) -> None:
    """The client works inside a coroutine of pytest-asyncio, which has a running loop."""
    project.write(
        """
        import pytest

        @pytest.mark.asyncio
        @pytest.mark.llm_budget(ttft_ms=50)
        async def test_it(llm_client):
            assert llm_client.measure("hello", max_tokens=8).text
        """
    )
    project.run().assert_outcomes(failed=1)
    assert len(project.test()["measurement"]["requests"]) == 10


def test_the_debugger_opens_on_a_missed_budget(project: Project) -> None:
    """--pdb stops at the failure as at any other."""
    (project.path / "quiet_debugger.py").write_text(
        "class Debugger:\n"
        "    def __init__(self, *_, **__): pass\n"
        "    def reset(self): pass\n"
        "    def interaction(self, *_): print('the debugger is open')\n"
    )
    project.write(
        """
        import pytest

        @pytest.mark.llm_budget(ttft_ms=50)
        def test_it(llm_client): llm_client.measure("hello", max_tokens=8)
        """
    )
    result = project.run("--pdb", "--pdbcls=quiet_debugger:Debugger")
    result.assert_outcomes(failed=1)
    shows(result, "budget of 50 ms", "the debugger is open")


@pytest.mark.parametrize("value", ["a/b", "ä ü 你好", "x" * 300, "a::b[c]-d", "A", "a"])
def test_odd_parameter_ids_are_identities(project: Project, value: str) -> None:
    """Whatever stands in a parameter's id, its baseline is found again, and no other's."""
    project.write(
        f"""
        import pytest

        @pytest.mark.parametrize("value", [{value!r}, {value.swapcase()!r} + "~"], ids=str)
        def test_it(llm_client, value): llm_client.measure("hello", max_tokens=8)
        """
    )
    project.record(2)
    project.run().assert_outcomes(passed=2)
    stored = json.loads(project.run_files[0].read_text())["tests"]
    assert len({test["identity"] for test in stored}) == 2
    assert [{c["sessions"] for c in test["comparisons"]} for test in project.report["tests"]] == [{2}, {2}]


def test_a_time_limit_that_ends_the_start_of_an_engine_lets_go_of_the_device(project: Project) -> None:
    """An exception that is not ours, in the middle of a set-up, leaves no lock behind."""
    project.write(
        """
        import pytest

        @pytest.mark.llm_backend("interrupted")
        def test_interrupted(llm_client): pass

        def test_next(llm_client): llm_client.generate("hello", max_tokens=4)
        """
    )
    result = project.run("--timeout=20")
    result.assert_outcomes(errors=1, passed=1)
    shows(result, "RuntimeError: out of time")
