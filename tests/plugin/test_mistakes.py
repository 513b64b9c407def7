"""Mistakes in marks and settings: one clear message, of selected tests only, before any engine starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from helpers.project import INI, shows

if TYPE_CHECKING:
    from helpers.project import Project

WRONG = """
    import pytest

    {mark}
    def test_wrong(llm_client): pass

    def test_right(llm_client): llm_client.generate("x")
"""

MISTAKES = {
    "misspelt budget": (
        "@pytest.mark.llm_budget(tftt_ms=300)",
        "llm_budget(tftt_ms=…): no such budget; did you mean 'ttft_ms'?",
    ),
    "budget without a unit": ("@pytest.mark.llm_budget(ttft=300)", "no such budget; did you mean 'ttft_ms'?"),
    "negative limit": (
        "@pytest.mark.llm_budget(ttft_ms=-1)",
        "llm_budget(ttft_ms=-1): a limit cannot be negative",
    ),
    "limit that is no number": ("@pytest.mark.llm_budget(ttft_ms='3')", "a limit must be a finite number"),
    "positional limit": ("@pytest.mark.llm_budget(300)", "llm_budget(300): pass limits as keywords"),
    "empty budget": ("@pytest.mark.llm_budget()", "llm_budget() sets no limit"),
    "unknown engine": (
        "@pytest.mark.llm_backend('scriptd')",
        "no backend is called 'scriptd'; did you mean 'scripted'?",
    ),
    "unsupported precision": (
        "@pytest.mark.llm_backend('scripted', precision='int3')",
        "backend 'scripted' has no precision 'int3'; known: auto, bf16, fp32",
    ),
    "unknown engine option": (
        "@pytest.mark.llm_backend('scripted', tftt_ms=1)",
        "backend 'scripted' has no option 'tftt_ms'; did you mean 'ttft_ms'?",
    ),
    "unknown engine of a budget": (
        "@pytest.mark.llm_budget(ttft_ms=300, backend='scriptd')",
        "llm_budget(backend='scriptd'): no backend is called 'scriptd'; did you mean 'scripted'?",
    ),
    "mark without a name": ("@pytest.mark.llm_backend(model='m')", "llm_backend takes one name"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_usage_error(project: Project, mistake: str) -> None:
    """It names the test, the value and the fix; nothing runs and no engine starts."""
    mark, message = MISTAKES[mistake]
    project.write(WRONG.format(mark=mark))
    result = project.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    shows(result, "ERROR: pytest-llmspeed cannot run these tests:", "test_it.py::test_wrong: ", message)
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    assert project.engine_log == []


def test_all_mistakes_are_told_at_once(project: Project) -> None:
    """Two wrong tests are two lines of one error."""
    project.write(
        """
        import pytest

        @pytest.mark.llm_budget(tftt_ms=300)
        def test_one(llm_client): pass

        @pytest.mark.llm_backend("scriptd")
        def test_two(llm_client): pass
        """
    )
    shows(project.run(), "test_it.py::test_one: ", "test_it.py::test_two: ")


UNSTARTABLE = {
    "a device of no kind": (
        "'transformers', model='org/m', device='gpu7'",
        "device='gpu7': torch has no such device; known: cpu, cuda",
    ),
    "a device without its number": (
        "'transformers', model='org/m', device='cuda:first'",
        "device='cuda:first': after the colon stands a number, as in 'cuda:0'",
    ),
    "a model that is not there": (
        "'vllm-server', model='./nowhere'",
        "model './nowhere': there is no such file or folder",
    ),
    "no model": ("'sglang-server'", "backend 'sglang-server' needs a model"),
    "a program that is not there": (
        "'vllm-server', model='org/m', executable='no-such-python'",
        "there is no program 'no-such-python': pip install vllm",
    ),
    "a command that is not there": (
        "'server', command='no-such-server --port {port}'",
        "there is no program 'no-such-server': correct command=",
    ),
    "no command": ("'server'", "backend 'server' needs command="),
    "a command that no shell would split": ("'server', command='serve \"x'", "No closing quotation"),
    "a precision that the engine lacks": (
        "'vllm-server', model='org/m', precision='int3'",
        "backend 'vllm-server' has no precision 'int3'",
    ),
    "a port that cannot be": ("'server', command='sh', port=70000", "a port is a number from 1 to 65535"),
}


def test_an_engine_that_cannot_start_is_a_usage_error_of_all_its_tests(project: Project) -> None:
    """As far as that shows at collection; all at once, with no heavy library loaded."""
    tests = "".join(
        f"""
    @pytest.mark.llm_backend({mark})
    def test_{place}(llm_client): llm_client.generate("x")
"""
        for place, (mark, _) in enumerate(UNSTARTABLE.values())
    )
    project.write(
        f"""
    import pytest
{tests}""",
        conftest="""
def pytest_unconfigure():
    import sys
    print("heavy:", sorted({"torch", "transformers", "vllm", "openai", "numpy"} & sys.modules.keys()))
""",
    )
    result = project.pytester.runpytest_subprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    shows(result, *(message for _, message in UNSTARTABLE.values()), "heavy: []")


def test_a_gpu_beyond_the_last_one_is_a_usage_error(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the GPUs can be counted without a library."""
    monkeypatch.setattr("pytest_llmspeed.system.machine.gpu_count", lambda: 2)
    mark = "@pytest.mark.llm_backend('transformers', model='org/m', device='cuda:2')"
    project.write(WRONG.format(mark=mark))
    result = project.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    shows(result, "device='cuda:2': this machine has 2 GPUs, numbered from 0; see CUDA_VISIBLE_DEVICES")


