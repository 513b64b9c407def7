"""Requests as columns: what the store keeps, and reading it like rows."""

from __future__ import annotations

from pytest_llmspeed.core.columns import alike, columns, to_columns

ROWS = [
    {"label": None, "call": "measure", "ttft_ms": 1.5, "flags": []},
    {"label": None, "call": "measure", "ttft_ms": None, "flags": ["short"]},
]


COLUMNS = to_columns({name: [row[name] for row in ROWS] for name in ROWS[0]}, len(ROWS))


def test_what_all_requests_share_is_kept_once() -> None:
    """A common value stands once, a value that is None everywhere not at all."""
    assert COLUMNS == {
        "count": 2,
        "same": {"call": "measure"},
        "each": {"ttft_ms": [1.5, None], "flags": [[], ["short"]]},
    }


def test_a_field_reads_the_same_from_rows_and_columns() -> None:
    """Whatever the shape, a field is a list with one value a request, None where it is missing."""
    names = ("label", "call", "ttft_ms", "flags", "absent")
    assert columns(COLUMNS, names) == columns(ROWS, names)
    assert list(map(len, columns(ROWS, names).values())) == [2] * 5


def test_columns_know_what_is_alike() -> None:
    """Only what stands once; rows don't know."""
    assert alike(COLUMNS, ("label", "call"))
    assert not alike(COLUMNS, ("call", "flags"))
    assert not alike(ROWS, ("call",))


def test_no_requests_are_no_columns() -> None:
    """An empty measurement has empty fields."""
    assert columns(to_columns({"ttft_ms": []}, 0), ("ttft_ms",)) == {"ttft_ms": []}
