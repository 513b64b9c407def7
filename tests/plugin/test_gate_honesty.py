"""A gate that is off says so, and an update says what it did not store: never a green run in silence."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from helpers.project import shows

if TYPE_CHECKING:
    from helpers.project import Project

MEASURE = "def test_chat(llm_client): llm_client.measure('hello', max_tokens=8)"
LFS_POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
UPDATE = "--llmspeed-update-baseline"
no_root = pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")


@pytest.fixture
def chat(project: Project) -> Project:
    """A project with one measured test."""
    project.write(MEASURE)
    return project


def test_a_store_on_the_command_line_that_does_not_exist_is_a_usage_error(chat: Project) -> None:
    """A typing mistake does not turn the gate off."""
    result = chat.run("--llmspeed-store=typo")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    shows(result, "--llmspeed-store names", "typo, which does not exist", UPDATE)


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_store_of_the_ini_file_that_does_not_exist_runs_no_test(chat: Project, workers: str) -> None:
    """Nor does one that a checkout or a cache lacks."""
    result = chat.run("-o", "llmspeed_store=typo", "-n", workers)
    assert result.ret != 0
    shows(result, "llmspeed_store names", "typo, which does not exist")


def test_a_store_that_is_missing_stops_no_tests_without_an_llm(project: Project) -> None:
    """Whoever runs the unit tests needs no baselines."""
    project.write("def test_unit(): pass")
    project.run("-o", "llmspeed_store=typo").assert_outcomes(passed=1)


@pytest.mark.parametrize("given", [["--llmspeed-store=test_it.py"], ["-o", "llmspeed_store=test_it.py"]])
def test_a_store_that_is_a_file_is_a_usage_error(chat: Project, given: list[str]) -> None:
    """Whoever named it meant a folder."""
    result = chat.run(*given)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    shows(result, "test_it.py", "cannot be read: Not a directory")


def test_a_first_update_creates_the_store_that_was_named(chat: Project) -> None:
    """Then the same command without the update compares with it."""
    chat.run("--llmspeed-store=mine", UPDATE).assert_outcomes(passed=1)
    chat.run("--llmspeed-store=mine").assert_outcomes(passed=1)
    assert {found["sessions"] for found in chat.test()["comparisons"]} == {1}


@no_root
@pytest.mark.parametrize("below", [".", "scripted"])
def test_a_store_without_permission_fails_loudly(chat: Project, below: str) -> None:
    """The whole store, or the folder of this environment: neither is an empty one."""
    chat.record(1)
    environment = chat.run_files[0].parent
    folder = environment.parent if below == "." else environment
    folder.chmod(0)
    try:
        result = chat.run()
    finally:
        folder.chmod(0o755)
    assert result.ret != 0
    shows(result, str(folder), "cannot be read: Permission denied")


def test_an_environment_that_is_a_file_fails_loudly(chat: Project) -> None:
    """Something else stands where its baselines should be."""
    chat.record(1)
    environment = chat.run_files[0].parent
    for path in chat.run_files:
        path.unlink()
    environment.rmdir()
    environment.write_text("a file")
    result = chat.run()
    result.assert_outcomes(failed=1)
    shows(result, str(environment), "cannot be read: Not a directory")


@pytest.mark.parametrize("content", [LFS_POINTER, "{", '{"schema": "llmspeed/9"}'])
def test_baselines_of_which_none_can_be_read_fail_the_test(chat: Project, content: str) -> None:
    """Pointers of git-lfs, say: the gate would be off, and this environment is not another one."""
    chat.record(2)
    for path in chat.run_files:
        path.write_text(content)
    result = chat.run()
    result.assert_outcomes(failed=1)
    shows(result, "none of the 2 run files in", str(chat.run_files[0].parent), "can be read")
    assert "there is one for" not in result.stdout.str()
    chat.run(UPDATE).assert_outcomes(passed=1)
    chat.run().assert_outcomes(passed=1)


def test_what_has_no_baseline_names_the_folder(chat: Project) -> None:
    """Store and environment, so that a wrong one is seen."""
    chat.record(1)
    (path,) = chat.run_files
    folder = path.parent.relative_to(chat.path)
    path.unlink()
    shows(chat.run(), f"no baseline yet in {folder}: store one")


SEVERAL = """
    import pytest

    def test_good(llm_client): llm_client.measure("hello", max_tokens=8)

    @pytest.mark.llm_budget(ttft_ms=1)
    def test_miss(llm_client): llm_client.measure("hello", max_tokens=8)

    @pytest.mark.skip
    def test_skip(llm_client): llm_client.measure("hello", max_tokens=8)

    @pytest.mark.xfail
    def test_expected(llm_client):
        llm_client.measure("hello", max_tokens=8)
        assert False
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_an_update_says_what_it_did_not_store_and_why(project: Project, workers: str) -> None:
    """The tests are named with the reason of each."""
    project.write(SEVERAL)
    result = project.run(UPDATE, "-n", workers)
    shows(
        result, "1 session stored, 3 not: ", "test_miss failed", "test_skip skipped", "test_expected xfailed"
    )
    (path,) = project.run_files
    assert [test["identity"] for test in json.loads(path.read_text())["tests"]] == ["test_it.py::test_good"]


def test_an_update_that_stores_everything_only_names_the_file(chat: Project) -> None:
    """There is nothing else to say."""
    result = chat.run(UPDATE)
    shows(result, "baseline stored: ")
    assert " not: " not in result.stdout.str()


@pytest.mark.parametrize("selected", ["miss", "skip", "expected"])
def test_an_update_that_stores_nothing_says_so(project: Project, selected: str) -> None:
    """Whether all failed, were skipped, or failed as expected."""
    project.write(SEVERAL)
    shows(project.run(UPDATE, "-k", selected), f"baseline not updated: test_{selected} ")
    assert project.run_files == []


def test_an_update_of_tests_that_use_no_llm_says_so(project: Project) -> None:
    """The wrong folder was given, perhaps."""
    project.write("def test_unit(): pass")
    shows(project.run(UPDATE), "baseline not updated: no test was measured")


def test_a_run_that_was_stopped_says_that_it_updated_nothing(project: Project) -> None:
    """Its tests that passed are not stored either."""
    project.write(
        """
        import pytest

        def test_a(llm_client): llm_client.measure("hello", max_tokens=8)
        def test_b(llm_client): pytest.exit('enough')
        """
    )
    shows(project.run(UPDATE), "baseline not updated: the run was stopped early")
    assert project.run_files == []


def test_a_run_that_stops_at_the_first_failure_stores_what_passed(project: Project) -> None:
    """With -x the run comes to its end, only earlier."""
    project.write(SEVERAL)
    shows(project.run(UPDATE, "-x"), "1 session stored, 1 not: test_miss failed")


def test_workers_that_stop_at_a_failure_say_that_nothing_is_stored(project: Project) -> None:
    """The workers are interrupted, so nobody knows which of their tests came to an end."""
    project.write(SEVERAL)
    result = project.run(UPDATE, "-n", "1", "--maxfail=1")
    shows(result, "baseline not updated: the run was stopped early")
