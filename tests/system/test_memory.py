"""The memory of a process tree, read while real blocks of it are held."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_llmspeed.system import memory, processes
from pytest_llmspeed.system.memory import MemoryWatch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
BLOCK_MIB = 200
SLACK_MIB = 60


def block() -> bytearray:
    """So much memory, every page of it touched."""
    return bytearray(b"x") * (BLOCK_MIB * memory.MIB)


def test_what_an_engine_holds_is_told_less_what_was_there_before() -> None:
    """The growth since the watch was made, not the size of the process."""
    before = block()
    watch = MemoryWatch()
    held = block()
    watch.forget_peak()
    assert watch.peak_mib() == pytest.approx(BLOCK_MIB, abs=SLACK_MIB)
    assert len(before) == len(held)


def test_a_peak_that_is_over_counts_until_it_is_forgotten() -> None:
    """What was held for a moment is the peak; a new peak begins at what is held now."""
    watch = MemoryWatch()
    watch.forget_peak()
    del (_ := {"held": block()})["held"]
    assert watch.peak_mib() == pytest.approx(BLOCK_MIB, abs=SLACK_MIB)
    watch.forget_peak()
    assert watch.peak_mib() == pytest.approx(0, abs=SLACK_MIB)


def test_children_count() -> None:
    """The memory of a process that the engine started is the engine's."""
    watch = MemoryWatch()
    watch.forget_peak()
    code = f"held = bytearray(b'x') * {BLOCK_MIB * memory.MIB}; print(len(held), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert watch.peak_mib() == pytest.approx(BLOCK_MIB, abs=SLACK_MIB)
        child.communicate(b"\n")


def test_what_is_loaded_in_a_block_that_is_not_counted_is_left_out() -> None:
    """Neither what stays after the block counts, nor what only the block needed."""
    watch = MemoryWatch()
    watch.forget_peak()
    with watch.not_counted():
        kept = block()
        del (_ := {"for a moment": block()})["for a moment"]
    assert len(kept) == BLOCK_MIB * memory.MIB
    assert watch.peak_mib() == pytest.approx(0, abs=SLACK_MIB)


def test_the_peak_before_a_block_that_is_not_counted_still_counts() -> None:
    """Such a block hides nothing of what the engine held earlier in the test."""
    watch = MemoryWatch()
    watch.forget_peak()
    del (_ := {"held": block()})["held"]
    with watch.not_counted():
        pass
    assert watch.peak_mib() == pytest.approx(BLOCK_MIB, abs=SLACK_MIB)
    watch.forget_peak()
    assert watch.peak_mib() == pytest.approx(0, abs=SLACK_MIB)


def test_the_watch_on_a_server_counts_all_of_it_and_nothing_else() -> None:
    """What the server held when the watch was made counts; what this process holds does not."""
    code = f"held = bytearray(b'x') * {BLOCK_MIB * memory.MIB}; print(len(held), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        watch = MemoryWatch.of_process(child.pid)
        watch.forget_peak()
        ours = block()
        assert watch.peak_mib() == pytest.approx(BLOCK_MIB, abs=SLACK_MIB)
        child.communicate(b"\n")
    assert len(ours) == BLOCK_MIB * memory.MIB


def test_without_proc_nothing_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """None, not 0, where the system does not tell."""
    monkeypatch.setattr(processes, "PROC", str(tmp_path / "no-proc"))
    watch = MemoryWatch()
    watch.forget_peak()
    with watch.not_counted():
        assert watch.peak_mib() is None
    assert watch.peak_mib() is None


def test_a_peak_that_cannot_be_forgotten_is_not_known() -> None:
    """A peak from before the test would say the load's, so nothing is said."""
    assert MemoryWatch().peak_mib() is None


def test_without_a_gpu_there_is_no_memory_of_one() -> None:
    """None where torch uses no GPU."""
    assert MemoryWatch.gpu_peak_mib() is None
