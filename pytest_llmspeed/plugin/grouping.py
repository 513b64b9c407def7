"""The order of tests in which engines start least often, and no shared fixture is set up twice for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pytest

from pytest_llmspeed.engines.base import EngineSpec
from pytest_llmspeed.plugin.state import fixtures_of

ORDERING_MARKS = ("order", "dependency", "run", "incremental")
"""Marks by which other plugins, or a project's conftest, say in which order tests run."""
LEVELS = (
    ("session", True),
    ("package", False),
    ("package", True),
    ("module", False),
    ("module", True),
    ("class", False),
    ("class", True),
)
"""Scopes of fixtures, the widest first; True stands for one value of a parametrized fixture."""


@dataclass(frozen=True, slots=True)
class Needed:
    """The engine that a test needs, and the device on which it is alive alone."""

    device: str
    spec: EngineSpec


Need = Mapping[pytest.Item, Needed]


def grouped_by_engine(items: Sequence[pytest.Item], need: Need) -> list[pytest.Item]:
    """Return the tests in the order in which few engines start.

    `need` has the tests whose engine occupies a device. Tests that share a fixture of a class, a module or
    a package stay together; others, and those of an engine without rivals, keep their order.
    """
    specs: dict[str, set[EngineSpec]] = {}
    for needed in need.values():
        specs.setdefault(needed.device, set()).add(needed.spec)
    rivals = {item: needed for item, needed in need.items() if len(specs[needed.device]) > 1}
    if not rivals or any(item.get_closest_marker(name) for item in items for name in ORDERING_MARKS):
        return list(items)
    return _arranged(items, rivals, LEVELS, {})


def _arranged(
    items: Sequence[pytest.Item],
    need: Need,
    levels: Sequence[tuple[str, bool]],
    alive: dict[str, EngineSpec],
) -> list[pytest.Item]:
    """Order the units, then the smaller ones in each that the narrower scopes make; `alive` goes along.

    Of the units that need a contended engine the next is the first that the living engines fit best.
    """
    units = _units(items, levels)
    waiting: dict[frozenset[Needed], deque[int]] = {}
    for place, unit in enumerate(units):
        if needs := frozenset(need[item] for item in unit if item in need):
            waiting.setdefault(needs, deque()).append(place)
    arranged: list[pytest.Item] = []
    for unit in units:
        moved = unit
        if any(item in need for item in unit):
            moved = units[_next(waiting, alive)]
        if levels and len(moved) > 1:
            arranged += _arranged(moved, need, levels[1:], alive)
            continue
        arranged += moved
        alive.update({need[item].device: need[item].spec for item in moved if item in need})
    return arranged


def _next(waiting: dict[frozenset[Needed], deque[int]], alive: Mapping[str, EngineSpec]) -> int:
    """Take the place of the next unit: one that needs no start, else one that uses what is alive."""
    living = {Needed(device, spec) for device, spec in alive.items()}
    best = min(waiting, key=lambda needs: (not needs <= living, not needs & living, waiting[needs][0]))
    place = waiting[best].popleft()
    if not waiting[best]:
        del waiting[best]
    return place


def _units(items: Sequence[pytest.Item], levels: Sequence[tuple[str, bool]]) -> list[list[pytest.Item]]:
    """Cut the tests into the shortest stretches that separate no two that share a fixture of these scopes."""
    shared = [{key for level in levels for key in _shared(item, *level)} for item in items]
    last = {key: place for place, keys in enumerate(shared) for key in keys}
    units: list[list[pytest.Item]] = []
    end = -1
    for place, (item, keys) in enumerate(zip(items, shared, strict=True)):
        if place > end:
            units.append([])
        units[-1].append(item)
        end = max(end, place, *(last[key] for key in keys))
    return units


def _shared(item: pytest.Item, scope: str, by_value: bool) -> Iterator[Hashable]:
    """Yield what names the instances of a scope's fixtures that a test uses."""
    values: Mapping[str, int] = getattr(getattr(item, "callspec", None), "indices", {})
    for definition in fixtures_of(item):
        if definition.scope != scope:
            continue
        if not by_value:
            yield definition if scope == "package" else _node(item, scope)
        elif definition.argname in values:
            yield definition.argname, values[definition.argname]


def _node(item: pytest.Item, scope: str) -> pytest.Item | pytest.Collector:
    """The class or module of a test; a fixture of class scope belongs to the module outside of classes."""
    kinds: Iterable[type[pytest.Collector]] = (
        (pytest.Class, pytest.Module) if scope == "class" else (pytest.Module,)
    )
    return next((node for kind in kinds if (node := item.getparent(kind)) is not None), item)
