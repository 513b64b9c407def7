"""Warm-up and rounds: the only loop of single requests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from pytest_llmspeed.core.errors import SettingsError
from pytest_llmspeed.measuring.recorder import Recorder

WARMUP = 2
LEAST_ROUNDS = 10


RETAKES = 2
"""Disturbed rounds are taken again until there are at most this many times as many rounds as asked."""


def rounds(recorder: Recorder, count: int, warmup: int, *, body: bool) -> Iterator[int]:
    """Yield -warmup … -1 for the warm-up rounds, then 0, 1, … for the measured ones.

    There are `count` of these, and further ones for those that other programs disturbed. With
    `body` the calls of a round are told apart by their place in it.
    """
    if count < 1 or warmup < 0:
        raise SettingsError(f"rounds({count}, warmup={warmup}): at least one round, no negative warm-up")
    number, quiet = -warmup, 0
    while number < count or (quiet < count and number < RETAKES * count):
        before = recorder.count
        with ExitStack() as phase:
            if body:
                phase.enter_context(recorder.body(first=number == -warmup))
            if number < 0:
                phase.enter_context(recorder.warming())
            yield number
        quiet += number >= 0 and recorder.was_quiet_since(before)
        number += 1
