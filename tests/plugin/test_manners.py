"""Manners towards other people's suites: their collection, their tracebacks, their reports."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from helpers.project import INI, shows

if TYPE_CHECKING:
    from helpers.project import Project

ONE_WRONG = """
    import pytest

    def test_unit(): pass

    @pytest.mark.llm_budget(tftt_ms=300)
    def test_wrong(llm_client): pass

    def test_right(llm_client): llm_client.generate("x")
"""


def test_a_wrong_mark_leaves_the_tree_of_an_ide_whole(project: Project) -> None:
    """--collect-only lists every test, and says what is wrong."""
    project.write(ONE_WRONG)
    result = project.run("--collect-only", "-q")
    assert result.ret == 0
    shows(result, "::test_unit", "::test_wrong", "::test_right", "These tests cannot run:", "no such budget")


def test_a_wrong_mark_fails_its_own_test_where_pytest_goes_on_after_errors(project: Project) -> None:
    """--continue-on-collection-errors means the same for marks."""
    project.write(ONE_WRONG)
    project.run("--continue-on-collection-errors").assert_outcomes(passed=2, errors=1)


def test_a_wrong_mark_of_a_skipped_test_stops_nothing(project: Project) -> None:
    """The test is skipped, as it asked."""
    project.write(ONE_WRONG.replace("def test_wrong", "@pytest.mark.skip\n    def test_wrong"))
    project.run().assert_outcomes(passed=2, skipped=1)


def test_one_mistake_of_many_tests_is_one_line(project: Project) -> None:
    """It names the first of them and counts the others."""
    project.write(
        """
        import pytest

        @pytest.mark.llm_backend("scriptd")
        @pytest.mark.parametrize("n", range(40))
        def test_it(llm_client, n): pass
        """
    )
    result = project.run()
    shows(result, "test_it.py::test_it[0] and 39 more tests: no backend is called 'scriptd'")
    assert result.stderr.str().count("scriptd") == 1


def test_a_failure_of_ours_names_the_line_of_the_test(project: Project) -> None:
    """--tb=line, and what annotates pull requests by it, do not point into the plugin."""
    project.write(
        """
        import pytest

        @pytest.mark.llm_budget(ttft_ms=1)
        def test_slow(llm_client): llm_client.measure("x", max_tokens=8)
        """
    )
    result = project.run("--tb=line")
    result.assert_outcomes(failed=1)
    shows(result, "test_it.py:3: PerformanceFailure: ttft_ms")
    assert not any(text in result.stdout.str() for text in ("pytest_llmspeed", "entries are hidden"))


def test_foreign_tracebacks_do_not_show_the_plugin(project: Project) -> None:
    """An error that a plugin raises around a plain test shows no frame of ours."""
    project.write(
        "def test_plain(): pass",
        conftest="""
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item): raise RuntimeError("theirs")

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item): pass
""",
    )
    result = project.run()
    shows(result, "theirs")
    assert "plugin.py" not in result.stdout.str()


USAGE_ERRORS = """
import pytest

@pytest.fixture
def loaded(llm_client):
    return llm_client.load("hi", rate=5, requests=-1)

def test_body(llm_client):
    prompt = "secret prompt"
    llm_client.load(prompt, rate=5, requests=-1)

def test_fixture(loaded): pass

def test_cause(llm_client):
    from pytest_llmspeed.errors import GenerationError
    raise GenerationError("gone") from OSError("deep down")
