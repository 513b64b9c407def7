"""Sentences on tests that were measured once more, beside another side."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_llmspeed.messages.figures import counted
from pytest_llmspeed.messages.speed import moved, name
from pytest_llmspeed.metrics.reasons import Reason, words
from pytest_llmspeed.regression.verdicts import Comparison

MOST_NAMED = 5


@words(Reason.CONFIRMED_SLOWER)
def confirmed_slower(comparison: Comparison, side: str) -> str:
    """The sentence that fails a test which is slower than another side, measured beside it."""
    return f"confirmed: {name(comparison)} is slower than with {side}: {moved(comparison)}"


@words(Reason.NOT_CONFIRMED)
def not_confirmed(before: str, side: str) -> str:
    """Return what became of a doubt that another measurement has settled."""
    return f"not confirmed: measured beside {side}, it is not slower (its baseline said: {before})"


@words(Reason.DEFERRED)
def deferred(comparison: Comparison) -> str:
    """Return what became of a doubt in a first job."""
    return f"{name(comparison)} may be slower: {moved(comparison)}; a second look decides"


@words(Reason.CONFIRMATION_UNDECIDED)
def confirmation_undecided(side: str) -> str:
    """Return what a measurement that decided nothing means."""
    return f"measured beside {side}, it is still undecided: what its baseline said stands"


def second_look(tests: Sequence[str], file: str) -> str:
    """Return what the first job leaves to a second one."""
    if not tests:
        return "no test wants a second look"
    named = ", ".join(tests[:MOST_NAMED]) + (
        f" and {len(tests) - MOST_NAMED} more" if tests[MOST_NAMED:] else ""
    )
    return (
        f"a second look is wanted for {counted(len(tests), 'test')} ({named}): run pytest "
        f"--llmspeed-second-look={file} in another job"
    )
