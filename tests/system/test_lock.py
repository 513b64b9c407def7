"""One measurement at a time on a device, whoever asks."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_llmspeed.engines.registry import server_of
from pytest_llmspeed.errors import DeviceBusyError
from pytest_llmspeed.system import lock
from pytest_llmspeed.system.lock import DeviceLock

HOLD = """
import sys, pathlib
from pytest_llmspeed.system.lock import DeviceLock
held = DeviceLock("gpu 0", "test_other", pathlib.Path(sys.argv[1]))
held.acquire()
print("held", flush=True)
sys.stdin.read()
"""


FORK = """
import os, sys, pathlib
from pytest_llmspeed.system.lock import DeviceLock
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
    (message,) = said
    assert message.startswith(
        f"waiting for the device 'gpu 0': test_other (process {holder.pid}) has been using it for "
    )


def test_a_holder_that_is_killed_lets_go(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    """The system gives a dead process's lock back."""
    holder.kill()
    holder.wait()
    held = DeviceLock("gpu 0", "test_it", tmp_path)
    held.acquire(on_wait=pytest.fail)
    held.release()


def test_who_has_just_measured_goes_behind_who_waits(tmp_path: Path) -> None:
    """One worker cannot take the device again and again while others wait for it."""
    first, second = (DeviceLock("gpu 0", name, tmp_path) for name in ("first", "second"))
    first.acquire()
    order: list[str] = []

    def wait() -> None:
        second.acquire()
        order.append("second")
        second.release()

    waiting = threading.Thread(target=wait)
    waiting.start()
    while not list(tmp_path.glob("*.wait")):
        pass
    first.release()
    assert not first.try_acquire() or order == ["second"]
    first.acquire()
    order.append("first")
    first.release()
    waiting.join()
    assert order == ["second", "first"]
    assert not list(tmp_path.glob("*.wait"))


def test_a_place_in_the_queue_ends_with_its_process(tmp_path: Path) -> None:
    """The ticket of a process that was killed while it waited holds nobody up."""
    (tmp_path / "gpu-0.0000000001.000000001.99.abcd.wait").touch()
    held = DeviceLock("gpu 0", "test_it", tmp_path)
    assert held.try_acquire()
    held.release()


def test_a_wait_has_a_limit(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    """It ends in one sentence: who holds the device, for how long, and what can be done."""
    with pytest.raises(DeviceBusyError) as caught:
        DeviceLock("gpu 0", "test_it", tmp_path, limit_s=0).acquire()
    assert re.fullmatch(
        rf"cannot measure on the device 'gpu 0': test_other \(process {holder.pid}\) has been using it for "
        r"\d+ s; end it if it hangs, or wait longer than 0 s with llmspeed_lock_timeout_s",
        str(caught.value),
    )
    assert not list(tmp_path.glob("*.wait"))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc")
def test_a_stopped_holder_is_not_waited_for(
    tmp_path: Path, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run under Ctrl-Z measures nothing: the error says how to let it go on."""
    monkeypatch.setattr(lock, "STOPPED_S", 0)
    holder.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, holder.pid, os.WSTOPPED | os.WNOWAIT)
    with pytest.raises(DeviceBusyError, match=f"is stopped; resume it \\(kill -CONT {holder.pid}\\)"):
        DeviceLock("gpu 0", "test_it", tmp_path).acquire()


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    """Nothing is written through it."""
    target = tmp_path / "precious"
    target.write_text("mine")
    (tmp_path / "gpu-0.lock").symlink_to(target)
    with pytest.raises(OSError, match="symbolic link"):
        DeviceLock("gpu 0", "test_it", tmp_path).acquire()
    assert target.read_text() == "mine"


def test_a_folder_that_others_can_write_is_no_place_for_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is a link to one, or a folder of another user."""
    open_to_all, own = tmp_path / "open", tmp_path / "own"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    own.mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(own)
    for name in ("open", "link"):
        monkeypatch.setenv(lock.FOLDER_VARIABLE, str(tmp_path / name))
        with pytest.raises(DeviceBusyError, match=f"{name} cannot be written, or other users"):
            lock.own_folder()
    monkeypatch.setenv(lock.FOLDER_VARIABLE, str(own))
    assert lock.own_folder() == own


def test_a_folder_is_made_for_this_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the umask."""
    monkeypatch.setenv(lock.FOLDER_VARIABLE, str(tmp_path / "new"))
    assert lock.own_folder().stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="there are no users")
def test_other_temporary_folders_meet_in_one_lock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """TMPDIR does not tell runs apart that share a device."""
    monkeypatch.delenv(lock.FOLDER_VARIABLE, raising=False)
    usual = lock.own_folder()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert lock.own_folder() == usual


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:8000/v1",
        "http://127.0.0.1:8000",
        "http://[::1]:8000/v1?x=1",
        "http://me:pw@LOCALHOST:8000",
    ],
)
def test_one_server_on_this_machine_is_one_device(url: str) -> None:
    """However its address is written."""
    assert server_of(url) == "server localhost:8000"
    assert server_of("https://api.example.com/v1") == "server api.example.com:443"


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
