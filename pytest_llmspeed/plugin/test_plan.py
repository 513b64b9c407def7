"""What a test is measured on and against, once its marks and the settings are read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_llmspeed.engines.base import EngineSpec
from pytest_llmspeed.errors import SettingsError
from pytest_llmspeed.metrics.budgets import Budget, BudgetCheck, in_environment
from pytest_llmspeed.metrics.exchange import plain_text
from pytest_llmspeed.quality.answers import PlannedCheck
from pytest_llmspeed.settings import BackendMark

LONGEST_VALUE = 24
"""The longest value of an option that is shown in a test's id."""


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """One of several backends that a test runs on: its mark, or the option's name, or both; and its place.

    `same_engine` is True if only the engine's options tell it from another one: an earlier one, or any
    where the mark names it. Then the id is part of the test's identity.
    """

    mark: BackendMark | None = None
    backend: str | None = None
    id: str = ""
    place: int = 0
    same_engine: bool = False


def checked_id(name: object) -> str | None:
    """Return the `id=` of a mark; raises `SettingsError` for one that does not fit into a test's id."""
    if name is None:
        return None
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_.=+-]+", name):
        raise SettingsError(
            f"llm_backend(id={name!r}): an id may contain letters, digits and any of _ . = + -"
        )
    return plain_text(name)


def with_ids(choices: Mapping[EngineSpec, EngineChoice]) -> list[EngineChoice]:
    """Return the choices in their order, each with its id: the mark's, else the engine's.

    Of several configurations of one engine the further ones say the options that tell them apart.
    """
    named: dict[EngineSpec, EngineChoice] = {}
    for spec, choice in choices.items():
        before = [other for other in named if _engine(other) == _engine(spec)]
        siblings = [other for other in choices if _engine(other) == _engine(spec)]
        own = choice.mark.id if choice.mark else None
        wanted = own or _id_beside(spec, before[:1])
        taken = {other.id for other in named.values()}
        unique = wanted if wanted not in taken else f"{wanted}-{len(named) + 1}"
        same = bool(before) or (own is not None and len(siblings) > 1)
        named[spec] = replace(choice, id=unique, place=len(named), same_engine=same)
    return list(named.values())


def _engine(spec: EngineSpec) -> tuple[str, str | None, str]:
    return spec.backend, spec.model, spec.precision


def _id_beside(spec: EngineSpec, first: Sequence[EngineSpec]) -> str:
    """The engine's id, with the options that the first configuration of that engine has not, or not so."""
    if not first:
        return spec.id
    before = first[0].options
    names = [name for name in {**before, **spec.options} if before.get(name) != spec.options.get(name)]
    return "-".join([spec.id, *(_option(name, spec.options.get(name)) for name in sorted(names))])


def _option(name: str, value: object) -> str:
    """An option as a part of a test's id; of a long or structured value the name has to do."""
    if not isinstance(value, str | int | float | None) or len(str(value)) > LONGEST_VALUE:
        return name
    return re.sub(r"[^A-Za-z0-9_.=+-]+", "-", f"{name}={value}")


@dataclass(frozen=True, slots=True)
class TestPlan:
    """What a test is measured on and against.

    `problems` are sentences for the user; `comparisons` is how many metrics of it are compared;
    `quality` are the checks of its answers that follow its body. `must_measure` is False if its
    budgets are inherited and it asks for no client: they are defaults of the tests beside it.
    """

    __test__ = False

    spec: EngineSpec | None
    choice: EngineChoice
    budgets: tuple[Budget, ...]
    problems: tuple[str, ...]
    comparisons: int = 0
    quality: tuple[PlannedCheck, ...] = ()
    must_measure: bool = True
    unchecked: tuple[BudgetCheck, ...] = ()
    """Budgets that this run does not check, each with the reason."""

    def on(self, backend: str, environment: str) -> TestPlan:
        """The plan with the budgets that hold on a backend in an environment, known at run time only."""
        fitting = [budget for budget in self.budgets if budget.backend in (None, backend)]
        holding, elsewhere = in_environment(fitting, environment)
        return replace(self, budgets=tuple(holding), unchecked=(*self.unchecked, *elsewhere))
