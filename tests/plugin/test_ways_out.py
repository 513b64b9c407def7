"""Every way out of a test while something of ours lives in a loop: a clean end, and pytest's exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from helpers.project import shows
from helpers.servers import Play, ReplayServer, chunk

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


ENDLESS = Play([(5.0, chunk({"content": "a"}))], ending="hang")
UNDER_WAY = {
    "a blocking stream": """
    def test_it(llm_client):
        with llm_client.openai.chat.completions.create(**ASKED) as stream:
            for _ in stream:
                {body}
    """,
    "a stream in a coroutine": """
    @pytest.mark.asyncio
    async def test_it(llm_client):
        async with await llm_client.async_openai.chat.completions.create(**ASKED) as stream:
            async for _ in stream:
                {body}
    """,
    "a stream in a coroutine of asyncio.run": """
    def test_it(llm_client):
        async def ask():
            stream = await llm_client.async_openai.chat.completions.create(**ASKED)
            async for _ in stream:
                {body}
        asyncio.run(ask())
    """,
    "a load": """
    def test_it(llm_client):
        def interrupt(*_):
            {body}
        signal.signal(signal.SIGUSR1, interrupt)
        llm_client.load("hello", concurrency=2, requests=8, warmup=0)
    """,
}
"""What of ours may live while a body is left; `body` leaves it."""
ASKED = """
    import asyncio, os, signal
    import pytest

    ASKED = dict(model="m", messages=[dict(role="user", content="hi")], stream=True)
"""
RUN_TAG = "LLMSPEED_WAYS_OUT"


def descendants() -> list[str]:
    """The command lines of the processes that carry the tag of a run, which its children inherit."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{RUN_TAG}={os.getpid()}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_text())
        except OSError:
            continue
    return found


def left(project: Project, under_way: str, body: str, *arguments: str) -> tuple[int, str]:
    """Run a test that leaves its body so; return pytest's exit code and output."""
    project.write(ASKED + UNDER_WAY[under_way].format(body=body))
    serving: list[subprocess.Popen[str]] = []
    signalled: list[bool] = []

    def play(_: object) -> Play:
        if under_way == "a load" and body != "pass" and not signalled:
            signalled.append(True)  # the load is under way once one of its requests is here
            os.kill(serving[0].pid, signal.SIGUSR1)
        return ENDLESS

    with ReplayServer(play) as server:
        command = [sys.executable, "-m", "pytest", "-Werror", "-p", "no:cacheprovider", *arguments]
        options = ["-otimeout_func_only=true", "--llmspeed-backend=openai", f"--llmspeed-url={server.url}"]
        serving.append(
            subprocess.Popen(
                [*command, *options],
                cwd=project.path,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env={**os.environ, RUN_TAG: str(os.getpid())},
            )
        )
        output, _ = serving[0].communicate(timeout=120)
    return serving[0].returncode, output


ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
TROUBLE = ("INTERNALERROR", "never awaited", "ResourceWarning", "loop is closed", "CancelledError")


@ON_LINUX
@pytest.mark.parametrize("under_way", UNDER_WAY)
def test_a_body_that_raises_shows_its_own_error(project: Project, under_way: str) -> None:
    """Whatever of ours is under way ends with it, without a warning."""
    status, output = left(project, under_way, "raise OSError('the user own error')")
    assert status == pytest.ExitCode.TESTS_FAILED, output
    assert "OSError: the user own error" in output
    assert not [trouble for trouble in TROUBLE if trouble in output], output
    assert descendants() == []


@ON_LINUX
@pytest.mark.parametrize("under_way", UNDER_WAY)
def test_a_time_limit_by_signal_ends_the_test(project: Project, under_way: str) -> None:
    """The error is that of pytest-timeout, and the run goes on to its end."""
    status, output = left(project, under_way, "pass", "--timeout=4", "--timeout-method=signal")
    assert status == pytest.ExitCode.TESTS_FAILED, output
    assert "Timeout (>4.0s) from pytest-timeout" in output, output
    assert "1 failed" in output
    assert not [trouble for trouble in TROUBLE if trouble in output], output
    assert descendants() == []


@ON_LINUX
@pytest.mark.parametrize("under_way", UNDER_WAY)
def test_a_time_limit_by_thread_leaves_no_process_behind(project: Project, under_way: str) -> None:
    """It kills pytest on the spot: the workers of a load see that nobody is left to work for."""
    status, output = left(project, under_way, "pass", "--timeout=4", "--timeout-method=thread")
    assert status == pytest.ExitCode.TESTS_FAILED, output
    assert "Timeout" in output
    deadline = time.monotonic() + 30
    while descendants() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert descendants() == []
