"""A pytester project on the scripted engine, and what tests say about its output."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

SCRIPTED_ENGINE = Path(__file__).parent / "scripted_engine.py"
CONFTEST = """
import os

def pytest_llmspeed_backends():
    return {
        "scripted": "scripted_engine:ScriptedEngine",
        "scripted2": "scripted_engine:SecondScriptedEngine",
        "scoring": "scripted_engine:ScoringEngine",
        "crowd": "scripted_engine:CrowdEngine",
        "broken": "scripted_engine:BrokenEngine",
        "interrupted": "scripted_engine:InterruptedEngine",
    }
"""
RERUNS = ("-p", "rerunfailures")
"""Loads the plugin for re-runs, which leaves a socket and a thread behind in each run that has it."""
INI = """
[pytest]
pythonpath = .
llmspeed_backend = scripted
addopts = -p no:randomly -p no:rerunfailures
asyncio_default_fixture_loop_scope = function
"""


class Project:
    """A pytest project of its own, run in this process, with the scripted engine at hand."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pytester, self._monkeypatch = pytester, monkeypatch
        shutil.copy(SCRIPTED_ENGINE, pytester.path / "scripted_engine.py")
        pytester.makeconftest(CONFTEST)
        pytester.makefile(".ini", pytest=INI)

    @property
    def path(self) -> Path:
        return self.pytester.path

    def write(self, tests: str, conftest: str = "") -> None:
        """Write the test module, and more of the conftest."""
        self._forget_compiled()
        self.pytester.makepyfile(test_it=tests)
        if conftest:
            self.pytester.makeconftest(CONFTEST + conftest)

    def _forget_compiled(self) -> None:
        """A file of the same size that was written in the same second would pass for what was compiled."""
        shutil.rmtree(self.path / "__pycache__", ignore_errors=True)

    def script(self, **settings: object) -> None:
        """Change what the engine does in the runs that follow: factor=1.6, seed=3, …"""
        for name, value in settings.items():
            self._monkeypatch.setenv(f"SCRIPTED_{name.upper()}", str(value))

    def run(self, *arguments: str) -> pytest.RunResult:
        """Run pytest with a JSON report."""
        self._forget_compiled()
        return self.pytester.runpytest_inprocess("--llmspeed-json=report.json", *arguments)

    def record(self, sessions: int, *arguments: str) -> None:
        """Store some sessions, each with noise of its own."""
        for seed in range(sessions):
            self.script(seed=100 + seed)
            self.run("--llmspeed-update-baseline", *arguments)

    @property
    def report(self) -> dict[str, Any]:
        """The JSON report of the last run."""
        report: dict[str, Any] = json.loads((self.path / "report.json").read_text())
        return report

    def test(self, name: str = "") -> dict[str, Any]:
        """The report on the one test whose node id ends so."""
        (found,) = (test for test in self.report["tests"] if test["nodeid"].endswith(name))
        return found

    def verdicts(self, name: str = "") -> dict[str, str]:
        """Metric → verdict of one test."""
        return {found["metric"]: found["verdict"] for found in self.test(name)["comparisons"]}

    @property
    def run_files(self) -> list[Path]:
        """What is in the store."""
        return sorted((self.path / ".llmspeed").rglob("*.json"))

    @property
    def engine_log(self) -> list[str]:
        """Starts and stops of the scripted engines, in order."""
        log = self.path / "engine.log"
        return log.read_text().splitlines() if log.exists() else []


def shows(result: pytest.RunResult, *texts: str) -> None:
    """Assert that each text stands in the output of a run."""
    output = "\n".join([*result.outlines, *result.errlines])
    for text in texts:
        assert text in output, output
