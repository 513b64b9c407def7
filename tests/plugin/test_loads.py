"""Loads in a project: budgets, baselines, verdicts and reports."""

from __future__ import annotations

import pytest
from helpers.project import Project, shows

MANY = """
    import pytest

    @pytest.mark.llm_backend("crowd"{options})
    @pytest.mark.llm_budget({budgets})
    def test_many(llm_client):
        llm_client.load("hello", concurrency=4, requests=80, slo={{"ttft_ms": 130}})
"""


def many(budgets: str, options: str = "") -> str:
    return MANY.format(budgets=budgets, options=options)


def test_budgets_hold_for_a_load(project: Project) -> None:
    """Throughput and goodput are those of the whole window, latencies those of its requests."""
    project.write(many("throughput_tps=100, requests_per_s=10, goodput=0.9, ttft_p95_ms=130, error_rate=0"))
    project.run().assert_outcomes(passed=1)
    observed = {check["name"]: check["observed"] for check in project.test()["budgets"]}
    assert observed["throughput_tps"] == pytest.approx(4 * 8 / 0.24, rel=0.1)
    assert observed["requests_per_s"] == pytest.approx(4 / 0.24, rel=0.1)
    assert observed["goodput"] == 1
    assert 100 < observed["ttft_p95_ms"] < 115


@pytest.mark.parametrize(
    ("budget", "told"),
    [
        ("throughput_tps=1000", "throughput_tps is 13* tokens/s, below its budget of 1,000 tokens/s"),
        ("requests_per_s=50", "requests_per_s is * requests/s, below its budget of 50 requests/s"),
        ("goodput=0.9, label='chat'", "goodput of 'chat' not measured: no request has the label 'chat'"),
    ],
)
def test_a_missed_budget_of_a_load_fails_its_test(project: Project, budget: str, told: str) -> None:
    """The sentence says figure and limit."""
    project.write(many(budget))
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*{told}*"])


def test_a_figure_of_loads_is_not_measured_without_one(project: Project) -> None:
    """A budget on it says what to use."""
    project.write(
        """
        import pytest

        @pytest.mark.llm_budget(requests_per_s=3)
        def test_one(llm_client):
            llm_client.measure("hello")
        """
    )
    shows(project.run(), "requests_per_s not measured", "use llm_client.load")


def test_failed_requests_of_a_load_fail_the_test(project: Project) -> None:
    """Unless an error_rate budget allows them."""
    project.write(many("ttft_ms=200", ", fail_every=20"))
    result = project.run()
    result.assert_outcomes(failed=1)
    shows(result, "4 of 80 requests failed, the last with: scripted failure")
    project.write(many("error_rate=0.06", ", fail_every=20"))
    project.run().assert_outcomes(passed=1)


def test_a_load_is_compared_with_its_baseline(project: Project) -> None:
    """Its ten blocks are the samples: of TTFT, TPOT and throughput; a slowdown fails the test."""
    project.write(many("error_rate=0"))
    project.record(5)
    project.run().assert_outcomes(passed=1)
    assert project.verdicts() == {"ttft_ms": "passed", "tpot_ms": "passed", "throughput_tps": "passed"}
    project.script(factor=1.5)
    project.run().assert_outcomes(failed=1)
    assert project.verdicts()["throughput_tps"] == "slower"


def test_a_load_too_short_for_a_baseline_is_measured_and_not_compared(project: Project) -> None:
    """Its budgets hold, and one line says what a baseline would need."""
    project.write(many("throughput_tps=1").replace("requests=80", "requests=10"))
    result = project.run()
    result.assert_outcomes(passed=1)
    shows(
        result,
        "a load with requests=10 is not compared with a baseline; that needs at least 40",
        "1 test measured: 1 not compared",
    )
    assert project.test()["budgets"][0]["kept"]


def test_the_store_keeps_the_blocks_of_a_load_not_its_requests(project: Project) -> None:
    """So that a session of thousands of requests stays small."""
    import json

    project.write(many("error_rate=0"))
    project.record(1)
    (file,) = project.run_files
    (test,) = json.loads(file.read_text())["tests"]
    assert test["measurement"]["requests"]["count"] == 0
    (load,) = test["measurement"]["loads"]
    assert (load["requests"], len(load["blocks"]["throughput_tps"])) == (80, 10)


