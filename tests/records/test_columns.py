"""Requests as columns: what the store keeps, and reading it like rows."""

from __future__ import annotations

from pytest_llmspeed.records.columns import columns, count_of, in_all, to_columns

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


def test_columns_know_what_all_requests_share() -> None:
    """Only what stands once, None among it; rows don't know."""
    assert in_all(COLUMNS, ("call", "label")) == ["measure", None]
    assert in_all(COLUMNS, ("call", "flags")) is None
    assert in_all(ROWS, ("call",)) is None
    assert in_all(to_columns({"call": []}, 0), ("call",)) is None


def test_requests_are_counted_in_both_shapes() -> None:
    """As many as there are rows."""
    assert count_of(COLUMNS) == count_of(ROWS) == 2


def test_no_requests_are_no_columns() -> None:
    """An empty measurement has empty fields."""
    assert columns(to_columns({"ttft_ms": []}, 0), ("ttft_ms",)) == {"ttft_ms": []}
