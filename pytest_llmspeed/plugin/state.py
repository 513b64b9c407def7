"""Which tests are ours, the state of each, and the one run that they belong to. Imports nothing heavy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_llmspeed.engines.base import Engine
    from pytest_llmspeed.metrics.budgets import Budget, BudgetCheck
    from pytest_llmspeed.plugin.test_plan import EngineChoice, TestPlan
    from pytest_llmspeed.quality.probe import Probe
    from pytest_llmspeed.recording.recorder import Recorder
    from pytest_llmspeed.records.record import TestRecord
    from pytest_llmspeed.run.run import Run

BACKEND, BUDGET, QUALITY = "llm_backend", "llm_budget", "llm_quality"
NAMES = (BACKEND, BUDGET, QUALITY)
"""Our marks; the first is also a fixture."""
CLIENT, OPTIONS = "llm_client", "llm_backend_options"
PLUGIN = "llmspeed-run"
LLM = "llm"
"""The mark that tests which use the plugin get by themselves."""
DISABLED = "LLM tests are disabled (--llmspeed-disable)"
FIXTURES = "pytest_llmspeed.plugin.fixtures"


class TestState:
    """What one test has come to: made again by each set-up, so that a re-run starts empty.

    `marks` are those that its plan was made from, `at_setup` all of its own when it was set up, `leased`
    is the choice that its engine was leased for, `place` that engine's backend and environment.
    """

    __test__ = False

    def __init__(
        self, plan: TestPlan, marks: Sequence[pytest.Mark], at_setup: Sequence[pytest.Mark] | None = None
    ) -> None:
        self.plan = plan
        self.marks = marks
        self.at_setup = at_setup
        self.leased: EngineChoice | None = None
        self.place: tuple[str, str] | None = None
        self.recorder: Recorder | None = None
        self.probe: Probe | None = None
        self.engine: Engine | None = None
        self.record: TestRecord | None = None
        self.waited_s = 0.0

    @property
    def budgets(self) -> Sequence[Budget]:
        """The budgets that hold on the leased engine: which one may be known at run time only."""
        return self._plan_here.budgets

    @property
    def unchecked(self) -> Sequence[BudgetCheck]:
        """The budgets that are left out on the leased engine, or in this run."""
        return self._plan_here.unchecked

    @property
    def _plan_here(self) -> TestPlan:
        return self.plan if self.place is None else self.plan.on(*self.place)

    @property
    def must_measure(self) -> bool:
        """True if the test fails where it has budgets and measured nothing."""
        return self.plan.must_measure or self.recorder is not None


STATE = pytest.StashKey[TestState]()
TIMER = pytest.StashKey[object]()
"""The settings with which pytest-timeout started the timer of a test."""


def uses_plugin(item: pytest.Item) -> bool:
    """True if the test asks for our fixtures, or has one of our marks of its own.

    A mark that it inherits from its class or module is a default for tests that ask for a client, if
    only for one of the project's own that has taken the name.
    """
    if is_marked(item) or takes(item, CLIENT) or takes(item, BACKEND):
        return True
    asks = CLIENT in getattr(item, "fixturenames", ())
    return asks and any(any(item.iter_markers(name)) for name in (BUDGET, QUALITY))


def is_marked(item: pytest.Item) -> bool:
    """True if one of our marks stands on the test itself."""
    return any(mark.name in NAMES for mark in item.own_markers)


def takes(item: pytest.Item, fixture: str) -> bool:
    """True if the test asks for a fixture of ours, not for one of the project's that has its name."""
    return fixture in getattr(item, "fixturenames", ()) and overriding(item, fixture) is None


def overriding(item: pytest.Item, fixture: str) -> Any | None:
    """Return the fixture function that stands before ours and does not ask for it, None if there is none."""
    found = _definitions(item).get(fixture, ())
    for definition in reversed(found):
        if getattr(definition.func, "__module__", None) == FIXTURES:
            return None
        if fixture not in definition.argnames:
            return definition.func
    return found[-1].func if found else None


def fixtures_of(item: pytest.Item) -> list[pytest.FixtureDef[Any]]:
    """Return the definitions of all fixtures that a test uses, as far as collection knows them."""
    return [each for found in _definitions(item).values() for each in found]


def _definitions(item: pytest.Item) -> Mapping[str, Sequence[pytest.FixtureDef[Any]]]:
    """The definitions of each fixture; pytest has no public way to them."""
    info = getattr(item, "_fixtureinfo", None)
    return {} if info is None else info.name2fixturedefs


def run_of(config: pytest.Config) -> Run:
    """Return the run of a pytest invocation, made when first needed."""
    run: Run = config.pluginmanager.get_plugin(PLUGIN).run  # type: ignore[union-attr]
    return run


def backends_of(item: pytest.Item) -> Mapping[str, str]:
    """Return the backends that a test may name: those of plugins and of the conftests that it is below."""
    found: Mapping[str, str] = item.config.pluginmanager.get_plugin(PLUGIN).backends_of(item)  # type: ignore[union-attr]
    return found


def state_or_none(item: pytest.Item) -> TestState | None:
    """Return the state of a test that is ours, None of any other."""
    return item.stash.get(STATE, None)


def is_worker(config: pytest.Config) -> bool:
    """True in a worker of pytest-xdist, which reports to a controller and writes nothing."""
    return hasattr(config, "workerinput")