def test_another_concurrency_is_another_workload(project: Project) -> None:
    """Its baseline is incomparable, and the report names what differs; more requests of it are not."""
    project.write(many("error_rate=0"))
    project.record(1)
    project.write(many("error_rate=0").replace("requests=80", "requests=90"))
    project.run()
    assert "incomparable" not in project.verdicts().values()
    project.write(many("error_rate=0").replace("concurrency=4", "concurrency=5"))
    shows(project.run(), "incomparable", "concurrency 4 → 5")


def test_the_report_has_the_load(project: Project) -> None:
    """Its figures, its summaries and what was asked, beside its requests."""
    project.write(many("error_rate=0"))
    project.run()
    measurement = project.test()["measurement"]
    (load,) = measurement["loads"]
    assert load["asked"]["concurrency"] == 4
    assert load["summary"]["ttft_ms"]["n"] == 80
    assert load["invalid"] == []
    assert len(measurement["requests"]) == 80


def test_what_of_a_file_was_not_asked_is_said_once(project: Project) -> None:
    """Under the test, and in the report of each load."""
    project.pytester.makefile(".jsonl", chats='{"prompt": "hello"}\n{"question": "hello"}\n')
    project.write(
        """
        import pytest
        from pytest_llmspeed import read_workload

        @pytest.mark.llm_backend("crowd")
        def test_file(llm_client):
            for concurrency in (2, 3):
                llm_client.load(read_workload("chats.jsonl"), concurrency=concurrency)
        """
    )
    result = project.run()
    result.assert_outcomes(passed=1)
    told = "chats.jsonl: 1 of 2 records left out, the first: chats.jsonl, line 2, field 'prompt'"
    assert result.stdout.str().count(told) == 1
    assert [len(load["notes"]) for load in project.test()["measurement"]["loads"]] == [1, 1]


def test_a_load_crosses_from_a_worker_of_xdist(project: Project) -> None:
    """The same report, with workers or without."""
    project.write(many("error_rate=0"))
    project.run()
    alone = project.test()["measurement"]["loads"]
    result = project.pytester.runpytest_subprocess("-n1", "--llmspeed-json=report.json")
    result.assert_outcomes(passed=1)
    assert project.test()["measurement"]["loads"][0]["asked"] == alone[0]["asked"]


def test_more_than_the_engine_serves_is_refused(project: Project) -> None:
    """The test fails with what to do."""
    project.write(many("error_rate=0").replace('"crowd"', '"scripted"'))
    shows(project.run(), "serves one request at a time")


def test_a_sweep_is_held_against_the_budgets_of_its_test(project: Project) -> None:
    """It passes if some load keeps them, and fails with the lowest one's figure if none does."""
    sweep = """
        import pytest

        @pytest.mark.llm_backend("crowd", crowded=4)
        @pytest.mark.llm_budget(e2e_ms={limit})
        def test_sweep(llm_client):
            curve = llm_client.sweep("hello", concurrency=[2, 4, 8])
            print(curve.highest and curve.highest.level)
        """
    project.write(sweep.format(limit=300))
    result = project.run("-s")
    result.assert_outcomes(passed=1)
    shows(result, "4.0")
    project.write(sweep.format(limit=100))
    project.run().assert_outcomes(failed=1)
    assert len(project.test()["measurement"]["loads"]) == 3


def test_a_required_baseline_is_not_waived_for_a_short_load(project: Project) -> None:
    """A load that can never have one fails, and says how long it must be; a sweep needs none."""
    project.write(
        """
        import pytest

        @pytest.mark.llm_backend("crowd")
        def test_short(llm_client): llm_client.load("x", rate=10, requests=5, max_tokens=8)

        @pytest.mark.llm_backend("crowd")
        def test_sweep(llm_client): llm_client.sweep("x", concurrency=[1, 2], requests=5, max_tokens=8)
        """
    )
    project.run().assert_outcomes(passed=2)
    result = project.run("--llmspeed-require-baseline")
    result.assert_outcomes(passed=1, failed=1)
    shows(
        result,
        "requests=5 is not compared with a baseline; that needs at least",
        "because of --llmspeed-require-baseline",
    )
