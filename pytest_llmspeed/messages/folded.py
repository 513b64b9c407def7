"""Undecided comparisons of many tests → one sentence for each kind, with the ranges of their figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pytest_llmspeed.messages import busy
from pytest_llmspeed.messages.figures import size
from pytest_llmspeed.messages.speed import (
    NOT_BY_SESSIONS,
    RUN_AGAIN,
    UPDATE,
    sessions_are_in_vain,
    sessions_to_store,
)
from pytest_llmspeed.metrics.reasons import Explanation, Reason
from pytest_llmspeed.regression.verdicts import Comparison


class Kind(NamedTuple):
    """What undecided comparisons share if one sentence can speak for them.

    `step` says what would settle them; `detail` is the slowdown that more sessions would show, or the
    reason that nothing could be compared for.
    """

    step: str
    detail: str = ""


def kind_of(advice: Explanation) -> Kind | None:
    """Return the kind of a piece of advice on an undecided comparison; None if it stands for itself."""
    comparison = advice.figures.get("comparison")
    if not isinstance(comparison, Comparison) or comparison.prompt_tokens is not None:
        return None
    if advice.reason is Reason.MACHINE_BUSY:
        return Kind("quiet", "again" if advice.figures.get("again") else "")
    if advice.reason is not Reason.UNDECIDED:
        return None
    if comparison.visible is None:
        return Kind("reason", str(comparison.reason))
    if step := sessions_to_store(comparison):
        return Kind("store", size(step[0]))
    return Kind("in vain" if sessions_are_in_vain(comparison) else "run again")


def of_several(kind: Kind, found: Sequence[Comparison]) -> str:
    """Return the sentence on comparisons of one kind."""
    if kind.step == "quiet":
        return busy.busy_tests(again=bool(kind.detail))
    if kind.step == "reason":
        return f"undecided: {kind.detail}"
    hidden = _range([(each.visible or 1.0) - 1 for each in found], "{:.0%}")
    sentence = f"undecided so far; a slowdown under {hidden} would not show"
    steps = [step for each in found if (step := sessions_to_store(each))]
    if kind.step == "store":
        most = max(more for _, more in steps)
        sessions = f"{_range([more for _, more in steps], '{}')} more session{'' if most == 1 else 's'}"
        return f"{sentence}; {sessions} would show {kind.detail}: pytest {UPDATE}"
    return f"{sentence}; {NOT_BY_SESSIONS if kind.step == 'in vain' else RUN_AGAIN}"


def _range(values: Sequence[float], style: str) -> str:
    """The least and the largest value, once if they read the same: "4 to 6"."""
    low, high = style.format(min(values)), style.format(max(values))
    return low if low == high else f"{low} to {high}"
