"""One measurement at a time on a device, whoever asks."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_llmspeed.edges import lock
from pytest_llmspeed.edges.lock import DeviceLock

HOLD = """
import sys, pathlib
from pytest_llmspeed.edges.lock import DeviceLock
held = DeviceLock("gpu 0", "test_other", pathlib.Path(sys.argv[1]))
held.acquire()
print("held", flush=True)
sys.stdin.read()
"""


FORK = """
import os, sys, pathlib
from pytest_llmspeed.edges.lock import DeviceLock
held = DeviceLock("gpu 0", "test_other", pathlib.Path(sys.argv[1]))
held.acquire()
if os.fork() == 0:
    sys.stdin.read()
    os._exit(0)
held.release()
print("held", flush=True)
os.wait()
"""


@contextmanager
def process(script: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, once it has had the lock; its input ends with the test."""
    started = subprocess.Popen(
        [sys.executable, "-c", script, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    assert started.stdin is not None
    try:
        assert started.stdout.readline() == "held\n"
        yield started
    finally:
        started.kill()
        started.wait()
        started.stdout.close()
        started.stdin.close()


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock until its input ends."""
    with process(HOLD, tmp_path) as started:
        yield started


def test_a_free_device_is_had_at_once(tmp_path: Path) -> None:
    """Taken, given back, taken again; other devices are not concerned."""
    for device in ("gpu 0", "gpu 1", "gpu 0"):
        held = DeviceLock(device, "test_it", tmp_path)
        held.acquire(on_wait=pytest.fail)
        held.release()
        held.release()


def test_a_forked_child_holds_nobody_up(tmp_path: Path) -> None:
    """A pool of processes that the application under test forked outlives the test, not its lock."""
    with process(FORK, tmp_path):
        held = DeviceLock("gpu 0", "test_it", tmp_path)
        held.acquire(on_wait=pytest.fail)
        held.release()


def test_a_second_process_waits_and_is_told_for_whom(
    tmp_path: Path, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The waiting one hears the test and the process that hold the device, then gets it."""
    monkeypatch.setattr(lock, "PATIENCE_S", 0)
    said: list[str] = []

    def told(message: str) -> None:
        said.append(message)
        assert holder.stdin is not None
        holder.stdin.close()

    waiting = DeviceLock("gpu 0", "test_it", tmp_path)
    waiting.acquire(on_wait=told)
    waiting.release()
    assert said == [f"waiting for 'gpu 0', which test_other (process {holder.pid}) measures on"]


def test_a_holder_that_is_killed_lets_go(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    """The system gives a dead process's lock back."""
    holder.kill()
    holder.wait()
    held = DeviceLock("gpu 0", "test_it", tmp_path)
    held.acquire(on_wait=pytest.fail)
    held.release()


def test_an_interrupted_wait_holds_nothing(
    tmp_path: Path, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while waiting leaves the lock to its holder."""
    monkeypatch.setattr(lock, "PATIENCE_S", 0)

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        DeviceLock("gpu 0", "test_it", tmp_path).acquire(on_wait=interrupt)
    assert holder.poll() is None


def test_two_threads_never_hold_it_together(tmp_path: Path) -> None:
    """Each holder is alone, however many want it."""
    inside, most = [0], [0]

    def work() -> None:
        held = DeviceLock("gpu 0", "test_it", tmp_path)
        held.acquire()
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        inside[0] -= 1
        held.release()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
