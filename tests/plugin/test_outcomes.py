"""Each line of the table "what fails a test", under a real pytest."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree

from helpers.project import RERUNS, shows

if TYPE_CHECKING:
    from helpers.project import Project

MEASURE = """
    import pytest

    {marks}
    def test_chat(llm_client):
        answer = llm_client.measure("hello", max_tokens=8)
        {body}
"""


def measuring(marks: str = "", body: str = "assert answer.text") -> str:
    """A test module with one test that measures ten requests."""
    return MEASURE.format(marks=marks, body=body)


def test_a_kept_budget_passes(project: Project) -> None:
    """A budget above what is measured lets the test pass, and the report shows it as kept."""
    project.write(measuring("@pytest.mark.llm_budget(ttft_ms=300, tpot_ms=40, throughput_tps=5)"))
    result = project.run()
    result.assert_outcomes(passed=1)
    assert [check["kept"] for check in project.test()["budgets"]] == [True, True, True]


def test_a_missed_budget_fails_in_the_call_phase(project: Project) -> None:
    """A budget below what is measured fails the test, without a traceback of ours."""
    project.write(measuring("@pytest.mark.llm_budget(ttft_ms=50)"))
    result = project.run("--junitxml=junit.xml")
    result.assert_outcomes(failed=1)
    shows(
        result,
        "ttft_ms is ",
        "above its budget of 50 ms",
        "FAILED test_it.py::test_chat - PerformanceFailure",
    )
    assert "plugin.py" not in result.stdout.str()
    suite = ElementTree.parse(project.path / "junit.xml").getroot().find("testsuite")
    assert suite is not None
    assert (suite.get("failures"), suite.get("errors")) == ("1", "0")


def test_a_missed_throughput_is_below_its_budget(project: Project) -> None:
    """Throughput is a lower limit."""
    project.write(measuring("@pytest.mark.llm_budget(throughput_tps=500)"))
    result = project.run()
    result.assert_outcomes(failed=1)
    shows(result, "below its budget of 500 tokens/s")


def test_a_body_that_raises_keeps_its_own_error(project: Project) -> None:
    """The body's error stands, what was measured is a section of the report."""
    project.write(measuring("@pytest.mark.llm_budget(ttft_ms=50)", "assert answer.text == 'other'"))
    result = project.run()
    result.assert_outcomes(failed=1)
    shows(result, "AssertionError", "- llmspeed -", "above its budget of 50 ms")
    assert project.test()["outcome"] == "failed"


def test_a_skip_in_the_body_stays_a_skip(project: Project) -> None:
    """A test that skips itself after measuring is skipped, whatever it measured."""
    project.write(measuring("@pytest.mark.llm_budget(ttft_ms=50)", "pytest.skip('not today')"))
    result = project.run("--llmspeed-update-baseline")
    result.assert_outcomes(skipped=1)
    assert project.test()["outcome"] == "skipped"
    assert project.run_files == []


def test_a_teardown_error_lets_the_verdict_of_the_call_stand(project: Project) -> None:
    """The call passed, the teardown is an error, and nothing is stored."""
    project.write(
        """
        import pytest

        @pytest.fixture
        def fragile():
            yield
            raise OSError("in teardown")

        def test_chat(fragile, llm_client):
            llm_client.measure("hello")
        """
    )
    result = project.run("--llmspeed-update-baseline")
    result.assert_outcomes(passed=1, errors=1)
    assert project.test()["outcome"] == "error"
    assert project.run_files == []


def test_xfail_is_xfail_and_the_row_shows_the_verdict(project: Project) -> None:
    """A budget that is expected to be missed gives XFAIL."""
    project.write(
        measuring("@pytest.mark.xfail(reason='slow engine')\n    @pytest.mark.llm_budget(ttft_ms=50)")
    )
    result = project.run("--llmspeed-update-baseline")
    result.assert_outcomes(xfailed=1)
    shows(result, "budget missed")
    assert project.test()["outcome"] == "xfailed"
    assert project.run_files == []


