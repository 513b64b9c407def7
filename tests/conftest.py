"""What all tests share: pytester projects on a scripted engine, whose clock is its script."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable

import pytest
from _pytest import pytester as pytester_module
from helpers.project import Project

from pytest_llmspeed.system import cpu
from pytest_llmspeed.system.lock import FOLDER_VARIABLE
from pytest_llmspeed.system.machine import JOB_IDS

pytest_plugins = ["pytester", "helpers.loops", "helpers.records", "helpers.samples"]
collect_ignore = ["engine_contract"]  # run by make test-engines, in environments that hold an engine
pytest.register_assert_rewrite("helpers.wire_cases")


class SnapshotThatKeepsLibraries(pytester_module.SysModulesSnapshot):
    """What pytester restores after a run in this process, but for installed libraries.

    They stay: loading torch takes seconds, and it cannot be loaded a second time by one process. So a test
    that needs none of them starts at once.
    """

    def __init__(self, preserve: Callable[[str], bool] | None = None) -> None:
        del preserve
        super().__init__(preserve=_is_installed)


def _is_installed(name: str) -> bool:
    spec = vars(sys.modules[name]).get("__spec__")
    origin = getattr(spec, "origin", None) or ""
    return origin in ("built-in", "frozen") or origin.startswith((sys.prefix, sys.base_prefix, *INSTALLED))


if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # as a shell leaves it to what it starts in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

INSTALLED = tuple(path for path in sys.path if path.endswith("site-packages"))
pytester_module.SysModulesSnapshot = SnapshotThatKeepsLibraries  # type: ignore[misc]


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    for known in JOB_IDS:
        monkeypatch.delenv(known.variable, raising=False)
    for variable in ("CI", "BUILD_NUMBER", "GITHUB_STEP_SUMMARY"):  # pytest, and the plugin, print more there
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("COLUMNS", "80")  # whatever terminal the tests run on
    monkeypatch.setenv(FOLDER_VARIABLE, str(pytester.mkdir("locks")))  # nobody else to wait for
    monkeypatch.setattr(cpu, "read", lambda _: None)  # the machine that runs these tests may be busy
    gc.collect()
    gc.freeze()  # each start of an engine looks for garbage: not again among all that was imported
    return Project(pytester, monkeypatch)
