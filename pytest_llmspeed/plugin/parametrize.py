"""Running one test on several backends: the engine of each run, its id, and the names of tests."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_llmspeed.engines.base import EngineSpec
from pytest_llmspeed.errors import LLMSpeedError, SettingsError
from pytest_llmspeed.metrics.exchange import plain_text
from pytest_llmspeed.plugin.mark_layers import Layers, layers_of
from pytest_llmspeed.plugin.state import BACKEND, backends_of
from pytest_llmspeed.plugin.test_plan import EngineChoice, checked_id, with_ids
from pytest_llmspeed.records.record import EngineRun
from pytest_llmspeed.run.run import Run
from pytest_llmspeed.settings import BackendMark, spec_for

PARAMETER = "_llmspeed_backend"
"""The parameter that tells the runs of one test on several backends apart."""


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


def choice_of(item: pytest.Item, layers: Layers, run: Run) -> EngineChoice:
    """Return the engine that a collected test runs on; raises `SettingsError` if several remain."""
    callspec = getattr(item, "callspec", None)
    marks = _closest(layers.all, item.path.parent)
    if callspec is not None and PARAMETER in callspec.params:
        chosen: EngineChoice = callspec.params[PARAMETER]
        if chosen not in _distinct(marks, run):
            raise SettingsError(
                f"llm_backend({marks[0].name!r}) was added after the backends of this test were chosen; put "
                f"the mark on the test function, or pass --llmspeed-backend={marks[0].name}"
            )
        return chosen
    if len(marks) <= 1 and len(run.settings.backends) <= 1:
        return EngineChoice(marks[0] if marks else None)
    if len(choices := _distinct(marks, run)) == 1:
        return choices[0]
    first = choices[0].backend or (choices[0].mark and choices[0].mark.name)
    raise SettingsError(
        f"several backends are configured ({', '.join(choice.id for choice in choices)}), but only test "
        f"functions that request llm_client or llm_backend can run once per backend; keep one llm_backend "
        f"mark, or pass --llmspeed-backend={first}"
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
