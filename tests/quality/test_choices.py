"""Which option an answer names, where options are ordinary words too."""

from __future__ import annotations

import pytest

from pytest_llmspeed.quality.choices import named_options

LETTERS = ("A", "B", "C", "D")


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        ("A", ["A"]),
        ("a", ["A"]),
        ("(a)", ["A"]),
        ("**A**", ["A"]),
        ("The answer is a", ["A"]),
        ("A is correct", ["A"]),
        ("A fits best", ["A"]),
        ("option a is right", ["A"]),
        ("the answer is b", ["B"]),
        ("C or D", ["C", "D"]),
        ("A and B", ["A", "B"]),
        ("\uff21", ["A"]),
        # the article is not an option
        ("It is a dog.", []),
        ("It is a good idea: B.", ["B"]),
        ("A good answer is B.", ["B"]),
        ("B, because a dog barks", ["B"]),
        ("vitamin-C", []),
        ("d'accord", []),
    ],
)
def test_a_letter_is_told_from_a_word(answer: str, named: list[str]) -> None:
    """By punctuation, quotes, cues, or where nothing else is named."""
    assert named_options(answer, LETTERS) == named


@pytest.mark.parametrize(
    ("answer", "options", "named"),
    [
        ("There is no doubt: yes.", ("yes", "no"), ["yes"]),
        ("yes or no", ("yes", "no"), ["yes", "no"]),
        ("No, nobody knows.", ("yes", "no"), ["no"]),
        ("no\u00ebl", ("yes", "no"), []),
        ("I think it is II", ("I", "II", "III"), ["II"]),
        ("New York", ("New York", "York"), ["New York"]),
        ("not applicable", ("applicable", "not applicable"), ["not applicable"]),
        ("\u7b54\u6848\u662f\u5317\u4eac\u3002", ("\u5317\u4eac", "\u4e0a\u6d77"), ["\u5317\u4eac"]),
        ("cafe\u0301", ("caf\u00e9", "tea"), ["caf\u00e9"]),
    ],
)
def test_options_of_several_letters(answer: str, options: tuple[str, ...], named: list[str]) -> None:
    """Whole words, the longest of overlapping ones, in any script."""
    assert named_options(answer, options) == named