def test_a_metric_that_could_not_be_measured_fails_its_budget(project: Project) -> None:
    """A budget on TPOT fails where nobody counted tokens, and says why."""
    project.write(
        measuring(
            "@pytest.mark.llm_backend('scripted', usage=False)\n    @pytest.mark.llm_budget(tpot_ms=50)"
        )
    )
    result = project.run()
    result.assert_outcomes(failed=1)
    shows(result, "tpot_ms not measured: the server gave no token counts")


def test_answers_that_were_not_streamed_have_no_first_token(project: Project) -> None:
    """A budget on TTFT fails where the answers were not streamed, one on E2E holds."""
    project.write(
        measuring(
            "@pytest.mark.llm_backend('scripted', streamed=False)\n"
            "    @pytest.mark.llm_budget(ttft_ms=500, e2e_ms=5000)"
        )
    )
    result = project.run()
    result.assert_outcomes(failed=1)
    shows(result, "ttft_ms not measured: the answers were not streamed")
    assert [check["kept"] for check in project.test()["budgets"]] == [False, True]


def test_a_quantile_of_too_few_samples_fails_with_the_number_it_needs(project: Project) -> None:
    """A p99 of ten requests is refused."""
    project.write(
        """
        import pytest

        @pytest.mark.llm_budget(ttft_p99_ms=500)
        def test_chat(llm_client):
            llm_client.measure("hello", rounds=10)
        """
    )
    result = project.run()
    result.assert_outcomes(failed=1)
    shows(result, "ttft_p99_ms not measured: p99 needs at least 100 samples, there are 10")


def test_measure_takes_the_rounds_that_the_budgets_need(project: Project) -> None:
    """A p95 budget makes twenty rounds of the default ten."""
    project.write(measuring("@pytest.mark.llm_budget(ttft_p95_ms=500)"))
    project.run().assert_outcomes(passed=1)
    assert len(project.test()["measurement"]["requests"]) == 20


def test_a_budgeted_test_that_measured_nothing_fails(project: Project) -> None:
    """llm_budget on a test that sends no request is a failure, not a pass."""
    project.write(
        """
        import pytest

        @pytest.mark.llm_budget(ttft_ms=500)
        def test_chat(llm_client):
            pass
        """
    )
    result = project.run()
    result.assert_outcomes(failed=1)
    shows(result, "nothing was measured: a test with llm_budget must send a request")


def test_an_overridden_client_is_named(project: Project) -> None:
    """Where another llm_client fixture took our place, the failure says whose."""
    project.write(
        """
        import pytest

        @pytest.mark.llm_budget(ttft_ms=500)
        def test_chat(llm_client):
            assert llm_client == "mine"
        """,
        conftest="""
import pytest

@pytest.fixture
def llm_client():
    return "mine"
""",
    )
    result = project.run()
    result.assert_outcomes(failed=1)
    shows(result, "nothing was measured", "conftest.py; rename that fixture")
    assert project.engine_log == []


def test_a_generation_error_that_the_test_caught_is_expected(project: Project) -> None:
    """generate raises on failure; a test that expects that passes, and the request is recorded."""
    project.write(
        """
        import pytest
        from pytest_llmspeed import GenerationError

        @pytest.mark.llm_backend("scripted", fail_every=1)
        def test_chat(llm_client):
            with pytest.raises(GenerationError, match="scripted failure") as caught:
                llm_client.generate("hello")
            assert caught.value.sample.ttft_ms is None
        """
    )
    project.run().assert_outcomes(passed=1)
    (request,) = project.test()["measurement"]["requests"]
    assert request["error"] == "scripted failure"
    assert request["ttft_ms"] is None


