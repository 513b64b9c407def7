"""What a test is judged by: its budgets and stored sessions, and what the run asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytest_llmspeed.baselines.sessions import Session
from pytest_llmspeed.baselines.window import Window
from pytest_llmspeed.metrics.budgets import Budget
from pytest_llmspeed.metrics.reasons import Explanation
from pytest_llmspeed.quality.answers import Probed
from pytest_llmspeed.regression.session_test import Prior
from pytest_llmspeed.system.environment import what_changed


@dataclass(frozen=True, slots=True)
class Policy:
    """What the run asks of the judgement beyond the table of consequences.

    `show_answers` says whether the sentence that fails a test over its answers may quote one. A run
    that is `storing` stores what may be stored, and needs no advice to do so. `comparing` is False of a
    smoke run, whose few rounds are held against budgets only.
    """

    require_baseline: bool = False
    strict: bool = False
    accept: str | None = None
    show_answers: bool = True
    comparing: bool = True
    storing: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """What one test is judged by: its budgets, its stored sessions, and M, the gate's comparisons.

    `now` is the record as a session. `place` is the folder of this environment's baselines, `elsewhere`
    names other environments that have some. `unreadable` says that none of those here can be read.
    `earlier` says that an earlier attempt of this test was found slower.
    `overridden_in` names the file of an `llm_client` that is not ours. `priors` are those learned
    from the other stored tests, by metric. `quality` is what was asked of its answers. `first` is the
    session of the first job, if this is a second look.
    """

    budgets: Sequence[Budget]
    window: Window
    now: Session
    comparisons: int = 1
    place: str = ""
    elsewhere: tuple[str, ...] = ()
    unreadable: Explanation | None = None
    earlier: Explanation | None = None
    overridden_in: str | None = None
    priors: Mapping[str, Prior] = field(default_factory=dict)
    quality: Sequence[Probed] = ()
    first: Session | None = None

    @property
    def changed(self) -> list[str]:
        """The recorded facts that changed since the baseline; empty without one."""
        return what_changed(self.window.facts, self.now.facts) if self.window.facts else []
