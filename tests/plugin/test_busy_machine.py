"""A machine that other programs use: what is recorded, taken again, and not decided. The source is fake."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from helpers.project import shows

from pytest_llmspeed.system import cpu, processes

if TYPE_CHECKING:
    from helpers.project import Project

MEASURE = """
    import pytest

    @pytest.mark.llm_backend("scripted", here=True)
    @pytest.mark.llm_budget(ttft_ms=500)
    def test_it(llm_client): llm_client.measure("hello", max_tokens=8)
"""


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], float]], None]:
    """Let others take a share of the engine's time: a function of the number of the look at it.

    The client looks before and after each request, a second apart, in which its only thread is ready to run.
    """

    def script(share: Callable[[int], float]) -> None:
        looks = count()
        own_s, waited_s = [0.0], [0.0]

        def read(root: int | None) -> cpu.CPUReading:
            look = next(looks)
            waited_s[0] += share(look)
            own_s[0] += 1 - share(look)
            others_s = float(look)  # a whole core, whether it is the engine's or not
            return cpu.CPUReading(float(look), own_s[0] + others_s, own_s[0], waited_s[0])

        monkeypatch.setattr(cpu, "read", read)

    return script


def test_a_quiet_machine_changes_nothing(project: Project, foreign: Callable[..., None]) -> None:
    """Ten requests, none disturbed, stored."""
    project.write(MEASURE)
    foreign(lambda _: 0.01)
    project.run("--llmspeed-update-baseline").assert_outcomes(passed=1)
    requests = project.test()["measurement"]["requests"]
    assert len(requests) == 10
    assert {round(request["foreign_cpu"], 2) for request in requests} == {0.01}
    assert len(project.run_files) == 1


def test_on_a_busy_machine_nothing_is_decided_and_nothing_stored(
    project: Project, foreign: Callable[..., None]
) -> None:
    """All requests disturbed: twice the rounds were taken, the verdict is inconclusive and says why."""
    project.write(MEASURE)
    foreign(lambda _: 0.0)
    project.record(3)
    foreign(lambda _: 0.9)
    project.script(factor=1.6)
    result = project.run("--llmspeed-update-baseline")
    result.assert_outcomes(passed=1)
    shows(
        result,
        "machine busy: other programs took processor time from the engine in 20 of 20 requests",
        "although twice as many rounds were taken",
    )
    assert project.verdicts() == {"ttft_ms": "inconclusive", "tpot_ms": "inconclusive"}
    assert all(found["now"] for found in project.test()["comparisons"])
    assert len(project.run_files) == 3


def test_disturbed_requests_are_taken_again_and_left_out(
    project: Project, foreign: Callable[..., None]
) -> None:
    """A spell of foreign load costs rounds, not the verdict."""
    project.write(MEASURE)
    foreign(lambda _: 0.0)
    project.record(5)
    foreign(lambda look: 0.9 if 8 < look < 16 else 0.0)
    project.script(factor=1.6)
    result = project.run()
    result.assert_outcomes(failed=1)
    requests = project.test()["measurement"]["requests"]
    disturbed = [request for request in requests if "disturbed" in request["flags"]]
    assert 10 < len(requests) < 20
    assert len(requests) - len(disturbed) == 10
    assert project.verdicts()["tpot_ms"] == "slower"
    shows(result, f"{len(disturbed)} of {len(requests)} requests lost processor time to other programs")


def test_the_share_that_disturbs_is_a_setting(project: Project, foreign: Callable[..., None]) -> None:
    """llmspeed_busy_share; one that is none is an error."""
    project.write(MEASURE)
    for share, rounds in (("0.3", 10), ("0.1", 20)):
        foreign(lambda _: 0.2)
        project.run("-o", f"llmspeed_busy_share={share}").assert_outcomes(passed=1)
        assert len(project.test()["measurement"]["requests"]) == rounds
    result = project.run("-o", "llmspeed_busy_share=20")
    shows(result, "llmspeed_busy_share = 20: give a share above 0, up to 1 (0.1 is 10%)")


def test_the_culprits_are_named(
    project: Project, foreign: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The busiest other programs, with the cores that they used; the report has them too."""
    project.write(MEASURE)
    foreign(lambda _: 0.9)
    clock_ticks = os.sysconf("SC_CLK_TCK")
    grown = count()

    def everyone() -> dict[int, processes.Process]:
        looks = next(grown)
        return {10**7: processes.Process(1, 10**9 * looks * clock_ticks, "stress\x1b[1m", 5)}

    monkeypatch.setattr(processes, "everyone", everyone)
    result = project.run()
    shows(result, r"20 of 20 requests (stress\x1b[1m ")
    (neighbour,) = project.test()["measurement"]["neighbours"]
    assert neighbour["name"] == "stress\x1b[1m"


def test_a_remote_server_is_not_judged_by_this_machine(
    project: Project, foreign: Callable[..., None]
) -> None:
    """The client's own processor says nothing of a server elsewhere."""
    project.write(MEASURE.replace("here=True", "here=False"))
    foreign(lambda _: 0.9)
    project.run().assert_outcomes(passed=1)
    assert {request["foreign_cpu"] for request in project.test()["measurement"]["requests"]} == {None}


