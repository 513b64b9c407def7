"""One measurement at a time on a device; under pytest-xdist, and when a worker dies."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from helpers.project import shows

from pytest_llmspeed.plugin import outcome
from pytest_llmspeed.plugin.state import STATE, TestState
from pytest_llmspeed.plugin.test_plan import EngineChoice, TestPlan

if TYPE_CHECKING:
    from helpers.project import Project

WATCH = """
    import os
    import pathlib
    import time
    import pytest

    INSIDE = pathlib.Path("inside")

    @pytest.mark.parametrize("n", range(6))
    def test_it(llm_client, n):
        INSIDE.mkdir()              # fails if another test is measuring
        llm_client.measure("hello", max_tokens=4)
        time.sleep(0.02)
        INSIDE.rmdir()
"""


@pytest.mark.parametrize("workers", ["2", "4"])
def test_workers_measure_one_after_the_other(project: Project, workers: str) -> None:
    """No two tests are between set-up and teardown of one device's engine at once."""
    project.write(WATCH)
    project.run("-n", workers).assert_outcomes(passed=6)


def test_a_killed_worker_loses_only_its_test(project: Project) -> None:
    """The others are measured, judged and stored; nothing hangs on the dead one's lock."""
    project.write(
        """
        import os
        import pytest

        @pytest.mark.parametrize("n", range(5))
        def test_it(llm_client, n):
            llm_client.measure(f"hello {n}", max_tokens=4)
            if n == 2:
                os._exit(1)
        """
    )
    result = project.run("-n", "2", "--llmspeed-update-baseline")
    assert result.ret == 1
    shows(result, "crashed while running", "4 tests measured")
    assert len(project.run_files) == 1


@pytest.mark.parametrize("workers", ["0", "2", "4"])
def test_the_same_samples_get_the_same_verdict(project: Project, workers: str) -> None:
    """On the fake clock, however many workers there are."""
    project.write(
        """
        import pytest

        @pytest.mark.llm_backend("scripted", ttft_ms=100)
        @pytest.mark.parametrize("n", range(4))
        def test_it(llm_client, n): llm_client.measure(f"hello {n}", max_tokens=8)
        """
    )
    project.record(3)
    project.script(factor=1.6)
    project.run("-n", workers).assert_outcomes(failed=4)
    for number in range(4):
        assert set(project.verdicts(f"test_it[{number}]").values()) == {"slower"}


def test_loadgroup_does_not_change_the_identity(project: Project) -> None:
    """xdist adds the group to node ids; the baseline is met all the same."""
    project.write(
        """
        import pytest

        @pytest.mark.xdist_group("one")
        def test_it(llm_client): llm_client.measure("hello", max_tokens=8)
        """
    )
    project.record(2)
    project.run("-n", "2", "--dist", "loadgroup")
    (test,) = project.report["tests"]
    assert test["identity"] == "test_it.py::test_it"
    assert {found["sessions"] for found in test["comparisons"]} == {2}


def test_who_is_waited_for_is_on_the_terminal_at_once(project: Project) -> None:
    """What is written while a test is set up goes to nobody's eyes, unless the capture is set aside."""
    project.write(
        "def test_it(llm_client): llm_client.generate('hello')",
        conftest="""
from types import SimpleNamespace
from pytest_llmspeed.system import lock

other = lock.DeviceLock("local", "test_of_another_run")
other.acquire()
lock.PATIENCE_S = -1
lock.time = SimpleNamespace(monotonic=lambda: 0, sleep=lambda _: other.release())
""",
    )
    result = project.pytester.runpytest_subprocess()
    result.assert_outcomes(passed=1)
    shows(result, "waiting for the device 'local': test_of_another_run (process ")


