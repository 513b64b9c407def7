"""What the tests of a run say together: a shift of all, and a test that is slower beside the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from helpers.project import shows

if TYPE_CHECKING:
    from helpers.project import Project

TESTS = """
    import os
    import pytest

    @pytest.mark.parametrize("n", range(8))
    def test_it(llm_client, n):
        if n == 3:
            os.environ["SCRIPTED_FACTOR"] = str(float(os.environ.get("SCRIPTED_FACTOR", 1)) * LONE)
        llm_client.measure(f"hello {n}", max_tokens=8)
        if n == 3:
            os.environ["SCRIPTED_FACTOR"] = str(float(os.environ["SCRIPTED_FACTOR"]) / LONE)

    LONE = float(os.environ.get("SCRIPTED_LONE", 1))
"""


@pytest.fixture
def eight(project: Project) -> Project:
    """Eight tests with five stored sessions."""
    project.write(TESTS)
    project.record(5)
    return project


def test_an_unchanged_suite_has_moved_by_nothing(eight: Project) -> None:
    """The run ends well, and the report says over how many comparisons."""
    eight.script(seed=3)
    assert eight.run().ret == 0
    suite = eight.report["run"]["suite_verdict"]
    assert suite["alone"] == []
    assert {shift["metric"] for shift in suite["shifts"]} == {"ttft_ms", "tpot_ms"}
    assert {(shift["tests"], shift["sessions"]) for shift in suite["shifts"]} == {(8, 5)}
    assert {shift["verdict"] for shift in suite["shifts"]} <= {"passed", "inconclusive"}


def test_a_shift_of_all_fails_the_run_and_no_test(eight: Project) -> None:
    """15% on all tests: hardly a test can tell, the suite can; nothing is stored."""
    eight.script(seed=3, factor=1.17)
    before = eight.run_files
    result = eight.run("--llmspeed-update-baseline")
    assert result.ret == 1
    shows(result, "the whole suite is slower: tpot_ms +1", "look at the machine and the engine first")
    assert eight.report["run"]["suite_verdict"]["verdict"] == "slower"
    assert eight.run_files == before
    outcomes = result.parseoutcomes()
    assert outcomes.get("failed", 0) < 8
    assert outcomes["errors"] == 1
    shows(result, "ERROR pytest-llmspeed - the whole suite is slower")


def test_a_shift_of_all_can_be_accepted(eight: Project) -> None:
    """With a reason the run ends well and is stored, and the report counts what the store does."""
    eight.script(seed=3, factor=1.17)
    result = eight.run("--llmspeed-update-baseline", "--llmspeed-accept", "larger model")
    assert result.ret == 0
    assert len(eight.run_files) == 6
    shows(
        result, "the whole suite is slower: tpot_ms +1", "comparisons), accepted: larger model", "8 accepted"
    )
    result.stdout.no_fnmatch_line("*if this is meant*")
    assert eight.report["run"]["suite_verdict"]["accepted"] == "larger model"
    assert {test["accepted"] for test in eight.report["tests"]} == {"larger model"}
    eight.script(seed=4, factor=1.17)
    eight.run()
    sessions = {c["sessions"] for test in eight.report["tests"] for c in test["comparisons"]}
    assert sessions == {1}


def test_workers_do_not_matter_to_the_suite(eight: Project) -> None:
    """The controller judges the suite from what the workers report."""
    eight.script(seed=3, factor=1.17)
    result = eight.run("-n", "2")
    assert result.ret == 1
    shows(result, "the whole suite is slower")


def test_five_tests_are_no_suite(project: Project) -> None:
    """Fewer than six comparisons share nothing."""
    project.write(TESTS.replace("range(8)", "range(5)"))
    project.record(2)
    project.run()
    assert project.report["run"]["suite_verdict"] is None


def test_only_what_its_speed_decided_counts(eight: Project) -> None:
    """What is expected to fail, is skipped or fails in its body says nothing of the suite."""
    eight.script(seed=3, factor=1.3)
    for end, code in {"pytest.xfail('known')": 0, "pytest.skip('not today')": 0, "assert n < 3": 1}.items():
        eight.write(TESTS.replace("    LONE =", f"        {end}\n\n    LONE ="))
        assert eight.run().ret == code
        assert eight.report["run"]["suite_verdict"] is None
