"""Marks as pytest has them: on classes and their bases, inherited, added by code, beside other fixtures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from helpers.project import shows

if TYPE_CHECKING:
    from helpers.project import Project


def limits(project: Project, name: str = "") -> dict[str, float]:
    return {check["name"]: check["limit"] for check in project.test(name)["budgets"]}


@pytest.mark.parametrize("mark", ["filterwarnings('ignore')", "llm_budget(ttft_ms=50)"])
def test_a_class_may_have_a_single_pytestmark(project: Project, mark: str) -> None:
    """Without a list around it, as pytest documents; whatever mark it is."""
    project.write(
        f"""
        import pytest

        class TestIt:
            pytestmark = pytest.mark.{mark}
            def test_it(self, llm_client): llm_client.measure("x", max_tokens=8)
        """
    )
    result = project.run()
    result.assert_outcomes(**{"failed" if "budget" in mark else "passed": 1})


SUBCLASSES = {
    "decorated": "@pytest.mark.llm_budget(ttft_ms={limit})\n    class TestChild(Base): pass",
    "listed": "class TestChild(Base):\n        pytestmark = [pytest.mark.llm_budget(ttft_ms={limit})]",
    "single": "class TestChild(Base):\n        pytestmark = pytest.mark.llm_budget(ttft_ms={limit})",
}


@pytest.mark.parametrize("form", SUBCLASSES)
def test_a_subclass_overrides_the_budgets_of_its_base_key_by_key(project: Project, form: str) -> None:
    """The limit of the subclass counts, be it tighter or looser; what it does not name stays."""
    for limit, outcome in ((50, "failed"), (400, "passed")):
        project.write(
            f"""
    import pytest

    @pytest.mark.llm_budget(ttft_ms=300, tpot_ms=90)
    class Base:
        def test_it(self, llm_client): llm_client.measure("x", max_tokens=8)

    {SUBCLASSES[form].format(limit=limit)}
    """
        )
        project.run().assert_outcomes(**{outcome: 1})
        assert limits(project) == {"ttft_ms": limit, "tpot_ms": 90}


def test_a_subclass_overrides_the_engine_of_its_base(project: Project) -> None:
    """It runs once, on its own engine, and not once more on that of its base."""
    project.write(
        """
        import pytest

        @pytest.mark.llm_backend("scripted", ttft_ms=300)
        class Base:
            def test_it(self, llm_client): llm_client.generate("x")

        @pytest.mark.llm_backend("scripted", ttft_ms=200)
        class TestChild(Base): pass
        """
    )
    project.run().assert_outcomes(passed=1)
    assert project.test()["backend"]["options"] == {"ttft_ms": 200}


ADDED = {
    "in a fixture": ("request.applymarker(pytest.mark.llm_budget(ttft_ms=1))", "", ""),
    "in the body": ("", "request.node.add_marker(pytest.mark.llm_budget(ttft_ms=1))", ""),
    "in a hook of the set-up": ("", "", "def pytest_runtest_setup(item): add(item)"),
    "in a hook of the call": ("", "", "def pytest_runtest_call(item): add(item)"),
    "when a test is collected": ("", "", "def pytest_itemcollected(item): add(item)"),
    "after collection": ("", "", "def pytest_collection_finish(session): add(session.items[0])"),
    "in a wrapper": (
        "",
        "",
        "@pytest.hookimpl(wrapper=True)\n"
        "def pytest_collection_modifyitems(items):\n    yield\n    add(items[0])",
    ),
}


@pytest.mark.parametrize("place", ADDED)
def test_a_budget_that_code_adds_counts(project: Project, place: str) -> None:
    """Wherever it is added, until the body of the test has ended."""
    fixture, body, hook = ADDED[place]
    project.write(
        f"""
        import pytest

        @pytest.fixture(autouse=True)
        def budgets(request):
            {fixture or "pass"}

        def test_it(llm_client, request):
            llm_client.measure("x", max_tokens=8)
            {body or "pass"}
        """,
        conftest=f"""
import pytest

def add(item): item.add_marker(pytest.mark.llm_budget(ttft_ms=1))

{hook}
""",
    )
    result = project.run()
    result.assert_outcomes(failed=1)
    assert limits(project) == {"ttft_ms": 1}


def test_what_is_added_while_a_test_runs_beats_what_is_written(project: Project) -> None:
    """It knows more: the GPU, the server. Added at collection, it is a default, as pytest's order has it."""
    project.write(
        """
        import pytest

        @pytest.mark.llm_budget(ttft_ms=300)
        def test_run_time(llm_client, request):
            request.applymarker(pytest.mark.llm_budget(ttft_ms=200))
            llm_client.measure("x", max_tokens=8)

        @pytest.mark.llm_budget(ttft_ms=300)
        def test_default(llm_client): llm_client.measure("x", max_tokens=8)

        def test_bare(llm_client): llm_client.measure("x", max_tokens=8)
        """,
        conftest="""
import pytest

def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.llm_budget(ttft_ms=900))
""",
    )
    project.run().assert_outcomes(passed=3)
    found = {
        name: limits(project, name)["ttft_ms"] for name in ("test_run_time", "test_default", "test_bare")
    }
    assert found == {"test_run_time": 200, "test_default": 300, "test_bare": 900}


