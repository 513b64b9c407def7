"""An item's marks → the engine and the budgets of its test, and what is wrong with them."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from pytest_llmspeed.engines.base import EngineSpec
from pytest_llmspeed.errors import LLMSpeedError, SettingsError
from pytest_llmspeed.judging.comparing import gated_metrics
from pytest_llmspeed.metrics.budgets import Budget, default_budgets, enough_rounds, merged
from pytest_llmspeed.metrics.exchange import plain_text
from pytest_llmspeed.metrics.reasons import Reason
from pytest_llmspeed.plugin.grouping import Needed
from pytest_llmspeed.plugin.mark_layers import Layers, are_same, layers_of
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
from pytest_llmspeed.plugin.test_plan import EngineChoice, TestPlan, checked_id, with_ids
from pytest_llmspeed.quality.answers import PlannedCheck
from pytest_llmspeed.records.record import EngineRun
from pytest_llmspeed.run.run import Run
from pytest_llmspeed.settings import BackendMark, spec_for

T = TypeVar("T")

PARAMETER = "_llmspeed_backend"
"""The parameter that tells the runs of one test on several backends apart."""


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
    choice = _caught(lambda: _choice(item, layers, run), problems) or EngineChoice()
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
    """What is wrong with a test that chooses its engine in another way than by marks and settings."""
    callspec = getattr(item, "callspec", None)
    values = callspec.params if callspec is not None else {}
    for fixture in (CLIENT, BACKEND, OPTIONS):
        if fixture in values and (takes(item, fixture) or takes(item, CLIENT)):
            yield (
                f"parametrize({fixture!r}, …) does not choose the engine; write one mark per engine, as in "
                f'@pytest.mark.llm_backend("transformers", model="…"): the test then runs once on each'
            )
            return
    other = overriding(item, BACKEND)
    if other and takes(item, CLIENT) and any(mark.name == BACKEND for mark in layers_of(item).ours):
        yield (
            f"llm_backend(…) has no effect on this test: the fixture llm_backend in {_file_of(other)} "
            f"stands before the plugin's; rename it, or make it request the original"
        )


def _caught(make: Callable[[], T], problems: list[str]) -> T | None:
    try:
        return make()
    except LLMSpeedError as error:
        problems.append(str(error))
        return None


def run_on_each_backend(metafunc: pytest.Metafunc, run: Run) -> None:
    """Multiply a test that has several backends: one run each, none where there is one.

    A parameter set with backend marks of its own has its own number of runs, which pytest's public
    interface cannot say; only then its list of calls is edited.
    """
    calls = metafunc._calls
    if not any(mark.name == BACKEND for call in calls for mark in call.marks):
        _multiply(metafunc, [], run)
        return
    multiplied = []
    for call in calls:
        metafunc._calls = [call]
        _multiply(metafunc, call.marks, run)
        multiplied += metafunc._calls
    metafunc._calls = multiplied


def _multiply(metafunc: pytest.Metafunc, own: Sequence[Any], run: Run) -> None:
    try:
        choices = _choices(metafunc.definition, own, run)
    except LLMSpeedError:
        return  # told once the test is known to be selected
    if len(choices) > 1:
        metafunc.fixturenames.append(PARAMETER)
        ids = [choice.id for choice in choices]
        metafunc.parametrize(PARAMETER, choices, indirect=True, ids=ids)


def _choices(definition: pytest.Item, own: Sequence[pytest.Mark], run: Run) -> list[EngineChoice]:
    """The backends that a test function runs on, in reading order, none twice.

    `own` are the marks of the parameter set that the run is for: they stand before all others.
    """
    backends_of(definition)  # the registry has to know them
    layers = [list(own), *layers_of(definition).all]
    return _distinct(_closest(layers, definition.path.parent), run)


def _distinct(marks: Sequence[BackendMark], run: Run) -> list[EngineChoice]:
    """The engines that marks and `--llmspeed-backend` come to; a named one by its own marks, if any."""
    named: list[str | None] = [*run.settings.backends] or [None]
    by_spec: dict[EngineSpec, EngineChoice] = {}
    for name in named:
        written = [mark for mark in marks if mark.name == name] or marks
        for mark in written or (None,):
            spec = spec_for(run.settings, run.registry, mark, name)
            by_spec.setdefault(spec, EngineChoice(mark, name))
    return with_ids(by_spec)


def _choice(item: pytest.Item, layers: Layers, run: Run) -> EngineChoice:
    callspec = getattr(item, "callspec", None)
    marks = _closest(layers.all, item.path.parent)
    if callspec is not None and PARAMETER in callspec.params:
        chosen: EngineChoice = callspec.params[PARAMETER]
        if chosen not in _distinct(marks, run):
            raise SettingsError(
                f"llm_backend({marks[0].name!r}) was added to a test that runs once on each of several "
                f"backends, when these were settled already: write it at the test, or run it with "
                f"--llmspeed-backend={marks[0].name}"
            )
        return chosen
    if len(marks) <= 1 and len(run.settings.backends) <= 1:
        return EngineChoice(marks[0] if marks else None)
    if len(choices := _distinct(marks, run)) == 1:
        return choices[0]
    first = choices[0].backend or (choices[0].mark and choices[0].mark.name)
    raise SettingsError(
        f"several backends apply ({', '.join(choice.id for choice in choices)}), but only test functions "
        f"with llm_client or llm_backend among their arguments can run once on each: keep one llm_backend "
        f"mark, or name one backend, as in --llmspeed-backend={first}"
    )


def _closest(layers: Sequence[Sequence[pytest.Mark]], folder: Path) -> list[BackendMark]:
    """The backend marks of the closest node that has any."""
    for layer in layers:
        if marks := [mark for mark in layer if mark.name == BACKEND]:
            return [_backend_mark(mark, folder) for mark in marks]
    return []


def _backend_mark(mark: pytest.Mark, folder: Path) -> BackendMark:
    options = dict(mark.kwargs)
    name = mark.args[0] if mark.args else options.pop("name", None)
    if len(mark.args) > 1 or not isinstance(name, str):
        raise SettingsError('llm_backend takes one name, as in llm_backend("transformers", model="…")')
    model, precision = options.pop("model", None), options.pop("precision", None)
    model = None if model is None else str(plain_text(model))
    own_id = checked_id(options.pop("id", None))
    return BackendMark(name, model, precision, options, folder, own_id)


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


def identity_of(item: pytest.Item) -> str:
    """Return what names a test across machines and workers: path, classes, function, parameters.

    The backend among the parameters is left out. The node id will not do: xdist changes it.
    """
    return _named(item, _parameter_id(item))


def _named(item: pytest.Item, parameters: str) -> str:
    classes = [node.name for node in item.listchain() if isinstance(node, pytest.Class)]
    name = getattr(item, "originalname", None) or item.name
    return "::".join([_path_of(item), *classes, name + (f"[{parameters}]" if parameters else "")])


def _path_of(item: pytest.Item) -> str:
    """The path of a test's file from the root folder, as in ../a/test_x.py: the same on each checkout."""
    root = item.config.rootpath
    if item.path.is_relative_to(root):
        return item.path.relative_to(root).as_posix()
    try:
        return Path(os.path.relpath(item.path, root)).as_posix()
    except ValueError:  # another drive of Windows
        return item.path.as_posix()


