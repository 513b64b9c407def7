"""What is read of the machine: its GPUs, where there are any."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_llmspeed.edges import machine

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver's tool that lists two GPUs."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA H200, 143771'\necho 'NVIDIA H200, 143771'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.usefixtures("nvidia_smi")
def test_gpus_are_named_with_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as are used; none where none may be used."""
    assert machine.gpus() == "NVIDIA H200 140GiB"
    assert machine.gpus(2) == "2x NVIDIA H200 140GiB"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert machine.gpus() is None


def test_a_machine_without_a_driver_has_no_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No tool, no GPU."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.gpus() is None
