"""One test on several engines: the run ends with their figures side by side."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from helpers.project import shows

if TYPE_CHECKING:
    from helpers.project import Project

TWO_ENGINES = """
import pytest

@pytest.mark.llm_backend("scripted", tpot_ms=20)
@pytest.mark.llm_backend("scripted2", tpot_ms=60)
@pytest.mark.parametrize("n", [1])
def test_it(llm_client, n): llm_client.measure("x")
"""


def test_two_marks_are_compared(project: Project) -> None:
    """The table stands at the end, the first mark is the measure; the report holds what it is made of."""
    project.script(spread=0, mood=0)
    project.write(TWO_ENGINES)
    result = project.run()
    header, _, first, second = [line.split() for line in result.outlines[-5:-1]]
    assert header == ["test", "engine", "TTFT", "TPOT", "throughput", "memory", "start"]
    assert first[:6] == ["test_it.py::test_it[1]", "scripted", "100", "ms", "20", "ms"]
    assert second[:7] == ["scripted2", "100", "ms", "(1×)", "60", "ms", "(3×)"]
    assert project.test("[1-scripted2]")["side"] == {
        "test": "test_it.py::test_it[1]",
        "engine": "scripted2",
        "place": 1,
    }


def test_the_same_engine_with_other_options_is_compared_too(project: Project) -> None:
    """Two sets of options of one engine stand side by side, each under its own id."""
    project.write(
        """
        import pytest

        @pytest.mark.llm_backend("scripted", tokens=4)
        @pytest.mark.llm_backend("scripted", tokens=8)
        def test_it(llm_client): llm_client.measure("x")
        """
    )
    shows(
        project.run(),
        "scripted-tokens=8",
        "test_it.py::test_it: answers had 4 tokens on scripted, 8 on scripted-tokens=8; throughput follows",
    )


def test_the_first_mark_is_the_measure_under_workers(project: Project) -> None:
    """Whichever worker is done first: the order is that of the marks."""
    project.write(TWO_ENGINES)
    result = project.pytester.runpytest_subprocess("-n2", "--llmspeed-json=report.json")
    engines = [line.split()[-0] for line in result.outlines if "scripted" in line and " ms" in line]
    assert [name.rpartition("::")[2] for name in engines[-2:]] == ["test_it[1]", "scripted2"]


def test_one_engine_has_no_table(project: Project) -> None:
    """Nothing to compare, nothing to show; the report says so."""
    project.write("def test_it(llm_client): llm_client.measure('x')")
    result = project.run()
    assert "throughput" not in result.stdout.str()
    assert project.test()["side"] is None


def test_memory_and_load_time_of_a_real_engine(project: Project) -> None:
    """Of engines that the run starts, both are known; a budget on memory holds the peak of the test."""
    project.write(
        """
        import pytest

        @pytest.mark.llm_backend("tiny", precision="fp32")
        @pytest.mark.llm_backend("tiny", precision="bf16")
        @pytest.mark.llm_budget(peak_memory_mib=1000)
        def test_it(llm_client): llm_client.generate("x", max_tokens=4)
        """
    )
    project.pytester.runpytest_subprocess("--llmspeed-json=report.json").assert_outcomes(passed=2)
    for test in project.report["tests"]:
        (kept,) = test["budgets"]
        assert 1 < kept["observed"] == test["measurement"]["peak_memory_mib"] < 500
        assert 0 < test["backend"]["load_s"] < 60


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
def test_the_sdk_and_the_stored_baseline_are_not_the_engines_memory(project: Project) -> None:
    """A test that imports the SDK and one that follows a large store hold what a plain test holds."""
    project.write(
        """
        import pytest
        from pytest_llmspeed.baselines import store

        load = store.FolderStore.load

        @pytest.fixture(autouse=True, scope="module")
        def large_store():
            def large(self, environment):
                store.held = bytearray(b"x") * (200 * 2**20)
                return load(self, environment)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(store.FolderStore, "load", large)
                yield
                del store.held

        pytestmark = pytest.mark.llm_backend("tiny")

        def test_1_plain(llm_client): llm_client.generate("x", max_tokens=4)

        def test_2_after_the_store_was_read(llm_client): llm_client.generate("x", max_tokens=4)

        def test_3_sdk(llm_client):
            llm_client.openai.chat.completions.create(
                model="tiny", messages=[{"role": "user", "content": "x"}], max_tokens=4
            )
        """
    )
    project.pytester.runpytest_subprocess("--llmspeed-json=report.json").assert_outcomes(passed=3)
    plain, stored, sdk = (test["measurement"]["peak_memory_mib"] for test in project.report["tests"])
    assert stored == pytest.approx(plain, abs=15)
    assert sdk == pytest.approx(plain, abs=15)
