"""What an answer keeps of its contract, and what is said of what it does not keep."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_llmspeed.quality.contracts import Contract, MultipleChoice, Number, loop_of, not_kept

SCHEMA = {"type": "object", "required": ["age"], "properties": {"age": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("contract", "answer"),
    [
        ({"equals": "Paris"}, " Paris\n"),
        ({"contains": ("paris", "France")}, "Paris, in FRANCE."),
        ({"regex": r"^\d+$"}, "42"),
        ({"equals": "caf\u00e9"}, "cafe\u0301"),
        ({"contains": ("caf\u00e9", "ABC")}, "a CAFE\u0301 called \uff21\uff22\uff23"),
        ({"regex": "^caf\u00e9$"}, "cafe\u0301"),
        ({"json_schema": SCHEMA}, '{"age": 4}'),
        ({"json_schema": SCHEMA}, 'Here it is:\n```json\n{"age": 4}\n```\nBye.'),
        ({"number": Number(5)}, "2 + 3 = 5."),
        ({"number": Number(1870)}, "It holds 1,870 pounds"),
        ({"number": Number(0.33, 0.01)}, "about 0.333"),
        ({"number": Number(-3)}, "It is −3"),
        ({"choice": MultipleChoice(("yes", "no"), "no")}, "No, nobody knows."),
        ({"choice": MultipleChoice(("北京", "上海"), "北京")}, "答案是北京。"),
        ({"finish_reason": "stop"}, "anything"),
        ({"min_chars": 2, "max_chars": 4}, "abc"),
        ({"no_repetition": True}, "No, no, no, no."),
    ],
)
def test_an_answer_that_keeps_its_contract(contract: dict[str, Any], answer: str) -> None:
    """Nothing is said of it."""
    assert not_kept(Contract(**contract), answer, "stop") == ()


@pytest.mark.parametrize(
    ("contract", "answer", "said"),
    [
        ({"equals": "Paris"}, "Paris.", "it is not 'Paris'"),
        ({"contains": ("Paris", "Seine")}, "Paris", "it does not contain 'Seine'"),
        ({"regex": r"^\d+$"}, "4 2", "nothing in it matches"),
        ({"json_schema": SCHEMA}, '{"age": "4"}', "its JSON does not fit the schema: '4' is not of type"),
        ({"json_schema": SCHEMA}, "age: 4", "it is not JSON"),
        ({"number": Number(5)}, "2 + 3 = 5, or 6", "its last number is 6, not 5"),
        ({"number": Number(5)}, "five", "there is no number in it"),
        (
            {"choice": MultipleChoice(("yes", "no"), "no")},
            "yes or no",
            "it names 'yes' and 'no', not 'no' alone",
        ),
        ({"choice": MultipleChoice(("yes", "no"), "no")}, "nobody", "it names none of the options"),
        ({"finish_reason": "length"}, "anything", "it ended with 'stop', not 'length'"),
        ({"min_chars": 5}, "abc", "it has 3 characters, fewer than 5"),
        ({"max_chars": 2}, "abc", "it has 3 characters, more than 2"),
        ({"no_repetition": True}, "Well: " + "the same again, " * 5, "without end"),
    ],
)
def test_an_answer_that_breaks_its_contract(contract: dict[str, Any], answer: str, said: str) -> None:
    """It is said what is missing."""
    (found,) = not_kept(Contract(**contract), answer, "stop")
    assert said in found


@pytest.mark.parametrize("cut", range(12))
def test_a_loop_is_seen_wherever_it_is_cut_off(cut: int) -> None:
    """An answer that repeats itself seldom ends with a whole repeat."""
    text = "Sure. " + "over and over " * 8
    assert loop_of(text[: len(text) - cut]) is not None


@pytest.mark.parametrize("text", ["", "a", "ha ha ha ha", "| a | b |\n| 1 | 2 |", "x" * 20, " " * 60])
def test_short_repeats_are_no_loop(text: str) -> None:
    """Laughter, tables and trailing space are not."""
    assert loop_of(text) is None


def test_long_answers_are_searched_for_loops_at_their_end_only() -> None:
    """The search takes quadratic time: a megabyte would take minutes."""
    assert loop_of("".join(map(str, range(200_000)))) is None
    assert loop_of("x" * 1_000_000) == "x"


def test_a_pattern_that_backtracks_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer does not keep it, and the pattern is named; Python's own re would hang."""
    monkeypatch.setattr("pytest_llmspeed.quality.patterns.SEARCH_LIMIT_S", 0.05)
    (found,) = not_kept(Contract(regex="^(a|aa)+$"), "a" * 60 + "!", "stop")
    assert found.startswith("'^(a|aa)+$' took more than 0.05 s on this answer")
