"""What tests of one client share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_llmspeed.system.event_loop import LoopThread


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopThread]:
    """The loop of a client, in a folder of its own."""
    monkeypatch.chdir(tmp_path)  # the scripted engines keep a log
    loop = LoopThread()
    yield loop
    loop.close()
