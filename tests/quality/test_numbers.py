"""The number that an answer ends on, as people and models write it."""

from __future__ import annotations

import pytest

from pytest_llmspeed.quality.contracts import Contract, Number, not_kept
from pytest_llmspeed.quality.numbers import last_number


@pytest.mark.parametrize(
    ("answer", "number"),
    [
        ("2 + 3 = 5.", 5),
        ("It holds 1,234.5 litres", 1234.5),
        ("then -2e3", -2000),
        ("It is \u22123", -3),
        ("about .5", 0.5),
        ("\\boxed{42}", 42),
        ("**5**", 5),
        ("\u7b54\u6848\u662f5", 5),
        ("\u0665", 5),
        # ranges, dates and times end on their last number, whose sign is not a minus
        ("5-10", 10),
        ("between 3\u20135", 5),
        ("2026-11-30", 30),
        ("11/30/2026", 2026),
        ("10:30", 30),
        # fractions
        ("3/4", 0.75),
        ("1 1/2", 1.5),
        ("\u00bd", 0.5),
        ("1\u00bd cups", 1.5),
        (r"-\frac{1}{2}", -0.5),
        # units
        ("area: 5 m2", 5),
        ("area: 5 m^2", 5),
        ("9.8 m/s\u00b2", 9.8),
        ("16GB", 16),
        ("$5", 5),
        ("EUR5", 5),
        ("50%", 50),
        # powers
        ("5 \u00d7 10^3", 5000),
        ("5\u00d710\u00b3", 5000),
        ("5 \u00b7 10^-3", 0.005),
        ("10\u00b2", 100),
        # other ways to group
        ("1'000", 1000),
        ("1\u202f000", 1000),
        ("100 000", 100_000),
        ("\u20ac1.234.567,89", 1_234_567.89),
    ],
)
def test_a_number_is_read_as_people_write_it(answer: str, number: float) -> None:
    """Ranges, fractions, units, powers, groups."""
    assert last_number(answer)[0] == pytest.approx(number)


@pytest.mark.parametrize(
    ("answer", "numbers"),
    [
        ("10,5", (10.5, 5)),
        ("3/4", (0.75, 4)),
        ("50%", (50, 0.5)),
        ("1,870", (1870, 1.87)),
        ("5k", (5, 5000)),
        ("2 million", (2, 2e6)),
    ],
)
def test_an_ambiguous_spelling_keeps_either_number(answer: str, numbers: tuple[float, ...]) -> None:
    """A right answer in another notation is not called broken."""
    for number in numbers:
        assert not_kept(Contract(number=Number(number)), answer, "stop") == ()
    assert not_kept(Contract(number=Number(7)), answer, "stop")


@pytest.mark.parametrize("answer", ["", "five", "m\u00b2", "1e400", "5/", "9" * 10_000])
def test_what_is_not_a_usable_number(answer: str) -> None:
    """Nothing is raised, and nothing infinite comes back."""
    assert all(abs(number) < 1e300 for number in last_number(answer))


@pytest.mark.parametrize("character", ["a", "5", " ", ".", "-", "/", "5 "])
def test_a_long_run_of_one_character_is_read_at_once(character: str) -> None:
    """A hostile answer must not take quadratic time: this would take minutes."""
    last_number(character * 200_000)