"""


@pytest.mark.parametrize("style", ["auto", "long", "short", "line"])
def test_an_error_of_ours_shows_only_the_users_lines(project: Project, style: str) -> None:
    """Neither our frames nor those of a cause, in a body and in a fixture, in all styles."""
    project.write(USAGE_ERRORS)
    result = project.run(f"--tb={style}", "-l" if style == "long" else "-q")
    result.assert_outcomes(failed=2, errors=1)
    shows(result, "requests=-1: must be at least 1", "test_it.py")
    output = result.stdout.str()
    frames = ("pytest_llmspeed/", "asyncio/", "direct cause", "deep down\n")
    assert not any(text in output for text in frames), output


def test_a_bug_of_ours_keeps_its_frames(project: Project) -> None:
    """Whoever reports it can say where it is."""
    project.write(
        """
        def broken(*_, **__): raise RuntimeError("a bug")

        def test_it(llm_client, monkeypatch):
            monkeypatch.setattr("pytest_llmspeed.client.ask_load", broken)
            llm_client.load("hi", rate=5, requests=40)
        """
    )
    shows(project.run(), "client.py", "RuntimeError: a bug")


WRONG_TYPES = {
    "a word in an ini file": (
        "pytest.ini",
        "[pytest]\nasyncio_default_fixture_loop_scope = function\nllmspeed_json_text = maybe\n",
        "maybe",
    ),
    "a number in native TOML": ("pytest.toml", "[pytest]\nllmspeed_json_text = 0\n", "bool"),
    "a list in native TOML": ("pytest.toml", "[pytest]\nllmspeed_json_text = ['a']\n", "bool"),
}


@pytest.mark.parametrize("case", WRONG_TYPES)
def test_a_wrong_ini_type_is_one_line(project: Project, case: str) -> None:
    """It names the setting, before any test is collected, also of a suite that does not use it."""
    name, text, value = WRONG_TYPES[case]
    (project.path / "pytest.ini").unlink()
    (project.path / name).write_text(text)
    project.write("def test_it(): pass")
    result = project.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    shows(result, f"llmspeed_json_text in {name} takes true or false", value)
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


def test_an_environment_that_names_no_folder_is_refused_at_once(project: Project) -> None:
    """Not only with an update."""
    project.pytester.makefile(".ini", pytest=INI + "llmspeed_environment = !!!\n")
    project.write("def test_it(): pass")
    result = project.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    shows(result, "llmspeed_environment = '!!!'")


def test_collecting_only_leaves_the_report_alone(project: Project) -> None:
    """An IDE collects with the options of the ini file."""
    project.write("def test_it(llm_client): llm_client.generate('x')")
    project.run()
    project.run("--collect-only")
    assert len(project.report["tests"]) == 1


def test_a_run_that_measures_nothing_leaves_no_old_report(project: Project) -> None:
    """The report is of this run: empty."""
    (project.path / "report.json").write_text(json.dumps({"tests": ["old"]}))
    project.write("def test_it(): pass")
    project.run().assert_outcomes(passed=1)
    assert project.report["tests"] == []
    (project.path / "report.json").write_text(json.dumps({"tests": ["old"]}))
    project.run("-n", "1").assert_outcomes(passed=1)
    assert project.report["tests"] == []


@pytest.mark.parametrize("option", ["json", "markdown"])
@pytest.mark.parametrize("path", [".", "taken/report"])
def test_a_report_that_cannot_be_written_is_told_before_measuring(
    project: Project, option: str, path: str
) -> None:
    """A folder, or a path below a file: no test runs for nothing."""
    (project.path / "taken").write_text("a file")
    project.write("def test_it(llm_client): llm_client.generate('x')")
    result = project.run(f"--llmspeed-{option}={path}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    shows(result, "the report cannot be written to")
    assert project.engine_log == []


def test_an_engine_starts_after_the_imports_of_the_plugin(project: Project) -> None:
    """Else its memory would hold them, in the first test that is judged and in no other."""
    project.write(
        "def test_it(llm_client): llm_client.measure('x')",
        conftest="""
import sys
from scripted_engine import ScriptedEngine

class Watching(ScriptedEngine):
    @classmethod
    def start(cls, spec):
        assert "scipy.stats" in sys.modules
        return super().start(spec)

def pytest_llmspeed_backends(): return {"scripted": "conftest:Watching"}
""",
    )
    project.pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_a_plain_suite_imports_nothing_more(project: Project) -> None:
    """Not even what judges a test: there is none of ours."""
    project.write(
        """
        def test_first(): pass
        def test_second():
            import sys
            ours = {name for name in sys.modules if name.startswith("pytest_llmspeed.")}
            expected = {"hooks", "hookspecs", "options", "outcome", "fixtures", "state"}
            assert {name.removeprefix("pytest_llmspeed.plugin") for name in ours} == {
                "", *("." + name for name in expected)}
        """
    )
    (project.path / "conftest.py").unlink()
    (project.path / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    project.pytester.runpytest_subprocess().assert_outcomes(passed=2)


def test_a_wrong_option_of_a_call_is_shown_at_the_line_of_the_test(project: Project) -> None:
    """One sentence that names the nearest option, and no line of ours."""
    project.write("def test_it(llm_client): llm_client.measure('x', max_token=3)")
    result = project.run()
    result.assert_outcomes(failed=1)
    shows(result, "SettingsError: a request has no option 'max_token'; did you mean 'max_tokens'?")
    assert "pytest_llmspeed/" not in result.stdout.str()
