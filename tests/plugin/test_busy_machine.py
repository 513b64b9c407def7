"""A machine that other programs use: what is recorded, taken again, and not decided. The source is fake."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

import pytest
from support import shows

from pytest_llmspeed.edges.telemetry import cpu

if TYPE_CHECKING:
    from support import Project

MEASURE = """
    import pytest

    @pytest.mark.llm_backend("scripted", here=True)
    @pytest.mark.llm_budget(ttft_ms=500)
    def test_it(llm_client): llm_client.measure("hello", max_tokens=8)
"""


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], float]], None]:
    """Let others use a share of the machine: a function of the number of the look at it.

    The client looks before and after each request, a second apart.
    """

    def script(share: Callable[[int], float]) -> None:
        looks, total = count(), [0.0]

        def read(root: int | None) -> cpu.CPUReading:
            look = next(looks)
            total[0] += share(look) * (os.cpu_count() or 1) + 0.02
            return cpu.CPUReading(float(look), total[0], 0.0)

        monkeypatch.setattr(cpu, "read", read)

    return script


def test_a_quiet_machine_changes_nothing(project: Project, foreign: Callable[..., None]) -> None:
    """Ten requests, none disturbed, stored."""
    project.write(MEASURE)
    foreign(lambda _: 0.01)
    project.run("--llmspeed-update-baseline").assert_outcomes(passed=1)
    requests = project.test()["measurement"]["requests"]
    assert len(requests) == 10
    assert {round(request["foreign_cpu"], 2) for request in requests} <= {0.0, 0.01, 0.02}
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
    shows(result, "machine busy: other programs used the processor during 20 of 20 requests")
    assert project.verdicts() == {"ttft_ms": "inconclusive"}
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
