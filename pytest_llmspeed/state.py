"""Which tests are ours, the state of each, and the one run that they belong to. Imports nothing heavy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_llmspeed.app.run import Run
    from pytest_llmspeed.core.record import TestRecord
    from pytest_llmspeed.edges.engines.base import Engine
    from pytest_llmspeed.measuring.probe import Probe
    from pytest_llmspeed.measuring.recorder import Recorder
    from pytest_llmspeed.plans import TestPlan

BACKEND, BUDGET, QUALITY = "llm_backend", "llm_budget", "llm_quality"
PLUGIN = "llmspeed-run"


class TestState:
    """What one test has come to: made anew by each set-up, so that a re-run starts empty."""

    __test__ = False

    def __init__(self, plan: TestPlan) -> None:
        self.plan = plan
        self.recorder: Recorder | None = None
        self.probe: Probe | None = None
        self.engine: Engine | None = None
        self.record: TestRecord | None = None


STATE = pytest.StashKey[TestState]()


def uses_plugin(item: pytest.Item) -> bool:
    """True if the test asks for our fixtures by name, or has one of our marks."""
    names = getattr(item, "fixturenames", ())
    return BACKEND in names or any(any(item.iter_markers(mark)) for mark in (BACKEND, BUDGET, QUALITY))


def run_of(config: pytest.Config) -> Run:
    """Return the run of a pytest invocation, made when first needed."""
    run: Run = config.pluginmanager.get_plugin(PLUGIN).run  # type: ignore[union-attr]
    return run


def state_or_none(item: pytest.Item) -> TestState | None:
    """Return the state of a test that is ours, None of any other."""
    return item.stash.get(STATE, None)


def is_worker(config: pytest.Config) -> bool:
    """True in a worker of pytest-xdist, which reports to a controller and writes nothing."""
    return hasattr(config, "workerinput")
