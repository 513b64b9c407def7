"""--llmspeed-confirm: what stored baselines leave in doubt is measured beside another side."""

import json

import pytest

TESTS = """
import pytest

def test_chat(llm_client):
    llm_client.measure("Say something.", max_tokens=8)

def test_other(llm_client):
    llm_client.measure("Say something else.", max_tokens=8)
"""


@pytest.fixture
def project(project):
    """Three sessions of two tests."""
    project.write(TESTS)
    project.record(3)
    project.script(seed=7)
    return project


def confirmed(project, factor, side, *arguments):
    project.script(factor=factor)
    return project.pytester.runpytest_subprocess(
        "--llmspeed-json=report.json", f"--llmspeed-confirm={side}", *arguments
    )


def test_a_slowdown_that_is_confirmed_fails_with_the_figures_of_the_pairs(project):
    """The verdict, the sentence and the report are those of the second measurement."""
    result = confirmed(project, 1.5, "env.SCRIPTED_FACTOR=1", "-k", "chat")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    said = result.stdout.str()
    assert "llmspeed: measuring 1 of 1 tests beside env.SCRIPTED_FACTOR=1" in said
    assert "llmspeed: block 1 of at most 5 took" in said
    (test,) = project.report["tests"]
    assert test["verdict"] == "slower"
    assert {found["blocks"] for found in test["comparisons"]} == {3}
    sentence = test["problems"][0]["sentence"]
    assert sentence.startswith("confirmed: ttft_ms is slower than with env.SCRIPTED_FACTOR=1: ")
    assert "+50%" in sentence
    assert "3 blocks" in sentence


def test_a_slowdown_that_is_not_confirmed_clears_the_run(project):
    """pytest has printed the failure; the closing section and the exit code know better."""
    result = confirmed(project, 1.5, "env.SCRIPTED_FACTOR=1.5", "-k", "chat")
    assert result.ret == pytest.ExitCode.OK
    said = result.stdout.str()
    assert "1 failed" in said
    assert (
        "not confirmed: measured beside env.SCRIPTED_FACTOR=1.5, it is not slower (its baseline said: slower)"
        in said
    )
    (test,) = project.report["tests"]
    assert (test["verdict"], test["problems"]) == ("passed", [])


def test_another_failure_still_fails_the_run(project):
    """What has nothing to do with speed is not cleared."""
    project.write(TESTS + "def test_wrong():\n    assert False\n")
    result = confirmed(project, 1.5, "env.SCRIPTED_FACTOR=1.5")
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_run_without_doubt_measures_nothing_more(project):
    """All passed."""
    result = confirmed(project, 1, "env.SCRIPTED_FACTOR=1")
    assert result.ret == pytest.ExitCode.OK
    assert "measuring" not in result.stdout.str()


def test_a_measurement_that_fails_leaves_all_as_it_was(project):
    """It is said, and the slowdown stands."""
    result = confirmed(project, 1.5, "backend=nonsense", "-k", "chat")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "llmspeed: nothing was confirmed: the old side (backend=nonsense) measured" in result.stdout.str()
    assert project.report["tests"][0]["problems"][0]["reason"] == "slower"


@pytest.mark.parametrize(
    ("side", "said"),
    [
        ("modle=x", "--llmspeed-confirm: 'modle=x': a side has no 'modle'; did you mean 'model'?"),
        ("ref=v1.4", "--llmspeed-confirm: ref= needs a git repository"),
        ("pip='x", "quote a side as a shell would"),
    ],
)
def test_a_wrong_side_is_told_before_the_run(project, side, said):
    """Not after an hour of measuring."""
    result = confirmed(project, 1, side)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert said in result.stderr.str()


def test_it_does_not_go_with_an_update(project):
    """One judges, the other stores."""
    result = confirmed(project, 1, "model=x", "--llmspeed-update-baseline")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "leave one out" in result.stderr.str()


def test_the_report_says_what_was_asked(project):
    """With the other options of the command line."""
    confirmed(project, 1, "env.SCRIPTED_FACTOR=1")
    options = json.loads((project.path / "report.json").read_text())["run"]["options"]
    assert options == {"confirm": "env.SCRIPTED_FACTOR=1"}
