"""--llmspeed-defer and --llmspeed-second-look: what one job cannot decide, two do."""

import json

import pytest

TESTS = """
def test_chat(llm_client):
    llm_client.measure("Say something.", max_tokens=8)

def test_other(llm_client):
    llm_client.measure("Say something else.", max_tokens=8)

def test_plain():
    pass
"""


@pytest.fixture
def project(project):
    """Five sessions of two tests."""
    project.write(TESTS)
    project.record(5)
    return project


def first_job(project, factor, *arguments):
    project.script(factor=factor, seed=7)
    return project.run("--llmspeed-defer=first.json", *arguments)


def second_job(project, factor, *arguments):
    project.script(factor=factor, seed=8)
    return project.run("--llmspeed-second-look=first.json", *arguments)


def deferred(project):
    return [test["nodeid"] for test in json.loads((project.path / "first.json").read_text())["tests"]]


def test_a_slowdown_waits_for_the_second_job_which_decides(project):
    """The first passes and names its doubts; the second runs just these, and fails."""
    first = first_job(project, 1.5, "-k", "chat")
    assert first.ret == pytest.ExitCode.OK
    said = first.stdout.str()
    assert (
        "a second look is wanted for 1 test (test_it.py::test_chat): run pytest "
        "--llmspeed-second-look=first.json in another job"
    ) in said
    assert "suspect" in said
    assert project.report["tests"][0]["advice"][0]["reason"] == "deferred"
    second = second_job(project, 1.5)
    assert second.ret == pytest.ExitCode.TESTS_FAILED
    second.assert_outcomes(failed=1, deselected=2)
    (test,) = project.report["tests"]
    assert test["verdict"] == "slower"
    assert "in both jobs" in test["problems"][0]["sentence"]


def test_a_slowdown_that_does_not_come_back_is_cleared(project):
    """It was the machine of the first job."""
    assert first_job(project, 1.5, "-k", "chat").ret == pytest.ExitCode.OK
    second = second_job(project, 1.0)
    assert second.ret == pytest.ExitCode.OK
    assert project.report["tests"][0]["verdict"] in ("passed", "inconclusive")


def test_without_doubts_the_second_job_has_nothing_to_do(project):
    """It ends well, although it runs no test."""
    first = first_job(project, 1.0)
    assert "no test wants a second look" in first.stdout.str()
    assert deferred(project) == []
    second = second_job(project, 1.0)
    second.assert_outcomes(deselected=3)
    assert second.ret == pytest.ExitCode.OK


def test_github_hears_whether_a_second_job_is_needed(project, monkeypatch):
    """As an output of the step, for the condition of the next job."""
    monkeypatch.setenv("GITHUB_OUTPUT", str(project.path / "output"))
    first_job(project, 1.5)
    first_job(project, 1.0)
    assert (project.path / "output").read_text().splitlines() == ["second_look=true", "second_look=false"]


def test_a_failure_of_another_kind_is_not_deferred(project):
    """A wrong answer is no doubt about speed."""
    project.write(
        TESTS.replace("max_tokens=8)\n\ndef test_other", "max_tokens=8)\n    assert 0\n\ndef test_other")
    )
    assert first_job(project, 1.5, "-k", "chat").ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--llmspeed-second-look=nowhere.json"], "--llmspeed-second-look: "),
        (["--llmspeed-defer=a.json", "--llmspeed-update-baseline"], "leave out --llmspeed-defer"),
        (["--llmspeed-defer=a.json", "--llmspeed-second-look=report.json"], "leave one out"),
    ],
)
def test_a_wrong_option_is_told_at_the_start(project, arguments, said):
    """Before anything is measured."""
    result = project.run(*arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert said in result.stderr.str()
