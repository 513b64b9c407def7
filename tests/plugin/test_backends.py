"""Which engine a test gets: marks, options, ini, parameter sets, and how engines are leased."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from helpers.project import shows

if TYPE_CHECKING:
    from helpers.project import Project


def backends(project: Project) -> dict[str, str]:
    """Node id → backend and precision of the last run."""
    return {
        test["nodeid"].partition("::")[2]: f"{test['backend']['name']} {test['backend']['precision']}"
        for test in project.report["tests"]
    }


def test_the_closest_mark_wins(project: Project) -> None:
    """A mark on the function beats one on the class, that one the module's, that one the ini file."""
    project.write(
        """
        import pytest

        pytestmark = pytest.mark.llm_backend("scripted2")

        def test_module(llm_client): llm_client.generate("x")

        @pytest.mark.llm_backend("scripted", precision="fp32")
        class TestClass:
            def test_class(self, llm_client): llm_client.generate("x")

            @pytest.mark.llm_backend("scripted", precision="bf16")
            def test_function(self, llm_client): llm_client.generate("x")
        """
    )
    project.run().assert_outcomes(passed=3)
    assert backends(project) == {
        "test_module": "scripted2 auto",
        "TestClass::test_class": "scripted fp32",
        "TestClass::test_function": "scripted bf16",
    }


def test_several_marks_run_the_test_once_each_in_reading_order(project: Project) -> None:
    """Two marks on a function, or in a list, are two runs in the order that one reads them."""
    project.write(
        """
        import pytest

        @pytest.mark.llm_backend("scripted", precision="bf16")
        @pytest.mark.llm_backend("scripted", precision="fp32")
        def test_decorated(llm_client): llm_client.generate("x")

        class TestListed:
            pytestmark = [pytest.mark.llm_backend("scripted2"), pytest.mark.llm_backend("scripted")]
            def test_it(self, llm_client): llm_client.generate("x")
        """
    )
    result = project.run("--collect-only", "-q")
    assert [line for line in result.outlines if "::" in line] == [
        "test_it.py::test_decorated[scripted-bf16]",
        "test_it.py::test_decorated[scripted-fp32]",
        "test_it.py::TestListed::test_it[scripted2]",
        "test_it.py::TestListed::test_it[scripted]",
    ]


def test_a_mark_on_a_parameter_set_beats_all(project: Project) -> None:
    """pytest.param(marks=llm_backend) decides for its set, several of them multiply it alone."""
    project.write(
        """
        import pytest

        two = [pytest.mark.llm_backend("scripted", precision="fp32"), pytest.mark.llm_backend("scripted2")]

        @pytest.mark.llm_backend("scripted")
        @pytest.mark.parametrize("n", [
            pytest.param(1, marks=pytest.mark.llm_backend("scripted", precision="bf16")),
            pytest.param(2, marks=two),
            3,
        ])
        def test_it(llm_client, n): llm_client.generate("x")
        """
    )
    project.run().assert_outcomes(passed=4)
    assert backends(project) == {
        "test_it[1]": "scripted bf16",
        "test_it[2-scripted-fp32]": "scripted fp32",
        "test_it[2-scripted2]": "scripted2 auto",
        "test_it[3]": "scripted auto",
    }


def test_the_identity_leaves_the_backend_out(project: Project) -> None:
    """Runs of one test on two backends have one identity, other parameters stay in it."""
    project.write(
        """
        import pytest

        @pytest.mark.llm_backend("scripted")
        @pytest.mark.llm_backend("scripted2")
        @pytest.mark.parametrize("n", ["a"])
        def test_it(llm_client, n): llm_client.generate("x")
        """
    )
    project.run().assert_outcomes(passed=2)
    assert {test["identity"] for test in project.report["tests"]} == {"test_it.py::test_it[a]"}


def test_four_tests_over_two_backends_start_two_engines(project: Project) -> None:
    """Items are sorted by engine, and one engine is alive at a time."""
    project.write(
        """
        import pytest
        one, two = pytest.mark.llm_backend("scripted"), pytest.mark.llm_backend("scripted2")

        @one
        def test_1(llm_client): llm_client.generate("x")
        @two
        def test_2(llm_client): llm_client.generate("x")
        @one
        def test_3(llm_client): llm_client.generate("x")
        @two
        def test_4(llm_client): llm_client.generate("x")
        """
    )
    project.run().assert_outcomes(passed=4)
    assert project.engine_log == ["start scripted", "stop scripted", "start scripted2", "stop scripted2"]


def test_the_command_line_moves_a_marked_suite(project: Project) -> None:
    """--llmspeed-backend beats the mark; the mark's options stay with the engine they were written for."""
    project.write(
        """
        import pytest

        @pytest.mark.llm_backend("scripted2", precision="bf16", model="some/model", ttft_ms=900)
        def test_it(llm_client): llm_client.generate("x")
        """
    )
    project.run("--llmspeed-backend=scripted").assert_outcomes(passed=1)
    backend = project.test()["backend"]
    assert (backend["name"], backend["precision"], backend["model"]) == ("scripted", "bf16", "some/model")
    assert backend["options"] == {}


