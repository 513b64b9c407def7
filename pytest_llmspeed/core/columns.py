"""The requests of a test as columns: what the store keeps, a tenth of the size of one row a request.

    {"count": 10, "same": {"label": null, …}, "each": {"ttft_ms": [101.2, …], …}}

`same` holds what all requests have in common, `each` one list a field. Reports have rows; both
shapes are read by `column`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def column(requests: Rows | Columns, name: str) -> Sequence[Any]:
    """Return a field of all requests, None where it is missing."""
    if not isinstance(requests, Mapping):
        return [row.get(name) for row in requests]
    values: Sequence[Any] | None = requests["each"].get(name)
    return [requests["same"].get(name)] * int(requests["count"]) if values is None else values