def test_members_of_an_enum_cross_to_the_controller(project: Project) -> None:
    """As labels, budget labels, models and precisions they are the text that they stand for."""
    project.write(
        """
        import enum
        import pytest

        class Name(str, enum.Enum):
            ENGINE, MODEL, PRECISION, CHAT = "crowd", "some/model", "bf16", "chat"

        @pytest.mark.llm_backend(Name.ENGINE, model=Name.MODEL, precision=Name.PRECISION)
        @pytest.mark.llm_budget(ttft_ms=300, label=Name.CHAT, backend=Name.ENGINE)
        def test_it(llm_client):
            llm_client.measure("hello", max_tokens=8, label=Name.CHAT)
            llm_client.load("hello", concurrency=1, requests=10, max_tokens=8, label=Name.CHAT)
        """
    )
    project.run("-n", "1", "--llmspeed-update-baseline").assert_outcomes(passed=1)
    test = project.test()
    backend = test["backend"]
    assert [backend[name] for name in ("name", "model", "precision")] == ["crowd", "some/model", "bf16"]
    assert {request["label"] for request in test["measurement"]["requests"]} == {"chat"}
    assert [check["label"] for check in test["budgets"]] == ["chat"]
    assert "Name." not in str(test["key"])


HOLDER = """
import sys
from pytest_llmspeed.system.lock import DeviceLock
lock = DeviceLock("local", "test_other")
lock.acquire()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(project: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    """Another process that measures on the device of the project's tests."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as held:
        assert held.stdout is not None
        assert held.stdout.readline() == "held\n"
        monkeypatch.setenv("HOLDER", str(held.pid))
        yield held
        held.kill()


def test_a_wait_for_the_device_stops_the_timer_of_pytest_timeout(
    project: Project, holder: subprocess.Popen[str]
) -> None:
    """A test's limit is for the test: the timer is stopped before the wait and starts again after it."""
    project.write(
        """
        import pytest

        @pytest.mark.timeout(60)
        def test_it(llm_client): pass
        """,
        conftest="""
def pytest_timeout_set_timer(item, settings):
    print("\\ntimer on", settings.timeout)

def pytest_timeout_cancel_timer(item):
    print("\\ntimer off")
    import signal
    try:
        os.kill(int(os.environ["HOLDER"]), signal.SIGKILL)
    except ProcessLookupError:
        pass
""",
    )
    result = project.run("-s")
    result.assert_outcomes(passed=1)
    timer = [line for line in result.outlines if line.startswith("timer o")]
    assert timer == ["timer on 60.0", "timer off", "timer on 60.0", "timer off"]


def test_a_device_that_is_never_free_is_one_sentence(project: Project, holder: subprocess.Popen[str]) -> None:
    """After the limit, naming who holds it, without a traceback."""
    project.write("def test_it(llm_client): pass")
    result = project.run("-o", "llmspeed_lock_timeout_s=0")
    result.assert_outcomes(errors=1)
    shows(
        result,
        f"cannot measure on the device 'local': test_other (process {holder.pid}) has been using it for",
    )
    result.stdout.no_fnmatch_line("*Traceback*")


def test_a_wait_is_not_part_of_a_set_up() -> None:
    """JUnit and --durations show how long the test's own set-up took."""
    state = TestState(TestPlan(None, EngineChoice(), (), ()), ())
    state.waited_s = 3.0
    item, stash = Mock(spec=pytest.Item), pytest.Stash()
    stash[STATE], item.stash = state, stash
    report = pytest.TestReport("test_it", ("", 0, ""), {}, "passed", None, "setup", duration=3.5)
    outcome.without_wait(report, item)
    assert report.duration == 0.5


def test_an_update_by_all_workers_at_once_is_refused(project: Project) -> None:
    """Each would store a session of the same test, made at the same time; nothing is measured or stored."""
    project.write("def test_it(llm_client): llm_client.measure('x')")
    update = ("--llmspeed-update-baseline", "--dist=each", "--tx=2*popen")
    result = project.pytester.runpytest_subprocess(*update)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    shows(result, "with --dist each every worker measures all of them: store without --dist each")
    assert project.run_files == []