def test_a_generation_error_that_nobody_caught_fails(project: Project) -> None:
    """An uncaught GenerationError is the body's own error."""
    project.write(
        """
        import pytest

        @pytest.mark.llm_backend("scripted", fail_every=1)
        def test_chat(llm_client):
            llm_client.generate("hello")
        """
    )
    result = project.run()
    result.assert_outcomes(failed=1)
    shows(result, "GenerationError: scripted failure")


def test_failed_requests_of_measure_fail_the_test(project: Project) -> None:
    """A measurement with failures in it is invalid."""
    project.write(measuring("@pytest.mark.llm_backend('scripted', fail_every=4)"))
    result = project.run("--llmspeed-update-baseline")
    result.assert_outcomes(failed=1)
    shows(result, "of 10 requests failed, the last with: scripted failure", "llm_budget(error_rate=")
    assert project.test()["verdict"] == "invalid"
    assert project.run_files == []


def test_an_error_rate_budget_allows_failures(project: Project) -> None:
    """Within an error_rate budget failures pass, beyond it they fail."""
    marks = "@pytest.mark.llm_backend('scripted', fail_every=4)\n    @pytest.mark.llm_budget(error_rate={})"
    project.write(measuring(marks.format(0.5)))
    project.run().assert_outcomes(passed=1)
    project.write(measuring(marks.format(0.1)))
    project.run().assert_outcomes(failed=1)


def test_no_baseline_passes_with_one_line_and_fails_where_it_is_required(project: Project) -> None:
    """A test without a baseline passes, unless baselines are required."""
    project.write(measuring())
    result = project.run()
    result.assert_outcomes(passed=1)
    shows(
        result,
        "no baseline yet in .llmspeed/baselines/",
        ": store one with pytest --llmspeed-update-baseline",
    )
    result = project.run("--llmspeed-require-baseline")
    result.assert_outcomes(failed=1)
    shows(result, "(the test fails because of --llmspeed-require-baseline)")


def test_strict_fails_what_is_inconclusive(project: Project) -> None:
    """One request decides nothing: passed by default, failed with --llmspeed-strict."""
    project.write("def test_chat(llm_client): llm_client.generate('hello')")
    project.record(2)
    result = project.run()
    result.assert_outcomes(passed=1)
    shows(result, "at least 5 are needed; measure ten with llm_client.measure")
    project.run("--llmspeed-strict").assert_outcomes(failed=1)


def test_ctrl_c_reports_what_was_complete_and_stores_nothing(project: Project) -> None:
    """Completed tests and the interrupted one's samples are reported, the store stays untouched."""
    project.write(
        """
        def test_first(llm_client):
            llm_client.measure("hello")

        def test_second(llm_client):
            llm_client.generate("hello")
            llm_client.generate("hello")
            raise KeyboardInterrupt
        """
    )
    result = project.pytester.runpytest_subprocess(
        "--llmspeed-update-baseline", "--llmspeed-json=report.json"
    )
    assert result.ret == 2
    shows(result, "interrupted after 2 requests", "baseline")
    assert [test["partial"] for test in project.report["tests"]] == [False, True]
    assert project.run_files == []
    assert project.engine_log == ["start scripted", "stop scripted"]


def test_a_run_that_something_ends_early_stores_nothing(project: Project) -> None:
    """`pytest.exit` ends a run in the middle, even with exit code 0."""
    project.write("def test_first(llm_client): llm_client.measure('hello')")
    project.pytester.makeconftest(
        project.pytester.path.joinpath("conftest.py").read_text()
        + """
import pytest
def pytest_runtest_teardown(item):
    pytest.exit("enough", returncode=0)
"""
    )
    result = project.run("--llmspeed-update-baseline")
    assert result.ret == 0
    assert project.run_files == []


