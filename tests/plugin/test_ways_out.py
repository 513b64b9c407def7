"""Every way out of a test while something of ours lives in a loop: a clean end, and pytest's exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from helpers.project import shows

if TYPE_CHECKING:
    from helpers.project import Project

INTERRUPTED = pytest.ExitCode.INTERRUPTED
WAYS = {
    "Ctrl-C in the body": ("", "raise KeyboardInterrupt", INTERRUPTED),
    "pytest.exit in the body": ("", "pytest.exit('enough')", INTERRUPTED),
    "Ctrl-C in a fixture": ("raise KeyboardInterrupt", "", INTERRUPTED),
    "Ctrl-C in a teardown": ("yield\n        raise KeyboardInterrupt", "", INTERRUPTED),
    "an error in a teardown": ("yield\n        raise OSError", "", pytest.ExitCode.TESTS_FAILED),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_test_that_holds_sdk_clients_ends_cleanly(project: Project, way: str) -> None:
    """No closed loop, nothing that was never awaited, no internal error."""
    fixture, body, status = WAYS[way]
    project.write(
        f"""
    import pytest

    @pytest.fixture
    def held(llm_client):
        clients = llm_client.async_openai, llm_client.async_http_client, llm_client.openai
        {fixture or "return clients"}

    def test_it(held):
        {body or "pass"}
    """
    )
    result = project.pytester.runpytest_subprocess("--llmspeed-json=report.json")
    output = result.stdout.str() + result.stderr.str()
    assert result.ret == status, output
    for trouble in ("loop is closed", "loop of this run", "never awaited", "INTERNALERROR", "sdk.py"):
        assert trouble not in output, output
    assert project.engine_log == ["start scripted", "stop scripted"]


def test_what_was_measured_before_ctrl_c_is_reported(project: Project) -> None:
    """The interrupted test is partial, the one before it whole, and nothing is stored."""
    project.write(
        """
        def test_1(llm_client): llm_client.generate("x")
        def test_2(llm_client):
            llm_client.async_openai
            llm_client.generate("x")
            raise KeyboardInterrupt
        """
    )
    result = project.pytester.runpytest_subprocess(
        "--llmspeed-json=report.json", "--llmspeed-update-baseline"
    )
    assert result.ret == INTERRUPTED
    assert [test["partial"] for test in project.report["tests"]] == [False, True]
    assert project.run_files == []
    shows(result, "KeyboardInterrupt")
