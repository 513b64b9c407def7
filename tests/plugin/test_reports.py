"""What a run leaves behind for people and machines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from support import shows

if TYPE_CHECKING:
    from support import Project

MEASURE = """
    import pytest

    @pytest.mark.llm_budget(ttft_ms=500, tpot_p90_ms=1)
    def test_chat(llm_client): llm_client.measure("the secret prompt", max_tokens=8)

    def test_other(llm_client): llm_client.measure("hello", max_tokens=8)
"""


def test_the_json_report_has_its_schema(project: Project) -> None:
    """Every key that is promised is there; missing values are null; prompts are nowhere."""
    project.write(MEASURE)
    project.run()
    report = project.report
    assert report["schema"] == "llmspeed/1"
    assert {"started", "environment", "options", "suite_verdict"} <= report["run"].keys()
    test = project.test("test_chat")
    promised = {
        "nodeid",
        "identity",
        "outcome",
        "backend",
        "measurement",
        "budgets",
        "comparisons",
        "quality",
    }
    assert promised <= test.keys()
    assert {"name", "model", "precision", "options"} <= test["backend"].keys()
    assert {
        "label",
        "ttft_ms",
        "ttfo_ms",
        "tpot_ms",
        "e2e_ms",
        "itl_ms",
        "output_tokens",
        "prompt_tokens",
        "token_source",
        "finish_reason",
        "text",
        "error",
        "flags",
        "started_ms",
    } <= test["measurement"]["requests"][0].keys()
    assert {"n", "p50", "p90", "p95", "p99", "mean", "min", "max"} == test["measurement"]["summary"][
        "ttft_ms"
    ].keys()
    assert test["measurement"]["summary"]["ttft_ms"]["p99"] is None
    assert {"name", "limit", "observed", "ci", "kept"} <= test["budgets"][0].keys()
    assert {
        "metric",
        "label",
        "verdict",
        "delta",
        "ci",
        "p_samples",
        "p_session",
        "visible",
        "reason",
    } <= test["comparisons"][0].keys()
    assert "the secret prompt" not in json.dumps(report)


def test_answers_can_be_left_out(project: Project) -> None:
    """llmspeed_json_text = false leaves them out of the report."""
    project.write(MEASURE)
    project.run()
    assert "scripted answer" in json.dumps(project.report)
    project.run("-o", "llmspeed_json_text=false")
    assert "scripted answer" not in json.dumps(project.report)


def test_the_table_has_a_row_for_what_is_not_passed(project: Project) -> None:
    """A missed budget has a row, a kept one only with -v."""
    project.write(MEASURE)
    project.record(3)
    result = project.run()
    shows(result, "tpot_p90_ms ≤ 1 ms", "budget missed", "2 tests measured: ", "1 budget missed")
    assert "budget kept" not in result.stdout.str()
    shows(project.run("-v"), "budget kept", "passed: no slowdown above 20 %")


def test_without_a_terminal_the_run_is_the_same(project: Project) -> None:
    """-p no:terminal changes neither the exit code nor the report."""
    project.write(MEASURE)
    assert project.run("-p", "no:terminal").ret == 1
    assert project.test("test_chat")["outcome"] == "failed"


def test_a_report_that_cannot_be_written_is_told(project: Project) -> None:
    """The run then does not end well."""
    project.write("def test_it(llm_client): llm_client.measure('x')")
    (project.path / "taken").write_text("a file")
    result = project.pytester.runpytest_inprocess("--llmspeed-json=taken/report.json")
    assert result.ret == 1
    shows(result, "the report cannot be written to")


def test_secrets_of_an_engine_stay_its_own(project: Project) -> None:
    """What an engine leaves out of its record is in no report and no store."""
    project.write(
        """
        import pytest

        @pytest.mark.llm_backend("scripted", secret="hunter2")
        def test_it(llm_client): llm_client.measure("x")
        """
    )
    project.run("--llmspeed-update-baseline")
    assert "hunter2" not in json.dumps(project.report) + project.run_files[0].read_text()
