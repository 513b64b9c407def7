"""What a run leaves behind for people and machines."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from helpers.project import RERUNS, shows

if TYPE_CHECKING:
    from helpers.project import Project

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
    assert report["schema"] == "llmspeed/2"
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
    shows(project.run("-v"), "budget kept", "passed: no slowdown above 20%")


def test_without_a_terminal_the_run_is_the_same(project: Project) -> None:
    """-p no:terminal changes neither the exit code nor the report."""
    project.write(MEASURE)
    assert project.run("-p", "no:terminal").ret == 1
    assert project.test("test_chat")["outcome"] == "failed"


TAKEN_MEANWHILE = """
    from pathlib import Path

    def test_it(llm_client):
        Path("taken").write_text("a file")
        llm_client.measure("x")
"""


def test_a_report_that_cannot_be_written_is_told(project: Project) -> None:
    """The path was fine when the run began. The run then does not end well."""
    project.write(TAKEN_MEANWHILE)
    result = project.pytester.runpytest_inprocess("--llmspeed-json=taken/report.json")
    assert result.ret == 1
    shows(result, "the report cannot be written to")


@pytest.mark.parametrize("workers", [(), ("-n1",)])
def test_the_last_line_counts_a_report_that_cannot_be_written(
    project: Project, monkeypatch: pytest.MonkeyPatch, workers: tuple[str, ...]
) -> None:
    """As an error with its sentence, once; JUnit has the tests alone."""
    monkeypatch.setenv("CI", "true")  # or pytest cuts the summary at the terminal's width
    project.write(TAKEN_MEANWHILE)
    result = project.pytester.runpytest_inprocess(
        "--llmspeed-json=taken/report.json", "--junitxml=junit.xml", *workers
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["ERROR pytest-llmspeed - the report cannot be written to *"])
    (suite,) = ElementTree.parse(project.path / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("errors")) == ("1", "0")


def test_the_markdown_report_has_what_failed_and_all_rows_folded(project: Project) -> None:
    """Counts, a table, the sentence that failed the test; its path starts from the working directory."""
    project.write(MEASURE)
    assert project.run("--llmspeed-markdown=new/report.md").ret == 1
    text = (project.path / "new" / "report.md").read_text(encoding="utf-8")
    counts = "2 tests measured: 1 without baseline, 1 failed by a budget, 1 budget missed"
    assert text.startswith(f"### LLM speed – {counts}\n")
    assert "| `test_it.py::test_chat` | tpot_p90_ms ≤ 1 ms |" in text
    assert "- `test_it.py::test_chat`: tpot_p90_ms is " in text
    assert "<details>" in text


def test_the_page_has_the_verdicts_and_figures_and_no_answer(project: Project) -> None:
    """Prompts and answers are nowhere in it."""
    project.write(MEASURE)
    assert project.run("--llmspeed-report=new/page.html").ret == 1
    page = (project.path / "new" / "page.html").read_text(encoding="utf-8")
    assert "2 tests measured: 1 without baseline, 1 failed by a budget, 1 budget missed" in page
    assert "tpot_p90_ms ≤ 1 ms" in page
    assert page.count("requests: the wait for the first output") == 2
    assert "the secret prompt" not in page


@pytest.mark.parametrize(
    ("name", "problem"), [("taken.html", "it is a folder"), ("page.txt", "name it FILE.html")]
)
def test_a_page_that_could_not_be_written_stops_the_run(project: Project, name: str, problem: str) -> None:
    """Before anything is measured."""
    project.write(MEASURE)
    (project.path / "taken.html").mkdir()
    result = project.run(f"--llmspeed-report={name}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    shows(result, problem)


def test_a_markdown_report_that_cannot_be_written_is_told(project: Project) -> None:
    """The run then does not end well, and the baseline and the other reports are written all the same."""
    project.write(TAKEN_MEANWHILE)
    result = project.run("--llmspeed-markdown=taken/report.md", "--llmspeed-update-baseline")
    assert result.ret == 1
    shows(result, "the report cannot be written to")
    assert project.test()["outcome"] == "passed"
    assert len(project.run_files) == 1


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "workers"])
def test_the_step_summary_is_added_to(
    project: Project, monkeypatch: pytest.MonkeyPatch, workers: tuple[str, ...]
) -> None:
    """What stands in it stays; the controller alone adds to it, once."""
    summary = project.path / "summary.md"
    summary.write_text("another step\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    project.write(MEASURE)
    project.run(*workers)
    text = summary.read_text(encoding="utf-8")
    assert text.startswith("another step\n\n### LLM speed – 2 tests measured")
    assert text.count("###") == 1


def test_a_step_summary_that_cannot_be_written_fails_nothing(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line says so."""
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(project.path))
    project.write("def test_it(llm_client): llm_client.measure('x')")
    result = project.run()
    assert result.ret == 0
    shows(result, f"the report cannot be written to {project.path}")


