"""Processes that a library starts in ours: what they print, and that they do not outlive us."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from types import SimpleNamespace

import pytest

from pytest_llmspeed.engines.local.child_output import ChildOutput

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads /proc")

PARENT = """
import os, signal, subprocess, sys
from pytest_llmspeed.engines.local.child_watchdog import ChildWatchdog
quiet = subprocess.DEVNULL
early = subprocess.Popen(["sleep", "60"], stdout=quiet)
watchdog = ChildWatchdog()
shell = subprocess.Popen(["sh", "-c", "sleep 60 >&2 & echo $!; wait"], stdout=subprocess.PIPE, text=True)
below = int(shell.stdout.readline())
if {settled}:
    watchdog.settled()
late = subprocess.Popen(["sleep", "60"], stdout=quiet)
print(early.pid, shell.pid, below, late.pid, flush=True)
{ending}
"""
KILLED = "os.kill(os.getpid(), signal.SIGKILL)"


FORKING = """
import os, signal, time
from pytest_llmspeed.engines.local.child_watchdog import ChildWatchdog
watchdog = ChildWatchdog()
if (below := os.fork()) == 0:
    os.close(1)
    time.sleep(60)
    os._exit(0)
{settled}
print(below, flush=True)
{ending}
"""


def alive(pid: int) -> bool:
    """True for a process that runs; one that has ended and that nobody has asked after does not."""
    with suppress(OSError), open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"
    return False


def ends(pid: int) -> bool:
    """True once a process has ended, False if it does not."""
    deadline = time.monotonic() + 20
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(pid)


def said_by(script: str) -> list[int]:
    """The process ids that a parent printed before it ended."""
    shown = subprocess.run(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=False, timeout=60
    )
    return [int(word) for word in shown.stdout.split()]


def left_by(ending: str, *, settled: bool = True) -> list[bool]:
    """Which of a parent's children live on: one from before, one with a child, one of afterwards."""
    early, shell, below, late = said_by(PARENT.format(ending=ending, settled=settled))
    if "SIGKILL" in ending:
        assert ends(shell)
        assert ends(below)
    found = [alive(pid) for pid in (early, shell, below, late)]
    for pid in (early, shell, below, late):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found


def test_a_killed_parent_leaves_none_of_the_watchdoged() -> None:
    """Those noted and what descends from them; not what was there before, or came later."""
    assert left_by(KILLED) == [True, False, False, True]


def test_a_parent_killed_in_the_middle_of_a_start_leaves_none() -> None:
    """What has been started by then is noted."""
    early, shell, below, _ = left_by(f"import time; time.sleep(2); {KILLED}", settled=False)
    assert (early, shell, below) == (True, False, False)


def test_a_released_watchdog_kills_nothing() -> None:
    """It is for the library to end its processes; the watchdog is for when it no longer can."""
    assert left_by("watchdog.release()") == [True, True, True, True]


@pytest.mark.parametrize("ending", [KILLED, "watchdog.kill()"])
def test_a_lifeline_that_the_watched_hold_open_is_cut_all_the_same(ending: str) -> None:
    """A library that forks hands its processes a copy of the pipe: its end never comes."""
    (below,) = said_by(FORKING.format(settled="watchdog.settled()", ending=ending))
    assert ends(below)


def test_two_words_that_come_at_once_are_both_heard() -> None:
    """As after Ctrl-C in the middle of a start: the second shall not lie in a buffer that nobody asks."""
    at_once = "watchdog._tell(b'settled\\nkill\\n'); watchdog._script.communicate()"
    (below,) = said_by(FORKING.format(settled="", ending=at_once))
    assert ends(below)


def test_an_error_of_a_child_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    """Its first logged error is the cause, and all it said is passed on."""
    log = (
        "INFO 11-30 [core.py:1] loading",
        "(Worker pid=7) ERROR 11-30 [worker.py:9] Traceback (most recent call last):",
        "(Worker pid=7) ERROR 11-30 [worker.py:9] ValueError: too little memory",
        "(Core pid=6) ERROR 11-30 [core.py:2] RuntimeError: the worker failed",
    )
    with ChildOutput() as output:
        subprocess.run([sys.executable, "-c", f"print({chr(10).join(log)!r})"], check=True)
    assert output.cause() == "ValueError: too little memory"
    assert "loading" in capfd.readouterr().err
    output.close()


@pytest.mark.parametrize(
    ("code", "said"), [(-9, "was killed (SIGKILL), perhaps because memory ran out"), (3, "ended with code 3")]
)
def test_a_child_without_a_word_is_told_by_its_end(code: int, said: str) -> None:
    """Its exit code, or the signal that killed it."""
    with ChildOutput() as output:
        pass
    assert output.cause() is None
    assert said in str(output.cause([SimpleNamespace(exitcode=None), SimpleNamespace(exitcode=code)]))
    output.close()
