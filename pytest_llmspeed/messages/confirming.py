"""Sentences on tests that were measured once more, beside another side."""

from __future__ import annotations

from pytest_llmspeed.messages.speed import moved, name
from pytest_llmspeed.metrics.reasons import Reason, words
from pytest_llmspeed.regression.verdicts import Comparison


@words(Reason.CONFIRMED_SLOWER)
def confirmed_slower(comparison: Comparison, side: str) -> str:
    """The sentence that fails a test which is slower than another side, measured beside it."""
    return f"confirmed: {name(comparison)} is slower than with {side}: {moved(comparison)}"


@words(Reason.NOT_CONFIRMED)
def not_confirmed(before: str, side: str) -> str:
    """Return what became of a doubt that another measurement has settled."""
    return f"not confirmed: measured beside {side}, it is not slower (its baseline said: {before})"


@words(Reason.CONFIRMATION_UNDECIDED)
def confirmation_undecided(side: str) -> str:
    """Return what a measurement that decided nothing means."""
    return f"measured beside {side}, it is still undecided: what its baseline said stands"