def shown_name_of(item: pytest.Item) -> str:
    """Return the name of a test that no other test of this process has: its node id below the root folder.

    Elsewhere pytest counts node ids from the argument that led to a file, so that two files share them.
    """
    file = next((node for node in item.listchain() if isinstance(node, pytest.File)), None)
    if file is None or item.path.is_relative_to(item.config.rootpath):
        return item.nodeid
    return _path_of(item) + item.nodeid.removeprefix(file.nodeid)


def side_of(item: pytest.Item) -> EngineRun | None:
    """Return which of several engines' runs of one test an item is, None where there is one engine."""
    callspec = getattr(item, "callspec", None)
    if callspec is None or PARAMETER not in callspec.params:
        return None
    choice: EngineChoice = callspec.params[PARAMETER]
    return EngineRun(_named(item, _without(choice, callspec.id)), choice.id, choice.place)


def _parameter_id(item: pytest.Item) -> str:
    callspec = getattr(item, "callspec", None)
    if callspec is None:
        return ""
    whole: str = callspec.id
    choice = callspec.params.get(PARAMETER)
    if choice is None or choice.same_engine:
        return whole
    return _without(choice, whole)


def _without(choice: EngineChoice, parameters: str) -> str:
    return parameters.removesuffix(choice.id).removesuffix("-")


def mistakes(items: Sequence[pytest.Item]) -> list[str]:
    """Return a line for each mistake in marks and settings, with the tests that have it.

    Those of tests that are skipped whatever happens do not count.
    """
    tests: dict[str, list[str]] = {}
    for item in items:
        for problem in () if item.get_closest_marker("skip") else state_of(item).plan.problems:
            tests.setdefault(problem, []).append(shown_name_of(item))
    return [f"  {_some_of(nodeids)}: {problem}" for problem, nodeids in tests.items()]


def _some_of(nodeids: Sequence[str]) -> str:
    more = len(nodeids) - 1
    return nodeids[0] + (f" and {more} more test{'s' if more > 1 else ''}" if more else "")


def late_problems(item: pytest.Item, state: TestState) -> Iterator[str]:
    """What marks ask of a test, now that its body has ended, that could not be done."""
    yield from state.plan.problems
    if state.leased is not None and state.plan.choice != state.leased:
        yield (
            "llm_backend was added after the engine of this test had started: add it at collection, "
            "or in a fixture that llm_backend comes after"
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
