"""A folder with reports and a store made by hand, and the command run in this process."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_llmspeed.cli.main import main
from pytest_llmspeed.records.record import RunRecord, run_to_builtins, run_to_stored


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the command, a project of its own whatever lies above it."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def write(folder: Path) -> Callable[..., Path]:
    """Write a run as a report, or anything as JSON, to a path below the folder."""

    def make(name: str, content: Any) -> Path:
        shown = run_to_builtins(content, text=True) if isinstance(content, RunRecord) else content
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(shown))
        return path

    return make


@pytest.fixture
def store(write: Callable[..., Path]) -> Callable[..., list[Path]]:
    """Write runs into the default store, a file each, as an update does."""

    def make(*runs: RunRecord) -> list[Path]:
        return [write(f".llmspeed/baselines/box/{run.run_id}.json", run_to_stored(run)) for run in runs]

    return make


class Said:
    """What a command said: its exit code, its two streams, and its JSON."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(self.out)
        return shown


@pytest.fixture
def llmspeed(folder: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Run the command in this process."""

    def run(*arguments: str) -> Said:
        try:
            code = main(arguments)
        except SystemExit as left:
            code = int(left.code or 0)
        return Said(code, *capsys.readouterr())

    return run
