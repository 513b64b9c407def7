"""The requests of a test as columns: what the store keeps, a tenth of the size of one row a request.

    {"count": 10, "same": {"label": null, …}, "each": {"ttft_ms": [101.2, …], …}}

`same` holds what all requests have in common, `each` one list a field. Reports have rows; both
shapes are read by `columns`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]
Columns = Mapping[str, Any]


def to_columns(fields: Mapping[str, list[Any]], count: int) -> dict[str, Any]:
    """Return the fields of so many requests as columns; what is None in all of them is left out."""
    same: dict[str, Any] = {}
    each: dict[str, list[Any]] = {}
    for name, values in fields.items() if count else ():
        if values.count(values[0]) < count:
            each[name] = values
        elif values[0] is not None:
            same[name] = values[0]
    return {"count": count, "same": same, "each": each}


def columns(requests: Rows | Columns, names: Iterable[str]) -> dict[str, Sequence[Any]]:
    """Return some fields of all requests by their names, None where one is missing."""
    if not isinstance(requests, Mapping):
        return {name: [row.get(name) for row in requests] for name in names}
    same, each, count = requests["same"], requests["each"], count_of(requests)
    return {name: each[name] if name in each else [same.get(name)] * count for name in names}


def count_of(requests: Rows | Columns) -> int:
    """Return how many requests there are."""
    return int(requests["count"]) if isinstance(requests, Mapping) else len(requests)


def in_all(requests: Rows | Columns, names: Sequence[str]) -> list[Any] | None:
    """Return the values of fields that are known to be the same in all requests, None if they are not."""
    if not isinstance(requests, Mapping) or not requests["count"]:
        return None
    if not requests["each"].keys().isdisjoint(names):
        return None
    return [requests["same"].get(name) for name in names]
