"""`llmspeed calibrate`: whole runs of unchanged code, and what they say of the machine."""

import os
import select
import signal
import subprocess
import sys

import pytest
from helpers.reports import CHAT, SHAPE, a_run, a_test

from pytest_llmspeed.baselines.report_set import read_reports
from pytest_llmspeed.cli import calibrate as command
from pytest_llmspeed.errors import LLMSpeedError
from pytest_llmspeed.records.record import RunRecord
from pytest_llmspeed.regression.calibration import calibrate, wilson
from pytest_llmspeed.regression.session_test import compare


def session(level):
    return tuple(100 * level * each for each in SHAPE)


LEVELS = (1.0, 1.02, 0.98, 1.01, 0.99)


@pytest.fixture
def runs(write):
    """Runs of the chat test, one for each level of speed."""

    def make(*levels, shape=SHAPE):
        tests = [a_run(day, a_test(slow=slow, shape=shape)) for day, slow in enumerate(levels, 1)]
        return [list(read_reports(write(f"{n}.json", run)).measured) for n, run in enumerate(tests)]

    return make


# the figures


def test_steady_sessions_raise_no_false_alarm():
    """Five sessions within two percent: each passes against the others."""
    found = calibrate([session(level) for level in LEVELS])
    assert (found.false_alarms, found.judged) == (0, 5)
    assert found.low_sd == pytest.approx(0.0158, abs=1e-4)
    assert found.mid_sd == pytest.approx(0.0158, abs=1e-4)


def test_a_session_that_stands_out_is_a_false_alarm():
    """One of six is 60% slower, though the code is the same."""
    found = calibrate([session(level) for level in (*LEVELS, 1.6)])
    assert [verdict.value for verdict in found.verdicts][-1] == "slower"
    assert found.false_alarms == 1


def test_what_is_seen_is_what_the_gate_prints():
    """`visible` is the gate's own figure, on the first day."""
    sessions = [session(level) for level in LEVELS]
    for many in (1, 40):
        printed = compare(sessions, session(1.0), comparisons=many, spans_a_day=False).visible
        assert calibrate(sessions, comparisons=many).visible == pytest.approx(printed)


def test_more_sessions_see_more_and_rarely_halve_it():
    """From three on, the spread between sessions decides: ten see more, none halves it."""
    found = calibrate([session(level) for level in LEVELS])
    assert 1 < found.visible_at_most < found.visible
    assert found.sessions_to_halve is None


def test_many_comparisons_can_be_halved():
    """Where many tests share the false alarms, three sessions see so little that more halve it."""
    found = calibrate([session(level) for level in LEVELS[:3]], comparisons=20_000)
    assert 3 < found.sessions_to_halve <= 10


def test_throughput_is_read_from_its_bad_side():
    """Times and their inverse see the same."""
    sessions = [session(level) for level in LEVELS]
    inverse = [[1 / value for value in values] for values in sessions]
    found = calibrate(inverse, larger_is_worse=False)
    assert found.visible == pytest.approx(calibrate(sessions).visible)


def test_too_few_requests_say_nothing():
    """Two usable sessions are none."""
    assert calibrate([session(1), session(1), session(1)[:4]]) is None


def test_the_interval_of_a_share():
    """Wilson's: 0 of 10 and 5 of 10, as R's binom gives them."""
    assert wilson(0, 10) == pytest.approx((0, 0.2775), abs=1e-4)
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)


# the result


def test_a_run_that_would_have_failed_is_counted(runs):
    """Runs are counted, not comparisons: those of one run share its mood."""
    result = command.result_of(runs(*LEVELS, 1.6))
    assert result.shown["runs_that_would_fail"]["n"] == 1
    assert [each["false_alarms"]["n"] for each in result.shown["findings"]] == [1, 1]
    assert any("each judged by the others: 1 would have failed" in line for line in result.lines)


def test_a_test_with_too_few_requests_is_said(runs):
    """With what to write instead."""
    with pytest.raises(LLMSpeedError, match="measure at least 5 requests a test"):
        command.result_of(runs(*LEVELS, shape=SHAPE[:4]))


# the runs