def test_a_measurement_takes_the_rounds_that_an_added_budget_needs(project: Project) -> None:
    """A p95 of a budget that a fixture added needs twenty requests, and gets them."""
    project.write(
        """
        import pytest

        @pytest.fixture
        def budgets(request, llm_client): request.applymarker(pytest.mark.llm_budget(ttft_p95_ms=900))

        def test_it(llm_client, budgets): llm_client.measure("x", max_tokens=8)
        """
    )
    project.run().assert_outcomes(passed=1)
    assert len(project.test()["measurement"]["requests"]) == 20


def test_a_wrong_budget_that_is_added_fails_its_test(project: Project) -> None:
    """A misspelt limit that a body adds is told as at collection."""
    project.write(
        """
        import pytest

        def test_it(llm_client, request):
            llm_client.measure("x", max_tokens=8)
            request.applymarker(pytest.mark.llm_budget(tftt_ms=1))
        """
    )
    result = project.run()
    result.assert_outcomes(failed=1)
    shows(result, "llm_budget(tftt_ms=…): no such budget; did you mean 'ttft_ms'?")


def test_an_engine_can_be_added_until_it_is_leased(project: Project) -> None:
    """A fixture that comes before llm_backend chooses; one that comes after it fails the test."""
    project.write(
        """
        import pytest

        @pytest.fixture
        def second(request): request.applymarker(pytest.mark.llm_backend("scripted2"))

        def test_early(second, llm_client): llm_client.generate("x")
        def test_late(llm_client, request):
            llm_client.generate("x")
            request.getfixturevalue("second")
        """
    )
    result = project.run()
    result.assert_outcomes(passed=1, failed=1)
    assert project.test("test_early")["backend"]["name"] == "scripted2"
    shows(result, "llm_backend was added after the engine of this test had started")


def test_an_engine_added_to_a_test_that_is_multiplied_already_is_refused(project: Project) -> None:
    """It would be a third choice beside the two that became two tests."""
    project.write(
        """
        import pytest

        @pytest.mark.llm_backend("scripted")
        @pytest.mark.llm_backend("scripted2")
        def test_it(llm_client): pass
        """,
        conftest="""
import pytest

def pytest_itemcollected(item): item.add_marker(pytest.mark.llm_backend("crowd"))
""",
    )
    shows(
        project.run(),
        "llm_backend('crowd') was added after the backends of this test were chosen; put the mark on the",
    )


INHERITED = """
    import pytest

    {module}

    {decorators}
    class TestIt:
        def test_plain(self): pass
        def test_client(self, llm_client): llm_client.measure("x", max_tokens=8)
"""


@pytest.mark.parametrize("module", [True, False])
def test_inherited_marks_are_defaults_of_tests_that_ask_for_a_client(project: Project, module: bool) -> None:
    """A plain test beside them is neither failed, nor reported, nor run twice."""
    marks = ["llm_budget(ttft_ms=300)", "llm_backend('scripted')", "llm_backend('scripted2')"]
    listed = "pytestmark = [" + ", ".join(f"pytest.mark.{mark}" for mark in marks) + "]"
    decorators = "\n    ".join(f"@pytest.mark.{mark}" for mark in marks)
    project.write(INHERITED.format(module=listed if module else "", decorators="" if module else decorators))
    project.run().assert_outcomes(passed=3)
    assert [test["nodeid"].partition("::Test")[2] for test in project.report["tests"]] == [
        "It::test_client[scripted]",
        "It::test_client[scripted2]",
    ]


def test_a_budget_of_the_test_itself_has_to_be_measured(project: Project) -> None:
    """On the function it is a claim about that function; so is one on a test that asks for a client."""
    project.write(
        """
        import pytest

        @pytest.mark.llm_budget(ttft_ms=300)
        def test_own(): pass

        @pytest.mark.llm_budget(ttft_ms=300)
        class TestInherited:
            def test_argument(self, llm_client): pass
            def test_run_time(self, request): request.getfixturevalue("llm_client")
        """
    )
    result = project.run()
    result.assert_outcomes(failed=3)
    shows(result, "nothing was measured")


@pytest.mark.parametrize("name", ["llm_backend", "llm_client"])
def test_a_fixture_of_the_project_that_has_our_name_is_left_alone(project: Project, name: str) -> None:
    """Where nothing of the plugin is used or configured, nothing is asked of it."""
    project.pytester.makefile(".ini", pytest="[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    project.write(
        f"""
        import pytest

        @pytest.fixture(params=["gpt", "claude"])
        def {name}(request): return request.param

        def test_it({name}): assert {name} in ("gpt", "claude")

        @pytest.mark.parametrize("{name}", ["a", "b"])
        def test_direct({name}): assert {name} in ("a", "b")
        """
    )
    result = project.pytester.runpytest_inprocess()
    result.assert_outcomes(passed=4)
    assert "llmspeed ==" not in result.stdout.str()


