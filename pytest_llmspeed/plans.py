"""What a test is measured on and against, once its marks and the settings are read."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pytest_llmspeed.app.settings import BackendMark
from pytest_llmspeed.core.budgets import Budget
from pytest_llmspeed.core.quality.answers import PlannedCheck
from pytest_llmspeed.edges.engines.base import EngineSpec


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several backends that a test runs on: its mark, or the option's name, or both; and its place.

    `same_engine` is True if an earlier one has the same backend, model and precision: then only
    the engine's options tell the two apart, and the id is part of the test's identity.
    """

    mark: BackendMark | None = None
    backend: str | None = None
    id: str = ""
    place: int = 0
    same_engine: bool = False


@dataclass(frozen=True, slots=True)
class TestPlan:
    """What a test is measured on and against.

    `problems` are sentences for the user; `comparisons` is how many metrics of it are compared;
    `quality` are the checks of its answers that follow its body. `must_measure` is False if its
    budgets are inherited and it asks for no client: they are defaults of the tests beside it.
    """

    __test__ = False

    spec: EngineSpec | None
    choice: Choice
    budgets: tuple[Budget, ...]
    problems: tuple[str, ...]
    comparisons: int = 0
    quality: tuple[PlannedCheck, ...] = ()
    must_measure: bool = True

    def on(self, backend: str) -> TestPlan:
        """The plan with the budgets that hold on a backend: which one may be known at run time only."""
        return replace(self, budgets=tuple(b for b in self.budgets if b.backend in (None, backend)))
