"""An item's marks → the plan of its test, and what is wrong with them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pytest

from pytest_llmspeed.errors import LLMSpeedError, SettingsError
from pytest_llmspeed.judging.comparing import gated_metrics
from pytest_llmspeed.metrics.budgets import Budget, default_budgets, enough_rounds, merged
from pytest_llmspeed.metrics.reasons import Reason
from pytest_llmspeed.plugin.grouping import Needed
from pytest_llmspeed.plugin.mark_layers import Layers, are_same, layers_of
from pytest_llmspeed.plugin.parametrize import choice_of, shown_name_of
from pytest_llmspeed.plugin.state import (
    BACKEND,
    BUDGET,
    CLIENT,
    OPTIONS,
    QUALITY,
    STATE,
    TestState,
    backends_of,
    overriding,
    run_of,
    takes,
)
from pytest_llmspeed.plugin.test_plan import EngineChoice, TestPlan
from pytest_llmspeed.quality.answers import PlannedCheck
from pytest_llmspeed.run.run import Run
from pytest_llmspeed.settings import spec_for

T = TypeVar("T")


def state_of(item: pytest.Item) -> TestState:
    """Return the state of a test, made here when it is collected, or asks for a fixture at run time.

    Its plan is made again if code has added marks since.
    """
    state = item.stash.get(STATE, None)
    layers = layers_of(item, state.at_setup if state else None)
    if state is None:
        state = item.stash[STATE] = TestState(plan_for(item, run_of(item.config), layers), layers.ours)
    elif not are_same(state.marks, layers.ours):
        state.plan, state.marks = plan_for(item, run_of(item.config), layers), layers.ours
    return state


def plan_for(item: pytest.Item, run: Run, layers: Layers) -> TestPlan:
    """Return the plan of a test; never raises, mistakes are its `problems`."""
    problems = [*run.store_problems, *_about_parameters(item)]
    visible = backends_of(item)
    choice = _caught(lambda: choice_of(item, layers, run), problems) or EngineChoice()
    budgets = _caught(lambda: _budgets(layers.all, run), problems) or ()
    quality = _caught(lambda: _quality(item, layers, run), problems) or ()
    needs_engine = takes(item, BACKEND) or choice.mark is not None
    for name in (budget.backend for budget in budgets if budget.backend):
        problems += [
            f"llm_budget(backend={name!r}): {p}" for p in run.registry.visible_problems(name, visible)
        ]
    spec = None
    if needs_engine and not problems:
        spec = _caught(lambda: spec_for(run.settings, run.registry, choice.mark, choice.backend), problems)
    if spec is not None:
        invisible = list(run.registry.visible_problems(spec.backend, visible))
        wrong = invisible or list(run.registry.problems(spec))
        is_complete = takes(item, OPTIONS)  # a project's own may still name a model or an address
        problems += wrong or (run.registry.unstartable(spec) if is_complete else [])
    kept = [b for b in budgets if spec is None or b.backend in (None, spec.backend)]
    kept, unchecked = enough_rounds(kept, run.settings.rounds) if run.settings.rounds else (kept, [])
    return TestPlan(
        spec,
        choice,
        tuple(kept),
        tuple(problems),
        comparisons=len(gated_metrics(kept)),
        quality=quality,
        unchecked=tuple(unchecked),
        must_measure=_asks_for_client(item) or any(mark.name == BUDGET for own in layers.own for mark in own),
    )


def _asks_for_client(item: pytest.Item) -> bool:
    return CLIENT in getattr(item, "fixturenames", ())


def _about_parameters(item: pytest.Item) -> Iterator[str]:
    """Yield what is wrong with a test that chooses its engine in another way than by marks and settings."""
    callspec = getattr(item, "callspec", None)
    values = callspec.params if callspec is not None else {}
    for fixture in (CLIENT, BACKEND, OPTIONS):
        if fixture in values and (takes(item, fixture) or takes(item, CLIENT)):
            yield (
                f"parametrize({fixture!r}, …) does not choose the engine; add one mark per engine, as in "
                f'@pytest.mark.llm_backend("transformers", model="…"), and the test runs once per engine'
            )
            return
    other = overriding(item, BACKEND)
    if other and takes(item, CLIENT) and any(mark.name == BACKEND for mark in layers_of(item).ours):
        yield (
            f"llm_backend(…) has no effect on this test: the fixture llm_backend in {_file_of(other)} "
            f"overrides the plugin's; rename it, or make it request the original"
        )


def _caught(make: Callable[[], T], problems: list[str]) -> T | None:
    try:
        return make()
    except LLMSpeedError as error:
        problems.append(str(error))
        return None


def _budgets(layers: Sequence[Sequence[pytest.Mark]], run: Run) -> tuple[Budget, ...]:
    """The budgets of all layers and of the settings, the closest last."""
    ours = [[mark for mark in layer if mark.name == BUDGET] for layer in reversed(layers)]
    for mark in (mark for layer in ours for mark in layer if mark.args):
        raise SettingsError(f"llm_budget({mark.args[0]!r}): pass limits as keywords, as in ttft_ms=300")
    defaults = default_budgets(run.settings.ini.get("budget") or ())
    return merged([[mark.kwargs for mark in layer] for layer in ours], defaults)


def _quality(item: pytest.Item, layers: Layers, run: Run) -> tuple[PlannedCheck, ...]:
    """The checks that the closest node with quality marks asks for, one for each prompt file.

    Inherited ones are for tests that ask for a client.
    """
    asked = _asks_for_client(item)
    considered = layers.all if asked else layers.own
    marks = next((found for layer in considered if (found := [m for m in layer if m.name == QUALITY])), [])
    if marks and not asked:
        raise SettingsError(
            "llm_quality sends its prompts through llm_client: add llm_client to the test's arguments"
        )
    folder = item.path.parent
    return tuple(
        run.quality_sets.plan(prompts, folder, mark.kwargs)
        for mark in marks
        for prompts in mark.args or (None,)
    )


def needed_engines(items: Sequence[pytest.Item], run: Run) -> dict[pytest.Item, Needed]:
    """Return the engines of the tests that have one which occupies a device."""
    specs = {item: plan.spec for item in items if not (plan := state_of(item).plan).problems}
    devices = {spec: run.registry.device(spec) for spec in specs.values() if spec is not None}
    return {
        item: Needed(device, spec)
        for item, spec in specs.items()
        if spec is not None and (device := devices[spec]) is not None
    }


def mistakes(items: Sequence[pytest.Item]) -> list[str]:
    """Return a line for each mistake in marks and settings, with the tests that have it.

    Those of tests that are skipped, or may be, do not count: what is wrong with one that runs all the same
    fails its set-up.
    """
    tests: dict[str, list[str]] = {}
    for item in items:
        for problem in () if _may_be_skipped(item) else state_of(item).plan.problems:
            tests.setdefault(problem, []).append(shown_name_of(item))
    return [f"  {_some_of(nodeids)}: {problem}" for problem, nodeids in tests.items()]


def _may_be_skipped(item: pytest.Item) -> bool:
    """True for `skip`, and for `skipif` unless its condition is false (texts are not evaluated)."""
    conditions = (
        condition
        for mark in item.iter_markers("skipif")
        for condition in (*mark.args, mark.kwargs.get("condition"))
    )
    return item.get_closest_marker("skip") is not None or any(conditions)


def _some_of(nodeids: Sequence[str]) -> str:
    more = len(nodeids) - 1
    return nodeids[0] + (f" and {more} more test{'s' if more > 1 else ''}" if more else "")


def late_problems(item: pytest.Item, state: TestState) -> Iterator[str]:
    """Yield what marks ask of a test, now that its body has ended, that could not be done."""
    yield from state.plan.problems
    if state.leased is not None and state.plan.choice != state.leased:
        yield (
            "llm_backend was added after the engine of this test had started; add it at collection, "
            "or in a fixture that is set up before llm_backend"
        )
    if state.plan.quality and state.probe is None:
        yield f"llm_quality was not checked: {Reason.NOTHING_MEASURED(overridden_in=overridden_in(item))}"


def overridden_in(item: pytest.Item) -> str | None:
    """Return the file of an `llm_client` fixture that stands before ours, None where ours is used."""
    other = overriding(item, CLIENT)
    return None if other is None else _file_of(other)


def _file_of(function: Any) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return "another place" if code is None else str(code.co_filename)