@pytest.mark.parametrize(
    "condition", ["True, reason='x'", "'True', reason='x'", "condition=True, reason='x'"]
)
def test_a_test_that_skipif_leaves_out_may_have_an_engine_that_is_not_here(
    project: Project, condition: str
) -> None:
    """As it does on a machine that has not the program."""
    mark = (
        f"@pytest.mark.skipif({condition})\n    @pytest.mark.llm_backend('server', command='no-such-server')"
    )
    project.write(WRONG.format(mark=mark))
    project.run().assert_outcomes(passed=1, skipped=1)


def test_a_test_that_skipif_keeps_is_checked(project: Project) -> None:
    """A condition that is false leaves out nothing."""
    mark = "@pytest.mark.skipif(False, reason='x')\n    @pytest.mark.llm_backend('server')"
    project.write(WRONG.format(mark=mark))
    assert project.run().ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize("workers", ["0", "2"])
def test_mistakes_of_tests_that_are_not_selected_do_not_matter(project: Project, workers: str) -> None:
    """With -k, --deselect or --lf the wrong test is not run, so it is not told."""
    project.write(WRONG.format(mark="@pytest.mark.llm_budget(tftt_ms=300)"))
    project.run("-k", "right", "-n", workers).assert_outcomes(passed=1)
    project.run("--deselect", "test_it.py::test_wrong", "-n", workers).assert_outcomes(passed=1)


def test_in_a_worker_a_mistake_fails_its_own_test_in_the_setup(project: Project) -> None:
    """Under -n 2 there is no usage error, which would be an internal error there."""
    project.write(WRONG.format(mark="@pytest.mark.llm_budget(tftt_ms=300)"))
    result = project.run("-n", "2")
    result.assert_outcomes(errors=1, passed=1)
    shows(result, "llm_budget(tftt_ms=…): no such budget")
    assert "INTERNALERROR" not in result.stdout.str()


def test_without_a_backend_the_error_says_what_to_write(project: Project) -> None:
    """A toy is never measured silently."""
    project.write("def test_it(llm_client): pass")
    project.pytester.makefile(".ini", pytest=INI.replace("llmspeed_backend = scripted", ""))
    result = project.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    shows(result, 'no backend is configured: write llmspeed_backend = "tiny"')


def test_a_misspelt_option_is_pytests_own_error(project: Project) -> None:
    """pytest refuses an unknown option."""
    project.write("def test_it(llm_client): pass")
    result = project.pytester.runpytest_subprocess("--llmspeed-bakend=tiny")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    shows(result, "--llmspeed-bakend")


def test_updating_while_only_collecting_is_refused(project: Project) -> None:
    """--collect-only with an update would store nothing: said so, nothing touched."""
    project.write("def test_it(llm_client): llm_client.measure('x')")
    result = project.run("--collect-only", "--llmspeed-update-baseline")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    shows(result, "with --collect-only none runs")


def test_accepting_needs_an_update_and_a_reason(project: Project) -> None:
    """--llmspeed-accept alone, or without a reason, is a usage error."""
    project.write("def test_it(llm_client): llm_client.measure('x')")
    shows(
        project.run("--llmspeed-accept", "why"),
        "--llmspeed-accept works only together with --llmspeed-update-baseline",
    )
    shows(
        project.run("--llmspeed-update-baseline", "--llmspeed-accept", " "),
        "--llmspeed-accept needs a reason",
    )


def test_an_unwritable_store_is_told_before_any_test(project: Project) -> None:
    """The store is tried at the start, so that no measurement is lost at the end."""
    project.write("def test_it(llm_client): llm_client.measure('x')")
    (project.path / "taken").write_text("a file where the folder should be")
    result = project.run("--llmspeed-update-baseline", "--llmspeed-store=taken/store")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    shows(result, "the baseline store cannot be written", "taken/store", "set llmspeed_store")
    assert project.engine_log == []


def test_several_backends_need_a_function_to_multiply(project: Project) -> None:
    """A unittest.TestCase cannot run once per backend: reported with both ways out, not silently narrowed."""
    project.write(
        """
        import unittest
        import pytest

        @pytest.mark.llm_backend("scripted")
        @pytest.mark.llm_backend("scripted2")
        @pytest.mark.usefixtures("llm_client")
        class TestIt(unittest.TestCase):
            def test_it(self): pass
        """
    )
    shows(
        project.run(),
        "several backends are configured (scripted",
        "only test functions that request llm_client or llm_backend can run once per backend",
        "keep one llm_backend mark, or pass --llmspeed-backend=scripted",
    )


def test_senseless_arguments_of_a_call_are_named(project: Project) -> None:
    """max_tokens=0, a negative time limit, no rounds, a wrong endpoint."""
    project.write(
        """
        import pytest
        from pytest_llmspeed import LLMSpeedError

        def test_it(llm_client):
            for arguments, message in (
                ({"max_tokens": 0}, "max_tokens=0"),
                ({"timeout_s": -1}, "timeout_s=-1"),
                ({"endpoint": "chatt"}, "endpoint='chatt'"),
            ):
                with pytest.raises(LLMSpeedError, match=message):
                    llm_client.generate("x", **arguments)
            with pytest.raises(LLMSpeedError, match=r"rounds\\(0"):
                list(llm_client.rounds(0))
        """
    )
    project.run().assert_outcomes(passed=1)
