"""What a run says of the store: what an update left out and why, and baselines that cannot be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_llmspeed.messages.figures import counted
from pytest_llmspeed.messages.speed import UPDATE
from pytest_llmspeed.metrics.reasons import Reason, words

NOT_UPDATED = "baseline not updated"
NAMED = 3
"""The most tests that one line names; for more, it gives their number."""


def update_outcome(stored: int, refused: Mapping[str, Sequence[str]]) -> str:
    """Return how many sessions an update stored; `refused` holds reason → the tests that were not."""
    if not refused:
        return f"{NOT_UPDATED}: no test was measured"
    sentence = f"{counted(stored, 'session')} stored, {sum(map(len, refused.values()))} not"
    reasons = "; ".join(f"{_listed(tests)} {reason}" for reason, tests in refused.items())
    return f"{sentence if stored else NOT_UPDATED}: {reasons}"


def _listed(tests: Sequence[str]) -> str:
    """The names of a few tests, without their path; the number of many."""
    if len(tests) > NAMED:
        return f"{len(tests)} tests"
    return ", ".join(test.rpartition("::")[2] for test in tests)


def update_stopped() -> str:
    """Return why a run that did not come to its end stores nothing."""
    return f"{NOT_UPDATED}: the run was stopped early"


@words(Reason.NOT_STORED_AFTER_RERUN)
def not_stored_after_rerun() -> str:
    """Return why a test that passed at last is not stored."""
    return "an earlier attempt of this test failed, so this run of it is not stored"


@words(Reason.NO_RUN_FILE_READABLE)
def no_run_file_readable(place: str, files: int) -> str:
    """The sentence that fails a test whose baselines exist and cannot be read."""
    which = "the only run file" if files == 1 else f"none of the {files} run files"
    verb = "cannot be read" if files == 1 else "can be read"
    return f"no baseline to compare with: {which} in {place} {verb}; restore or delete the files listed below"


def gone(identities: Sequence[str]) -> str:
    """Return what to do about stored tests that a full run did not collect."""
    shown = ", ".join(identities[:3]) + (", …" if len(identities) > 3 else "")
    them = "test has a baseline but was" if len(identities) == 1 else "tests have baselines but were"
    return (
        f"{len(identities)} {them} not collected: {shown}; "
        f"if you removed or renamed them, run pytest {UPDATE} once and this message stops; "
        "llmspeed baseline prune --gone 'PATTERN' deletes their files"
    )
