"""Warm-up and rounds: the only loop of single requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

from pytest_llmspeed.errors import SettingsError
from pytest_llmspeed.recording.recorder import Recorder

WARMUP = 2
LEAST_ROUNDS = 10


RETAKES = 2
"""Disturbed rounds are taken again until there are at most this many times as many rounds as asked."""


AUTO_STOPS = (5, 10, 20, 40)
"""The numbers of rounds at which `rounds="auto"` checks whether it may stop."""


def rounds(
    recorder: Recorder,
    count: int,
    warmup: int,
    *,
    body: bool,
    enough: Callable[[int], bool] = lambda _: False,
    retakes: int = RETAKES,
) -> Iterator[int]:
    """Yield -warmup … -1 for the warm-up rounds, then 0, 1, … for the measured ones.

    There are `count` of these, up to `retakes` times as many if other programs disturbed some; fewer
    where `enough`, asked with the number of quiet rounds so far, says so. With `body` the calls of
    a round are told apart by their place in it.
    """
    if count < 1 or warmup < 0:
        raise SettingsError(
            f"rounds({count}, warmup={warmup}): at least one round is needed, and no negative warm-up"
        )
    number, quiet = -warmup, 0
    while number < count or (quiet < count and number < retakes * count):
        before = recorder.count
        with ExitStack() as phase:
            if body:
                phase.enter_context(recorder.body(first=number == -warmup))
            if number < 0:
                phase.enter_context(recorder.warming())
            yield number
        quiet += number >= 0 and recorder.was_quiet_since(before)
        number += 1
        if number > 0 and enough(quiet):
            return


def smoke_rounds(recorder: Recorder, count: int, warmup: int, *, body: bool) -> Iterator[int]:
    """The same for a smoke run: `count` rounds after one of warm-up at most, none taken again."""
    return rounds(recorder, count, min(warmup, 1), body=body, retakes=1)


def steady_enough(recorder: Recorder, start: int, least: int) -> Callable[[int], bool]:
    """Return the stop of `rounds="auto"`: at 5, 10, 20 or 40 quiet rounds, once TTFT and TPOT are steady.

    Requests before `start` are another measurement's; at least `least` rounds are made.
    """

    def enough(quiet: int) -> bool:
        if quiet not in AUTO_STOPS or quiet < least:
            return False
        from pytest_llmspeed.regression.session_test import is_steady

        measured = recorder.since(start)
        return all(
            is_steady(values) for metric in ("ttft_ms", "tpot_ms") if (values := measured.values(metric))
        )

    return enough
