"""One block: a run of pytest on either side, both at once and in turn, or one after the other."""

from __future__ import annotations

import shlex
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_llmspeed.baselines.report_set import Measured, read_reports
from pytest_llmspeed.errors import LLMSpeedError
from pytest_llmspeed.experiments import EXPERIMENT
from pytest_llmspeed.experiments.child import Child, Ended
from pytest_llmspeed.experiments.judged import Block, Form
from pytest_llmspeed.experiments.places import Place
from pytest_llmspeed.experiments.side import Side, SideError
from pytest_llmspeed.experiments.turns import SIDES, TurnServer
from pytest_llmspeed.recording.turns import VARIABLE
from pytest_llmspeed.system.lock import FOLDER_VARIABLE

NAMES = ("old", "new")
GREEN_OR_RED = (0, 1)
"""Exit codes of a run whose tests were measured; that some failed is their own affair."""


class RunError(SideError):
    """A run of one side measured nothing."""


class TimeIsUpError(LLMSpeedError):
    """The time for the experiment ended within a block."""


@dataclass(frozen=True, slots=True)
class PreparedSide:
    """A side with the place where its runs are made; `number` is 0 for old and 1 for new."""

    number: int
    side: Side
    place: Place

    @property
    def name(self) -> str:
        """What it is called: "old" or "new"."""
        return NAMES[self.number]


@dataclass(frozen=True, slots=True)
class BlockRunner:
    """Makes the blocks of an experiment; the reports go into its folder."""

    sides: tuple[PreparedSide, PreparedSide]
    form: Form
    arguments: Sequence[str]
    folder: Path

    def report(self, number: int, side: int) -> Path:
        """The report of one run."""
        return self.folder / f"{number}-{NAMES[side]}.json"

    def run(self, number: int, until_s: float | None) -> None:
        """Make a block, counted from 0.

        Raises `RunError` if a side measures nothing, `TimeIsUpError` if it is not done by then (a
        reading of the monotonic clock). What is half done goes.
        """
        try:
            if self.form is Form.PAIRS:
                self._run_both(number, until_s)
            else:
                order = SIDES if number % 2 == 0 else tuple(reversed(SIDES))
                for side in order:
                    self._check(self.sides[side], number, self._run_one(side, number, until_s))
        except BaseException:
            for side in SIDES:
                self.report(number, side).unlink(missing_ok=True)
            raise

    def block(self, number: int) -> Block:
        """Return what a block measured."""
        return Block(*(measured(self.report(number, side)) for side in SIDES))

    def _run_one(self, side: int, number: int, until_s: float | None) -> Ended:
        child = self._started(side, number, {})
        try:
            while (ended := child.poll()) is None:
                _check_time(until_s)
            return ended
        finally:
            child.stop()

    def _run_both(self, number: int, until_s: float | None) -> None:
        """Both sides at once. The old one holds the lock on the device; the new one measures in its turns."""
        ended: dict[int, Ended] = {}
        with TurnServer() as turns, tempfile.TemporaryDirectory(prefix="llmspeed-locks-") as locks:
            own = [{VARIABLE: turns.address(side)} for side in SIDES]
            own[1][FOLDER_VARIABLE] = locks
            children = [self._started(side, number, own[side]) for side in SIDES]
            try:
                while len(ended) < len(SIDES):
                    for side in [side for side in SIDES if side not in ended]:
                        if (end := children[side].poll()) is not None:
                            ended[side] = end
                            turns.ended(side)
                            self._check(self.sides[side], number, end)
                    _check_time(until_s)
            finally:
                for child in children:
                    child.stop()

    def _started(self, side: int, number: int, env: Mapping[str, str]) -> Child:
        prepared = self.sides[side]
        store = self.folder / "no-baselines"
        store.mkdir(exist_ok=True)
        ours = [f"--llmspeed-json={self.report(number, side)}", f"--llmspeed-store={store}"]
        ours += ["-o", "llmspeed_json_text=false"]
        if self.form is Form.PAIRS:  # neighbours in time are alike, however busy the machine is
            ours += ["-o", "llmspeed_busy_share=1"]
        if not any("randomly" in argument for argument in self.arguments):
            ours += ["-p", "no:randomly"]  # both sides run their tests in the same order
        command = prepared.place.command([*ours, *prepared.side.pytest_arguments, *self.arguments])
        return Child(command, prepared.place.folder, {**prepared.place.env, EXPERIMENT: "1", **env})

    def _check(self, side: PreparedSide, number: int, ended: Ended) -> None:
        """Raise `RunError` if a run has measured nothing."""
        if ended.code in GREEN_OR_RED and measured(self.report(number, side.number)):
            return
        command = shlex.join(["pytest", *side.side.pytest_arguments, *self.arguments])
        raise RunError(
            side.side.ref,
            f"the {side.name} side ({side.side}) measured nothing: {command} ended with exit code "
            f"{ended.code}; its last lines:\n{ended.last_lines}",
        )


def measured(report: Path) -> list[Measured]:
    """Return the tests of a report that were measured to the end; none if there is no report."""
    return [test for test in read_reports(report).measured if test.ran] if report.exists() else []


def _check_time(until_s: float | None) -> None:
    if until_s is not None and time.monotonic() > until_s:
        raise TimeIsUpError("the time is up")
