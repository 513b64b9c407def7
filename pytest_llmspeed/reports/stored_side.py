"""What reports show beside the figures of a test: its stored sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_llmspeed.baselines.sessions import Session


@dataclass(frozen=True, slots=True)
class StoredSide:
    """What a test is held against: the sessions that count, itself as a session, and all sessions before."""

    sessions: Sequence[Session] = ()
    now: Session | None = None
    history: Sequence[Session] = ()