def test_a_rerun_starts_empty_and_an_earlier_slower_stands(project: Project) -> None:
    """A re-run measures anew, and cannot wash off that an earlier attempt was slower."""
    project.write(measuring())
    project.record(5)
    project.script(seed=200)
    project.write(
        """
        import os
        import pytest

        @pytest.mark.llm_budget(ttft_ms=150)
        def test_chat(llm_client):
            attempt = int(os.environ.get("ATTEMPT", "1"))
            os.environ["ATTEMPT"] = str(attempt + 1)
            if attempt > 1:
                os.environ["SCRIPTED_FACTOR"] = "1"
            llm_client.measure("hello", max_tokens=8)
        """
    )
    project.script(factor=1.6)
    result = project.run(*RERUNS, "--reruns", "1")
    assert result.parseoutcomes() == {"failed": 1, "rerun": 1}
    stands = "an earlier attempt of this test was slower, and that result stands: ttft_ms is slower"
    shows(result, stands)
    assert len(project.test()["measurement"]["requests"]) == 10
    assert project.test()["verdict"] == "slower"


def test_a_unittest_test_case_is_measured_and_judged(project: Project) -> None:
    """A TestCase gets the client by an autouse fixture; a missed budget and its own failure both show."""
    project.write(
        """
        import unittest
        import pytest

        class TestChat(unittest.TestCase):
            @pytest.fixture(autouse=True)
            def _client(self, llm_client):
                self.client = llm_client

            @pytest.mark.llm_budget(ttft_ms=500)
            def test_kept(self):
                self.client.measure("hello")

            @pytest.mark.llm_budget(ttft_ms=50)
            def test_missed(self):
                self.client.measure("hello")

            @pytest.mark.llm_budget(ttft_ms=50)
            def test_own_error(self):
                self.client.measure("hello")
                self.assertEqual(1, 2)
        """
    )
    result = project.run()
    result.assert_outcomes(passed=1, failed=2)
    shows(result, "PerformanceFailure: ttft_ms", "AssertionError: 1 != 2")


def test_an_error_rate_budget_of_a_label_allows_no_others(project: Project) -> None:
    """Failures of one label are not excused by another label's budget."""
    project.write(
        """
        import pytest

        @pytest.mark.llm_backend("scripted", fail_every=4)
        @pytest.mark.llm_budget(error_rate=0.9, label="a")
        def test_it(llm_client):
            llm_client.measure("hello", label="a")
            llm_client.measure("hello", label="b")
        """
    )
    project.run().assert_outcomes(failed=1)
    assert project.test()["verdict"] == "invalid"


def test_a_test_that_was_never_set_up_is_not_counted(project: Project) -> None:
    """A skip mark measures nothing, so nothing is said of it."""
    project.write(
        """
        import pytest

        @pytest.mark.skip
        @pytest.mark.llm_budget(ttft_ms=1)
        def test_skipped(llm_client): pass

        def test_it(llm_client): llm_client.measure("hello")
        """
    )
    result = project.run()
    result.assert_outcomes(passed=1, skipped=1)
    shows(result, "1 test measured")


def test_a_skip_in_a_budgeted_body_is_no_failure_of_ours(project: Project) -> None:
    """A body that skips before its first request has not measured nothing, it has not run."""
    project.write(
        """
        import pytest

        @pytest.mark.llm_budget(ttft_ms=1)
        def test_it(llm_client): pytest.skip("not here")
        """
    )
    result = project.run()
    result.assert_outcomes(skipped=1)
    assert "nothing was measured" not in result.stdout.str()


def test_requests_at_once_are_flagged_and_not_compared(project: Project) -> None:
    """An application that calls from threads is measured, but its times are not single ones."""
    project.write(
        """
        from concurrent.futures import ThreadPoolExecutor

        def test_it(llm_client):
            with ThreadPoolExecutor(4) as pool:
                for _ in llm_client.rounds(6, warmup=0):
                    list(pool.map(lambda n: llm_client.generate(f"p{n}", max_tokens=16), range(4)))
        """
    )
    result = project.run("--llmspeed-backend=tiny")
    result.assert_outcomes(passed=1)
    requests = project.test()["measurement"]["requests"]
    assert len(requests) >= 24  # more where other programs disturbed some
    assert any("overlapped" in request["flags"] for request in requests)