def test_two_backends_on_the_command_line_run_every_test_twice(project: Project) -> None:
    """A repeated --llmspeed-backend multiplies the suite."""
    project.write("def test_it(llm_client): llm_client.generate('x')")
    project.run("--llmspeed-backend=scripted2", "--llmspeed-backend=scripted").assert_outcomes(passed=2)
    assert backends(project) == {"test_it[scripted2]": "scripted2 auto", "test_it[scripted]": "scripted auto"}


BOTH = """
    import pytest

    @pytest.mark.llm_backend("scripted", precision="fp32", ttft_ms=50)
    @pytest.mark.llm_backend("scripted2", precision="bf16", ttft_ms=70)
    def test_it(llm_client): llm_client.measure("x", max_tokens=8)
"""


@pytest.mark.parametrize(("named", "option"), [("scripted", 50), ("scripted2", 70)])
def test_a_named_backend_runs_by_the_mark_that_was_written_for_it(
    project: Project, named: str, option: int
) -> None:
    """Of a test marked for two, the one that is named runs once, as marked, and meets its own baseline."""
    project.write(BOTH)
    project.record(2)
    project.run(f"--llmspeed-backend={named}").assert_outcomes(passed=1)
    (test,) = project.report["tests"]
    assert test["backend"]["options"] == {"ttft_ms": option}
    assert {found["sessions"] for found in test["comparisons"]} == {2}


def test_marks_that_an_option_makes_the_same_run_once(project: Project) -> None:
    """One precision for both marks of a backend leaves one engine to run on."""
    project.write(
        BOTH.replace("scripted2", "scripted").replace(", ttft_ms=50", "").replace(", ttft_ms=70", "")
    )
    project.run().assert_outcomes(passed=2)
    project.run("--llmspeed-precision=bf16").assert_outcomes(passed=1)
    assert backends(project) == {"test_it": "scripted bf16"}


def test_getfixturevalue_leases_an_engine(project: Project) -> None:
    """A client asked for at run time is measured and judged like any other."""
    project.write(
        """
        import pytest

        @pytest.mark.llm_budget(ttft_ms=50)
        def test_marked(request): request.getfixturevalue("llm_client").measure("x")

        def test_bare(request): request.getfixturevalue("llm_client").measure("x")
        """
    )
    project.run().assert_outcomes(passed=1, failed=1)
    assert len(project.report["tests"]) == 2


def test_budgets_of_a_client_asked_for_at_run_time_are_those_of_its_backend(project: Project) -> None:
    """A budget with backend= holds on that backend, however the test comes by its client."""
    project.write(
        """
        import pytest

        @pytest.mark.llm_budget(ttft_ms=1, backend="scripted2")
        @pytest.mark.llm_budget(ttft_ms=500, backend="scripted")
        def test_it(request): request.getfixturevalue("llm_client").measure("x")
        """
    )
    project.run().assert_outcomes(passed=1)
    assert [check["limit"] for check in project.test()["budgets"]] == [500]
    project.run("--llmspeed-backend=scripted2").assert_outcomes(failed=1)


def test_options_known_at_run_time(project: Project) -> None:
    """llm_backend_options, overridden in a conftest, reaches the engine; a mark's option wins over it."""
    project.write(
        """
        import pytest

        def test_fixture(llm_client):
            assert round(llm_client.measure("x").median("ttft_ms"), -2) == 700

        @pytest.mark.llm_backend("scripted", ttft_ms=300)
        def test_mark(llm_client):
            assert round(llm_client.measure("x").median("ttft_ms"), -2) == 300
        """,
        conftest="""
import pytest

@pytest.fixture(scope="session")
def llm_backend_options():
    return {"ttft_ms": 700, "url": "http://127.0.0.1:1/v1"}
""",
    )
    project.run().assert_outcomes(passed=2)


def test_an_option_that_no_backend_has_is_named(project: Project) -> None:
    """A misspelt option of llm_backend_options is an error of the set-up."""
    project.write(
        "def test_it(llm_client): pass",
        conftest="""
import pytest

@pytest.fixture(scope="session")
def llm_backend_options():
    return {"ttft_msec": 700}
""",
    )
    result = project.run()
    result.assert_outcomes(errors=1)
    shows(result, "llm_backend_options: no backend has an option 'ttft_msec'")


def test_a_relative_model_path_starts_from_where_it_was_written(project: Project) -> None:
    """In a mark from the test file, in the ini file from its folder, on the command line from the cwd."""
    folder = project.path / "sub" / "model"
    folder.mkdir(parents=True)
    project.write("def test_it(): pass")
    (project.path / "sub" / "test_sub.py").write_text(
        "import pytest\n"
        "@pytest.mark.llm_backend('scripted', model='model')\n"
        "def test_it(llm_client): llm_client.generate('x')\n"
    )
    project.run().assert_outcomes(passed=2)
    assert project.test("sub/test_sub.py::test_it")["backend"]["model"] == str(folder.resolve())