def test_a_client_on_a_foreign_llm_backend_is_one_clear_failure(project: Project) -> None:
    """The project's fixture of that name gives no engine."""
    project.write(
        """
        import pytest

        @pytest.fixture
        def llm_backend(): return "gpt"

        def test_it(llm_client): pass

        @pytest.mark.llm_backend("scripted")
        def test_marked(llm_client): pass
        """
    )
    result = project.run("-n", "1")
    result.assert_outcomes(errors=2)
    shows(result, "llm_client needs an engine", "'gpt'", "llm_backend(…) has no effect on this test")
    assert "Traceback" not in result.stdout.str()


@pytest.mark.parametrize("fixture", ["llm_backend", "llm_client"])
@pytest.mark.parametrize("indirect", [True, False])
def test_engines_are_not_chosen_by_parametrize(project: Project, fixture: str, indirect: bool) -> None:
    """What one tries first is refused in a sentence that shows the marks."""
    project.write(
        f"""
        import pytest

        @pytest.mark.parametrize("{fixture}", ["scripted", "scripted2"], indirect={indirect})
        def test_it(llm_client, llm_backend): llm_client.generate("x")
        """
    )
    result = project.run("-n", "1")
    if fixture == "llm_client" and not indirect:  # an argument of their own
        shows(result, "'str' object has no attribute 'generate'")
        return
    result.assert_outcomes(errors=2)
    shows(result, f"parametrize('{fixture}', …) does not choose the engine", '@pytest.mark.llm_backend("')


def test_a_backend_of_a_conftest_in_a_subfolder(project: Project) -> None:
    """It is known to the tests below it, in a run of all as in a run of that folder; to no others."""
    project.write("def test_top(llm_client): llm_client.generate('x')")
    ask = "def test_it(llm_client): llm_client.generate('x')\n"
    marked = f"import pytest\n\n@pytest.mark.llm_backend('deep')\n{ask}"
    for folder in ("a", "b"):
        (project.path / folder).mkdir()
    hook = "def pytest_llmspeed_backends(): return {'deep': 'scripted_engine:SecondScriptedEngine'}\n"
    (project.path / "b" / "conftest.py").write_text(hook)
    (project.path / "b" / "test_b.py").write_text(marked)
    project.run().assert_outcomes(passed=2)
    project.run("b").assert_outcomes(passed=1)
    (project.path / "a" / "test_a.py").write_text(marked)
    shows(project.run(), "a/test_a.py::test_it: no backend is called 'deep'")


def test_one_name_for_two_backends_is_told(project: Project) -> None:
    """Conftests of two folders name two classes alike: no test silently gets the other's."""
    for folder, kind in (("a", "ScriptedEngine"), ("b", "SecondScriptedEngine")):
        (project.path / folder).mkdir()
        hook = f"def pytest_llmspeed_backends(): return {{'mine': 'scripted_engine:{kind}'}}\n"
        (project.path / folder / "conftest.py").write_text(hook)
        test = "import pytest\n\n@pytest.mark.llm_backend('mine')\ndef test_it(llm_client): pass\n"
        (project.path / folder / f"test_{folder}.py").write_text(test)
    project.run("a").assert_outcomes(passed=1)
    project.run("b").assert_outcomes(passed=1)
    shows(project.run(), "backend 'mine' is 'scripted_engine:SecondScriptedEngine' for this test and")


def test_marks_on_items_that_are_not_functions(project: Project) -> None:
    """A collector of the project's own, a doctest: a budget that nothing measured fails them, no more."""
    (project.path / "numbers.toy").write_text("1")
    project.pytester.makefile(
        ".txt", test_doc=">>> getfixture('llm_client').generate('x').text[:8]\n'scripted'\n"
    )
    project.write(
        "def test_it(llm_client): llm_client.generate('x')",
        conftest="""
import pytest

class Toy(pytest.File):
    def collect(self):
        yield ToyItem.from_parent(self, name="plain")
        marked = ToyItem.from_parent(self, name="marked")
        marked.add_marker(pytest.mark.llm_budget(ttft_ms=1))
        yield marked

class ToyItem(pytest.Item):
    def runtest(self): pass

def pytest_collect_file(file_path, parent):
    return Toy.from_parent(parent, path=file_path) if file_path.suffix == ".toy" else None
""",
    )
    result = project.run()
    result.assert_outcomes(passed=3, failed=1)
    shows(result, "nothing was measured")


def test_a_unittest_class_inherits_budgets(project: Project) -> None:
    """Its methods take no arguments: a fixture of the class gets the client for them."""
    project.write(
        """
        import unittest
        import pytest

        @pytest.mark.llm_budget(ttft_ms=300)
        class Base(unittest.TestCase):
            @pytest.fixture(autouse=True)
            def client(self, llm_client): self.client = llm_client

        @pytest.mark.llm_budget(ttft_ms=50)
        class TestChild(Base):
            def test_it(self): self.client.measure("x", max_tokens=8)
        """
    )
    project.run().assert_outcomes(failed=1)
    checks: list[dict[str, Any]] = project.test()["budgets"]
    assert [check["limit"] for check in checks] == [50]
