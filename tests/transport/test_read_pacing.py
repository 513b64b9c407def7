"""How long what has come may wait: a tenth of the time between the pieces of an answer."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

import pytest

from pytest_llmspeed.transport.read_pacing import FEWEST, LEAST_S, MOST_S, RECENT, ReadPacing


def after(*answers: Iterable[float]) -> float:
    """The pacing after answers whose pieces came in these distances, in ms."""
    pacing = ReadPacing()
    for gaps_ms in answers:
        pacing.learn([stamp_ms / 1000 for stamp_ms in accumulate(gaps_ms, initial=100.0)])
    return pacing.gather_s


def test_it_follows_the_answers_between_its_bounds():
    """Nothing known, or a server too fast to wait for: the least."""
    assert after() == LEAST_S
    assert after([12.0] * 20) == pytest.approx(0.0012)
    assert after([100.0] * 20) == MOST_S
    assert after([2.0] * 20) == LEAST_S


def test_the_fastest_of_the_last_answers_counts():
    """Until it is long ago."""
    assert after([18.0] * 20, [12.0] * 20, [18.0] * 20) == pytest.approx(0.0012)
    assert after([12.0] * 20, *([[18.0] * 20] * RECENT)) == pytest.approx(0.0018)


def test_a_piece_right_behind_another_is_an_accident_several_are_not():
    """Of a server that sends three tokens at a time none may be read with the next three."""
    assert after([15.0] * 19 + [0.01]) == pytest.approx(0.0015)
    assert after([15.0, 0.01, 0.01] * 7) == LEAST_S


def test_nothing_is_learned_of_a_few_pieces():
    """A whole body, or an answer of one word, says nothing of the distance between tokens."""
    assert after([15.0] * (FEWEST - 2)) == LEAST_S
    assert after([15.0] * (FEWEST - 1)) == pytest.approx(0.0015)
