"""The marks on an item, layer by layer: of a class one layer for each class of its MRO."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from pytest_llmspeed.plugin.state import NAMES

Layer = list[pytest.Mark]


@dataclass(frozen=True, slots=True)
class Layers:
    """The marks on an item, the closest layer first, each layer in reading order.

    `own` are those of the item itself; `inherited` stand at its class, the bases of that, its module,
    and so on.
    """

    own: Sequence[Layer]
    inherited: Sequence[Layer]

    @property
    def all(self) -> Sequence[Layer]:
        """All layers, the closest first."""
        return [*self.own, *self.inherited]

    @property
    def ours(self) -> list[pytest.Mark]:
        """The marks of this plugin, the closest first."""
        return [mark for layer in self.all for mark in layer if mark.name in NAMES]


def layers_of(item: pytest.Item, at_setup: Sequence[pytest.Mark] | None = None) -> Layers:
    """Return the marks on an item; `at_setup` are those of its own when it was set up, None before.

    What was added since then goes before all else; then come its parameter set and its function. What
    code added to a class or module goes before what is written there.
    """
    inherited: list[Layer] = []
    for node in reversed(item.listchain()[:-1]):
        written = list(_written(node))
        known = [mark for layer in written for mark in layer]
        inherited += [_without(node.own_markers, known), *written]
    return Layers(list(_of_item(item, at_setup)), inherited)


def are_same(some: Sequence[pytest.Mark], others: Sequence[pytest.Mark]) -> bool:
    """Return True if both hold the same marks; their arguments are not compared."""
    return len(some) == len(others) and all(one is other for one, other in zip(some, others, strict=True))


def _of_item(item: pytest.Item, at_setup: Sequence[pytest.Mark] | None) -> Iterator[Layer]:
    callspec = getattr(item, "callspec", None)
    of_parameters = list(callspec.marks) if callspec is not None else []
    added = [] if at_setup is None else _without(item.own_markers, at_setup)
    written = _without(item.own_markers, [*of_parameters, *added])
    yield added
    yield of_parameters
    # decorators are applied from the bottom up
    yield written[::-1] if isinstance(item, pytest.Function) else written


def _written(node: Any) -> Iterator[Layer]:
    """Yield what is written at a class and at each of its bases, or at a module."""
    if isinstance(node, pytest.Class):
        for kind in node.obj.__mro__:
            yield _pytestmark(kind.__dict__.get("pytestmark"))
    elif isinstance(node, pytest.Module):
        yield _pytestmark(getattr(node.obj, "pytestmark", None))


def _pytestmark(written: Any) -> Layer:
    """The marks of a `pytestmark`, which is one mark or several; those of decorators stand upside down."""
    marks = list(written) if isinstance(written, list | tuple) else [] if written is None else [written]
    # a list that somebody wrote holds MarkDecorators, decorators leave Marks
    is_listed = any(isinstance(mark, pytest.MarkDecorator) for mark in marks)
    found = [mark.mark if isinstance(mark, pytest.MarkDecorator) else mark for mark in marks]
    return found if is_listed else found[::-1]


def _without(marks: Sequence[pytest.Mark], others: Sequence[pytest.Mark]) -> Layer:
    known = {id(mark) for mark in others}
    return [mark for mark in marks if id(mark) not in known]