def test_budgets_merge_key_by_key_and_the_closest_wins(project: Project) -> None:
    """A function's limit replaces the class's of the same name and leaves its others."""
    project.write(
        """
        import pytest

        @pytest.mark.llm_budget(ttft_ms=50, tpot_ms=90)
        class TestBudgets:
            @pytest.mark.llm_budget(ttft_ms=500, tpot_p90_ms=95)
            @pytest.mark.parametrize("n", [
                0, pytest.param(1, marks=pytest.mark.llm_budget(ttft_ms=600, backend="scripted")),
                pytest.param(2, marks=pytest.mark.llm_budget(ttft_ms=1, backend="scripted2"))])
            def test_it(self, llm_client, n): llm_client.measure("x")
        """
    )
    project.run().assert_outcomes(passed=3)
    limits = [
        {check["name"]: check["limit"] for check in test["budgets"]} for test in project.report["tests"]
    ]
    assert limits[0] == {"ttft_ms": 500, "tpot_ms": 90, "tpot_p90_ms": 95}
    assert limits[2] == limits[0]


def test_a_label_narrows_a_budget(project: Project) -> None:
    """A budget with label= sees the requests of that label only."""
    project.write(
        """
        import pytest

        @pytest.mark.llm_budget(throughput_tps=1, label="long")
        @pytest.mark.llm_budget(e2e_ms=150, label="short")
        def test_it(llm_client):
            llm_client.measure("x", max_tokens=2, label="short")
            llm_client.measure("x", max_tokens=8, label="long")
        """
    )
    project.run().assert_outcomes(passed=1)
    checks = {check["label"]: check["observed"] for check in project.test()["budgets"]}
    assert checks["short"] == pytest.approx(120, rel=0.2)
    assert checks["long"] == pytest.approx(30, rel=0.2)


def test_rounds_around_any_body(project: Project) -> None:
    """The calls of a repeated body are told apart by their place; its warm-up is left out."""
    project.write(
        """
        def application(client, number):
            client.generate(f"plan {number}", max_tokens=4)
            client.generate(f"write {number}", max_tokens=8, label="write")

        def test_it(llm_client):
            seen = []
            for number in llm_client.rounds(6, warmup=1):
                seen.append(number)
                application(llm_client, number)
            assert seen == [-1, 0, 1, 2, 3, 4, 5]
        """
    )
    project.run().assert_outcomes(passed=1)
    measurement = project.test()["measurement"]
    assert measurement["warmup_requests"] == 2
    strata = [request["stratum"] for request in measurement["requests"]]
    assert strata == ["call 1", "write/call 1"] * 6


def test_generate_warms_up_once_a_shape(project: Project) -> None:
    """Two warm-up requests go before the first call of a shape, none before the next."""
    project.write(
        """
        def test_it(llm_client):
            for number in range(3):
                llm_client.generate(f"prompt {number}", max_tokens=4)
            llm_client.generate("other", max_tokens=8)
            llm_client.generate("cold", max_tokens=16, warmup=False)
        """
    )
    project.run().assert_outcomes(passed=1)
    measurement = project.test()["measurement"]
    assert (measurement["warmup_requests"], len(measurement["requests"])) == (4, 5)


def test_the_client_works_inside_a_running_event_loop(project: Project) -> None:
    """The client has a loop of its own, so a coroutine may call it."""
    project.write(
        """
        import asyncio

        def test_it(llm_client):
            async def body():
                return llm_client.generate("x").text
            assert asyncio.run(body()).startswith("scripted")
        """
    )
    project.run().assert_outcomes(passed=1)


def test_an_engine_that_does_not_start_fails_its_tests_once_and_fast(project: Project) -> None:
    """Its error is the set-up error of each of its tests; it is not tried again; others run."""
    project.write(
        """
        import pytest

        @pytest.mark.llm_backend("broken")
        @pytest.mark.parametrize("n", [1, 2])
        def test_broken(llm_client, n): pass

        def test_fine(llm_client): llm_client.generate("x")
        """
    )
    result = project.run()
    result.assert_outcomes(errors=2, passed=1)
    shows(result, "the broken engine does not start: mend it")
    assert "Traceback" not in result.stdout.str()
    assert project.engine_log.count("broken start") == 1


def test_a_plain_suite_sees_nothing_of_the_plugin(project: Project) -> None:
    """Where no test uses the plugin there is no section and no engine."""
    project.write("def test_it(): pass")
    result = project.pytester.runpytest_inprocess()
    result.assert_outcomes(passed=1)
    assert "llmspeed ==" not in result.stdout.str()
    assert project.engine_log == []
