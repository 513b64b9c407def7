"""Confirmation: tests in doubt after a run are measured beside another side, and only those."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from pytest_llmspeed.errors import LLMSpeedError
from pytest_llmspeed.experiments import ab
from pytest_llmspeed.experiments.plan import Plan, form_that_fits, new_folder
from pytest_llmspeed.experiments.side import Side
from pytest_llmspeed.judging.confirming import confirmed, is_doubtful
from pytest_llmspeed.records.record import TestRecord

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ThisRun:
    """What the run was: the settings of its command line, the arguments its tests need, its root folder."""

    settings: Side
    arguments: Sequence[str]
    folder: Path


def confirmation(
    records: Mapping[str, TestRecord], side: Side, run: ThisRun, say: Say
) -> dict[str, TestRecord]:
    """Return the records in doubt, by node id, with the verdict of their measurement beside `side`.

    The other side shares the settings of this run but for what it names itself. Nothing changes if the
    measurement fails; that is said.
    """
    doubtful = {nodeid: record for nodeid, record in records.items() if is_doubtful(record)}
    if not doubtful:
        return {}
    here = run.settings
    old = replace(side, settings={**here.settings, **side.settings}, options={**here.options, **side.options})
    plan = Plan(old, here, (*run.arguments, *doubtful), form_that_fits(old, here), run.folder)
    say(f"measuring {len(doubtful)} of {len(records)} tests beside {side}")
    try:
        found = ab.run(plan, new_folder(run.folder, datetime.now()), say)
    except LLMSpeedError as error:
        say(f"nothing was confirmed: {error}")
        return {}
    measured = {test.record.nodeid: test.record.comparisons for test in found.judged.tests}
    return {
        nodeid: confirmed(record, measured.get(nodeid, ()), str(side)) for nodeid, record in doubtful.items()
    }