@pytest.fixture
def pytest_writes(write, monkeypatch):
    """Instead of pytest: the next report, or an exit code with its output."""

    def script(*outcomes):
        left = list(outcomes)

        def fake(arguments):
            outcome = left.pop(0)
            if isinstance(outcome, BaseException):
                raise outcome
            if isinstance(outcome, RunRecord):
                write(arguments[-1].partition("=")[2], outcome)
                return 0, "1 passed"
            return outcome

        monkeypatch.setattr(command, "_pytest", fake)

    return script


def test_each_run_is_told_as_it_ends(llmspeed, pytest_writes):
    """A line on stderr for each, the table on stdout."""
    pytest_writes(*(a_run(day) for day in (1, 2, 3)))
    said = llmspeed("calibrate", "3")
    assert said.code == 0
    assert said.err.splitlines() == [f"run {n} of 3: 1 test measured" for n in (1, 2, 3)]
    assert f"{CHAT}" in said.out
    assert "0 of 3" in said.out


def test_ctrl_c_keeps_what_was_done(llmspeed, pytest_writes):
    """After three runs they are told; the exit code is that of an interrupt."""
    pytest_writes(*(a_run(day) for day in (1, 2, 3)), KeyboardInterrupt())
    said = llmspeed("calibrate", "9")
    assert said.code == 130
    assert "interrupted after 3 of 9 runs" in said.err
    assert "0 of 3" in said.out


def test_ctrl_c_before_the_third_run_says_nothing_of_the_machine(llmspeed, pytest_writes):
    """Two runs are too few."""
    pytest_writes(a_run(1), a_run(2), KeyboardInterrupt())
    said = llmspeed("calibrate", "9")
    assert (said.code, said.out) == (130, "")
    assert "interrupted after 2 of 9 runs; at least 3 are needed" in said.err


def test_a_run_that_fails_ends_it(llmspeed, pytest_writes):
    """Its exit code and the end of its output, no traceback."""
    pytest_writes(a_run(1), (4, "\n".join(f"line {n}" for n in range(40))))
    said = llmspeed("calibrate", "3")
    assert (said.code, said.out) == (2, "")
    assert "run 2: pytest ended with exit code 4" in said.err
    assert "line 39" in said.err
    assert "line 20" not in said.err


def test_runs_without_a_measured_test(llmspeed, pytest_writes):
    """Say which tests were asked for."""
    pytest_writes((0, "3 passed"))
    said = llmspeed("calibrate", "3", "--", "tests/unit", "-q")
    assert said.code == 2
    assert "no test measured anything through llm_client (pytest was given: tests/unit -q)" in said.err


def test_fewer_than_three_runs_are_refused(llmspeed):
    """Before anything is run."""
    said = llmspeed("calibrate", "2")
    assert said.code == 2
    assert "at least 3 runs are needed" in said.err


def test_real_runs(project, llmspeed, monkeypatch):
    """Three fresh processes on the scripted engine; a store of the project is not looked at."""
    project.write("def test_chat(llm_client): llm_client.measure('hello', max_tokens=8)")
    monkeypatch.chdir(project.path)
    said = llmspeed("calibrate", "3", "--json", "--", "-q", "-k", "chat")
    assert said.code == 0, said.err
    assert said.json["runs"] == 3
    assert {each["metric"] for each in said.json["findings"]} == {"ttft_ms", "tpot_ms"}
    assert project.run_files == []


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_running_pytest_is_interrupted_once_and_awaited(project):
    """Ctrl-C stops the run at hand in order, its engines too."""
    project.write(
        """
        import signal
        def test_slow(llm_client):
            llm_client.measure("hello", max_tokens=8)
            with open("ready", "w") as ready:
                ready.write("now")
            signal.pause()
        """
    )
    os.mkfifo(project.path / "ready")
    ready = os.open(project.path / "ready", os.O_RDONLY | os.O_NONBLOCK)
    child = subprocess.Popen(
        [sys.executable, "-m", "pytest_llmspeed.cli", "calibrate", "3"],
        cwd=project.path,
        stderr=subprocess.PIPE,
        text=True,
    )
    with child:
        select.select([ready], [], [], 60)
        child.send_signal(signal.SIGINT)
        try:
            _, said = child.communicate(timeout=60)
        finally:
            child.kill()
    os.close(ready)
    assert (child.returncode, project.engine_log[-1]) == (130, "stop scripted")
    assert "interrupted after 0 of 3 runs" in said