def test_a_run_without_our_tests_leaves_the_step_summary_alone(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A suite that measured nothing says nothing there."""
    summary = project.path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    project.write("def test_plain(): pass\ndef test_it(llm_client): pass")
    project.run("-k", "plain")
    assert not summary.exists()


def junit(project: Project, *arguments: str) -> dict[str, dict[str, str]]:
    """Test name → its properties in the JUnit XML of a run."""
    project.run("--junitxml=junit.xml", *arguments)
    cases = ElementTree.parse(project.path / "junit.xml").iter("testcase")
    return {
        case.attrib["name"]: {p.attrib["name"]: p.attrib["value"] for p in case.iter("property")}
        for case in cases
    }


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "workers"])
@pytest.mark.parametrize("family", ["xunit1", "xunit2"])
@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "passed"), (1.6, "slower")])
def test_junit_shows_verdict_and_figures_of_each_test(
    project: Project, factor: float, verdict: str, family: str, workers: tuple[str, ...]
) -> None:
    """Of failed and passed tests alike; a test of others, and properties of others, stay as they are."""
    project.write(
        """
        def test_chat(llm_client, request):
            request.node.user_properties.append(("mine", 1))
            llm_client.measure("hello", max_tokens=8)

        def test_plain(request):
            request.node.user_properties.append(("mine", 2))
        """
    )
    project.record(5)
    project.script(seed=3, factor=factor)
    found = junit(project, "-o", f"junit_family={family}", *workers)
    chat = found["test_chat"]
    assert found["test_plain"] == {"mine": "2"}
    assert (chat["mine"], chat["llmspeed_verdict"], chat["llmspeed_backend"]) == ("1", verdict, "scripted")
    assert float(chat["llmspeed_ttft_ms"]) == pytest.approx(100 * factor, rel=0.1)
    assert re.fullmatch(r"[+-][\d.]+% \([+-][\d.]+% to [+-][\d.]+%\)", chat["llmspeed_tpot_ms_change"])
    low, ratio, high = (
        float(chat[f"llmspeed_ttft_ms_{name}"]) for name in ("ratio_low", "ratio", "ratio_high")
    )
    assert low <= ratio <= high
    assert ratio == pytest.approx(factor, rel=0.1)


def test_junit_without_a_baseline_has_no_change(project: Project) -> None:
    """What is missing has no property."""
    project.write("def test_it(llm_client): llm_client.measure('x')")
    found = junit(project)["test_it"]
    assert found.keys() == {"llmspeed_verdict", "llmspeed_backend", "llmspeed_ttft_ms", "llmspeed_tpot_ms"}
    assert found["llmspeed_verdict"] == "no_baseline"


def test_junit_of_a_rerun_shows_each_attempt_once(project: Project) -> None:
    """pytest writes those of each attempt; an attempt has none of the one before."""
    project.write(
        """
        import pytest

        attempts = []

        @pytest.mark.flaky(reruns=1)
        def test_it(llm_client):
            llm_client.measure("x")
            attempts.append(1)
            assert len(attempts) > 1
        """
    )
    project.run(*RERUNS, "--junitxml=junit.xml")
    names = [p.attrib["name"] for p in ElementTree.parse(project.path / "junit.xml").iter("property")]
    assert names == ["llmspeed_verdict", "llmspeed_backend", "llmspeed_ttft_ms", "llmspeed_tpot_ms"] * 2


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
