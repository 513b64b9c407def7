"""Whatever happens to pytest, nothing of a server is left: no process, port, file, memory or container."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from helpers.stage import OWN, STAND_IN

from pytest_llmspeed.engines.base import EngineSpec
from pytest_llmspeed.engines.servers._server import OwnServer
from pytest_llmspeed.errors import EngineError
from pytest_llmspeed.metrics.exchange import Request

if TYPE_CHECKING:
    from helpers.stage import Stage

PATIENCE_S = 30.0
"""A tenfold allowance for a busy machine: what is waited for takes a second or two."""
STARTS = 30


def wait_for(what: Callable[[], Any]) -> Any:
    """Wait until something holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
    return found


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def nothing_is_left(stage: Stage) -> bool:
    """True once every process that was noted, every port, folder and piece of shared memory is gone."""
    noted = [*stage.noted("pid"), *(pid for pids in stage.noted("workers") for pid in pids)]
    gone = not any(Path(f"/proc/{pid}").exists() for pid in noted)
    folders = list((stage.project.path / "tmp").glob("llmspeed-*"))
    segments = [name for name in stage.noted("segment") if Path("/dev/shm", name).exists()]
    return gone and not folders and not segments and all(is_free(port) for port in stage.noted("port"))


@contextmanager
def pytest_of(stage: Stage, body: str, *arguments: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A pytest run in a process and session of its own, with one test on a server."""
    stage.write("server", body, **(options or {"command": OWN}))
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=stage.project.path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    with run:
        try:
            yield run
        finally:
            run.kill()  # else a test that fails would wait for it without end


HANGING = "def test_it(self, llm_client): llm_client.generate('hi', max_tokens=8, warmup=False)"


def start_and_stop(stage: Stage, fault: str) -> None:
    """One server's life, with a fault or without."""
    stage.fault(fault)
    spec = EngineSpec.of("server", "m", None, {"command": OWN})
    if fault == "killed":
        with pytest.raises(EngineError, match="SIGKILL"):
            OwnServer.start(spec)
        return
    engine = OwnServer.start(spec)
    found = asyncio.run(engine.exchange(Request("hi", max_tokens=4)))
    assert (found.error is None) == (fault == "")
    asyncio.run(engine.close())


def kill_pytest(stage: Stage, fault: str) -> None:
    """The life of a pytest that is killed while its server answers."""
    stage.fault(fault)
    before = len(stage.noted("hangs"))
    with pytest_of(stage, HANGING):
        wait_for(lambda: len(stage.noted("hangs")) > before)


ODD_MOMENTS = (
    ("killed", start_and_stop),
    ("crash in a stream", start_and_stop),
    ("hang in a stream", kill_pytest),
)


def test_thirty_servers_in_a_row_leave_nothing(stage: Stage) -> None:
    """Some are killed before they are up, some crash in a stream, of some pytest itself is killed."""
    for number in range(STARTS):
        fault, live = ODD_MOMENTS[number // 3 % 3] if number % 3 == 0 else ("", start_and_stop)
        live(stage, fault)
    assert len(stage.noted("argv")) == STARTS - 4  # four were killed before they could note it
    wait_for(lambda: nothing_is_left(stage))


@pytest.mark.parametrize("fault", ["crash in a stream", "stubborn"])
def test_a_server_that_ends_badly_leaves_no_shared_memory(stage: Stage, fault: str) -> None:
    """One that dies, or has to be killed, cannot remove it; Python's resource tracker is let do it."""
    stage.fault(fault)
    engine = OwnServer.start(EngineSpec.of("server", "m", None, {"command": OWN}))
    asyncio.run(engine.exchange(Request("hi", max_tokens=4)))
    asyncio.run(engine.close())
    assert len(stage.noted("segment")) == 1
    assert nothing_is_left(stage)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["never up", "hang in a stream"])
def test_a_pytest_that_is_ended_leaves_nothing(stage: Stage, moment: str, number: signal.Signals) -> None:
    """Killed, or interrupted by Ctrl-C, while the server starts or answers: the watchdog sees to it."""
    stage.fault(moment)
    with pytest_of(stage, HANGING) as run:
        wait_for(lambda: stage.noted("pid" if moment == "never up" else "hangs"))
        run.send_signal(number)
        run.communicate(timeout=PATIENCE_S)
    wait_for(lambda: nothing_is_left(stage))


def test_a_time_limit_that_leaves_by_exit_leaves_nothing(stage: Stage) -> None:
    """pytest-timeout's thread method ends the process at once, with no clean-up of anything."""
    stage.fault("hang in a stream")
    with pytest_of(stage, HANGING, "--timeout=3", "--timeout-method=thread") as run:
        output, _ = run.communicate(timeout=PATIENCE_S)
    assert b"Timeout" in output
    wait_for(lambda: nothing_is_left(stage))


def test_ctrl_c_in_a_terminal_reaches_pytest_alone(stage: Stage) -> None:
    """The signal goes to the whole group of pytest; the watchdog, in another, works on after it."""
    stage.fault("hang in a stream")
    with pytest_of(stage, HANGING) as run:
        wait_for(lambda: stage.noted("hangs"))
        os.killpg(run.pid, signal.SIGINT)
        run.communicate(timeout=PATIENCE_S)
    assert run.returncode == pytest.ExitCode.INTERRUPTED
    wait_for(lambda: nothing_is_left(stage))


def test_the_watchdog_shares_the_session_of_pytest_but_not_its_group(stage: Stage) -> None:
    """A session of its own would be starved on a busy core; in the same group Ctrl-C would reach it."""
    engine = OwnServer.start(EngineSpec.of("server", "m", None, {"command": OWN}))
    try:
        watchdog = engine.root_process
        assert watchdog is not None
        assert os.getsid(watchdog) == os.getsid(0)
        assert os.getpgid(watchdog) == watchdog
    finally:
        asyncio.run(engine.close())


FORKING = """def test_it(self, llm_client):
                    import json, os, time
                    llm_client.generate('hi')
                    if (pid := os.fork()) == 0:
                        os.setsid()
                        time.sleep(600)
                    with open(os.environ['STAND_IN_NOTES'], 'a') as notes:
                        print(json.dumps({'forked': pid}), file=notes)
                    time.sleep(600)"""


def test_a_lifeline_that_a_forked_process_holds_open_is_cut_all_the_same(stage: Stage) -> None:
    """A process forked from pytest outlives it, with a copy of the lifeline in its hands."""
    with pytest_of(stage, FORKING) as run:
        (forked,) = wait_for(lambda: stage.noted("forked"))
        run.kill()
        try:
            wait_for(lambda: nothing_is_left(stage))
        finally:
            os.kill(forked, signal.SIGKILL)


def test_workers_that_left_the_server_s_group_are_ended_too(stage: Stage) -> None:
    """Engines start processes in sessions of their own; the watchdog adopts them."""
    stage.fault("workers")
    with pytest_of(stage, HANGING) as run:
        run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0
    wait_for(lambda: nothing_is_left(stage))


DOCKER = """#!/bin/sh
"exec" "{python}" "$0" "$@"  # a line of both languages: no interpreter with a space can follow #!
import json, os, runpy, sys, time
with open({calls!r}, "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
if sys.argv[1] == "run":
    words = sys.argv[2:]
    host, port, inside = words[words.index("--publish") + 1].split(":")
    own = words[words.index("image:1") + 1:]
    sys.argv = ["stand_in", "plain", "--host", host, "--port", port, "--model", own[-1]]
    runpy.run_path({stand_in!r}, run_name="__main__")
"""


@pytest.fixture
def docker(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[list[str]]]:
    """A docker whose client serves itself; returns what it was called with."""
    calls = stage.project.path / "docker-calls"
    program = stage.project.path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(DOCKER.format(python=sys.executable, calls=str(calls), stand_in=str(STAND_IN)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return lambda: [json.loads(line) for line in calls.read_text().splitlines()]


IMAGE = {"image": "image:1", "command": "serve --port {port} {model}"}


def test_a_container_is_removed_by_name(stage: Stage, docker: Callable[[], list[list[str]]]) -> None:
    """It is published on this machine only, and removed at the end: a client's end would leave it."""
    stage.run("server", HANGING, **IMAGE).assert_outcomes(passed=1)
    run, remove = docker()
    name = run[run.index("--name") + 1]
    assert run[:2] == ["run", "--rm"]
    assert run[run.index("--publish") + 1].startswith("127.0.0.1:")
    assert run[-4:] == ["serve", "--port", "8000", "org/model"]
    assert remove == ["rm", "-f", name]
    assert {request["foreign_cpu"] for request in stage.project.test()["measurement"]["requests"]} == {None}


def test_a_container_is_removed_when_pytest_is_killed(
    stage: Stage, docker: Callable[[], list[list[str]]]
) -> None:
    """The watchdog does it."""
    stage.fault("hang in a stream")
    with pytest_of(stage, HANGING, **IMAGE):
        wait_for(lambda: stage.noted("hangs"))
    wait_for(lambda: len(docker()) == 2)
    name = docker()[0][docker()[0].index("--name") + 1]
    assert docker()[1] == ["rm", "-f", name]
    wait_for(lambda: nothing_is_left(stage))