@pytest.mark.skipif(not os.path.exists(cpu.STAT), reason="there is no /proc/stat")
def test_the_work_of_a_server_and_its_workers_is_ours() -> None:
    """The processor time of a process and of all that descend from it is not that of others."""
    work = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    server = subprocess.Popen(
        ["sh", "-c", f"{shlex.quote(sys.executable)} -c '{work}'; true"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with server:
        assert server.stdout is not None
        server.stdout.readline()
        without, within = cpu.read(), cpu.read(server.pid)
        server.communicate(b"\n")
    assert without is not None
    assert within is not None
    assert within.own_s - without.own_s >= 0.25


def reading(at_s: float, all_s: float, own_s: float, waited_s: float | None, stolen_s: float = 0.0) -> Any:
    return cpu.CPUReading(at_s, all_s, own_s, waited_s, stolen_s)


@pytest.mark.parametrize(
    ("now", "share"),
    [
        pytest.param(reading(10, 20, 10, 0), 0.0, id="a program on the core that the engine leaves free"),
        pytest.param(reading(10, 20, 6, 4), 0.4, id="a program on the engine's core"),
        pytest.param(reading(10, 20, 20, 10), 0.0, id="its own threads wait for each other"),
        pytest.param(reading(10, 20, 14, 7), 6 / 20, id="both: no more than others used"),
        pytest.param(reading(10, 12, 0.1, 0.1), 0.01, id="an engine that hardly needs the processor"),
        pytest.param(reading(10, 11, 8, 0, 2), 0.163, id="the hypervisor"),
        pytest.param(reading(10, 20, 10, None), 0.5, id="no counts of waits: no core is idle"),
        pytest.param(reading(10, 18, 10, None), 0.0, id="no counts of waits: a core is idle"),
    ],
)
def test_what_an_engine_lost(now: Any, share: float) -> None:
    """Ten seconds on two cores."""
    assert cpu.lost_share(reading(0, 0, 0, None if now.waited_s is None else 0), now, 2) == pytest.approx(
        share, abs=0.02
    )


@pytest.mark.skipif(not os.path.exists("/proc/net/tcp"), reason="there is no /proc")
def test_a_server_on_this_machine_is_found_by_its_port() -> None:
    """The process that listens on it; of none, nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert processes.listener(port) == os.getpid()
    assert processes.listener(port) is None


def test_a_program_is_called_by_its_script() -> None:
    """Of an interpreter the name of the script or module; other arguments may hold secrets."""
    work = "import sys; print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", work, "--key=secret"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        name = processes.name_of(process.pid, processes.everyone()[process.pid])
        process.communicate(b"")
    assert name.startswith("python")
    assert "secret" not in name


def test_the_other_workers_of_this_run_are_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """What descends from the controller and not from this worker; without xdist nothing does."""
    others = {1: (0, "init"), 10: (1, "pytest"), 11: (10, "gw0"), 12: (10, "gw1"), 13: (12, "engine")}
    found = {pid: processes.Process(parent, 0, name) for pid, (parent, name) in others.items()}
    monkeypatch.setattr(processes, "everyone", lambda: found)
    monkeypatch.setattr(os, "getpid", lambda: 11)
    monkeypatch.setattr(os, "getppid", lambda: 10)
    monkeypatch.delenv(processes.XDIST_WORKER, raising=False)
    assert processes.numbers_of_other_workers() == set()
    monkeypatch.setenv(processes.XDIST_WORKER, "gw0")
    assert processes.numbers_of_other_workers() == {12, 13}


@pytest.mark.skipif(not os.path.exists(cpu.STAT), reason="there is no /proc/stat")
def test_the_real_source_counts_up() -> None:
    """The system's own figures are read: time passes, and this process has used some."""
    first = cpu.read()
    assert first is not None
    sum(range(200_000))
    second = cpu.read()
    assert second is not None
    assert second.at_s > first.at_s
    assert second.all_s >= first.all_s > 0
    assert second.own_s >= first.own_s > 0


def test_a_required_baseline_is_required_on_a_busy_machine_too(
    project: Project, foreign: Callable[..., None]
) -> None:
    """A runner that is always busy would be green for ever; with a baseline its mood fails nothing."""
    project.write(MEASURE)
    foreign(lambda _: 0.9)
    result = project.run("--llmspeed-require-baseline")
    result.assert_outcomes(failed=1)
    shows(result, "machine busy", "because of --llmspeed-require-baseline")
    foreign(lambda _: 0.0)
    project.record(2)
    foreign(lambda _: 0.9)
    project.run("--llmspeed-require-baseline").assert_outcomes(passed=1)


def test_an_update_on_a_busy_machine_says_that_it_stores_nothing(
    project: Project, foreign: Callable[..., None]
) -> None:
    """And which test it is about."""
    project.write(MEASURE)
    foreign(lambda _: 0.9)
    shows(project.run("--llmspeed-update-baseline"), "baseline not updated: test_it machine busy")
    assert project.run_files == []
