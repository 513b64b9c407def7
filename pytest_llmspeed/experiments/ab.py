"""Old against new: blocks of both sides, until each test is decided or the blocks or the time are used up."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from pytest_llmspeed.experiments.checkouts import Checkouts, Repository
from pytest_llmspeed.experiments.judged import Block, ComparisonPlace, Judged, judge
from pytest_llmspeed.experiments.places import prepared
from pytest_llmspeed.experiments.plan import Plan
from pytest_llmspeed.experiments.runs import BlockRunner, PreparedSide, TimeIsUpError
from pytest_llmspeed.experiments.side import Side
from pytest_llmspeed.regression.looks import EARLY_LOOK, FIRST_LOOK, LAST_LOOK, ONLY_LOOK
from pytest_llmspeed.regression.verdicts import Comparison, Verdict

Say = Callable[[str], None]


@dataclass(slots=True)
class Experiment:
    """The state of an experiment: what was measured, and what the looks on the way decided."""

    plan: Plan
    folder: Path
    blocks: list[Block] = field(default_factory=list)
    decided: dict[ComparisonPlace, Comparison] = field(default_factory=dict)
    judged: Judged = field(default_factory=Judged)
    interrupted: bool = False

    def add(self, block: Block) -> None:
        """Take in a block and look at all of them, unless it is the first or second of several."""
        self.blocks.append(block)
        count, most = len(self.blocks), self.plan.blocks
        if count >= most:
            self.conclude()
        elif count >= FIRST_LOOK:
            self.judged = judge(self.blocks, self.plan.form, EARLY_LOOK, self.decided)
            self.decided = {
                place: found
                for place, found in self.judged.by_place.items()
                if found.verdict is not Verdict.INCONCLUSIVE
            }

    def conclude(self) -> None:
        """Take the last look: no further block will follow."""
        looked = len(self.blocks) >= FIRST_LOOK and self.plan.blocks > FIRST_LOOK
        look = LAST_LOOK if looked else ONLY_LOOK
        self.judged = judge(self.blocks, self.plan.form, look, self.decided)

    @property
    def is_done(self) -> bool:
        """True if no further block is needed."""
        count = len(self.blocks)
        return count >= self.plan.blocks or (count >= FIRST_LOOK and not self.judged.is_open)


def run(plan: Plan, folder: Path, say: Say, checkouts: Checkouts | None = None) -> Experiment:
    """Make an experiment, or the rest of one that was interrupted, in its folder.

    `checkouts` are those that several experiments share; without them it has its own.
    After Ctrl-C what was measured is judged. Raises `LLMSpeedError` if a side cannot be set up or
    measures nothing.
    """
    experiment = Experiment(plan, folder)
    with ExitStack() as stack:
        try:
            if checkouts is None and (plan.old.ref or plan.new.ref):
                checkouts = stack.enter_context(Checkouts(Repository.around(plan.cwd)))
            runner = _prepared(plan, folder, checkouts, say)
            _take_up(experiment, runner, say)
            _measure(experiment, runner, say)
        except KeyboardInterrupt:
            experiment.interrupted = True
        if not experiment.is_done and experiment.blocks:
            experiment.conclude()
    return experiment


def _prepared(plan: Plan, folder: Path, checkouts: Checkouts | None, say: Say) -> BlockRunner:
    def side(number: int, of: Side) -> PreparedSide:
        return PreparedSide(number, of, prepared(of, checkouts, plan.cwd, say))

    old, new = side(0, plan.old), side(1, plan.new)
    plan.with_commits(old.place.commit, new.place.commit).write(folder)
    return BlockRunner((old, new), plan.form, plan.arguments, folder)


def _take_up(experiment: Experiment, runner: BlockRunner, say: Say) -> None:
    """Read the blocks that an interrupted experiment has measured."""
    while all(runner.report(len(experiment.blocks), side).exists() for side in (0, 1)):
        experiment.add(runner.block(len(experiment.blocks)))
    if experiment.blocks:
        say(f"taken up after block {len(experiment.blocks)} of {experiment.plan.blocks}")


def _measure(experiment: Experiment, runner: BlockRunner, say: Say) -> None:
    limit_s, started_s = experiment.plan.limit_s, time.monotonic()
    until_s, longest_s = None if limit_s is None else started_s + limit_s, 0.0
    while not experiment.is_done:
        begun_s = time.monotonic()
        if until_s is not None and begun_s + longest_s > until_s:
            say(f"no time for another block within {limit_s:.0f} s")
            return
        number = len(experiment.blocks)
        try:
            runner.run(number, until_s)
        except TimeIsUpError:
            say(f"the time limit of {limit_s:.0f} s ended block {number + 1}, which is left out")
            return
        experiment.add(runner.block(number))
        took_s = time.monotonic() - begun_s
        longest_s = max(longest_s, took_s)
        say(_progress(experiment, took_s, longest_s))


def _progress(experiment: Experiment, took_s: float, longest_s: float) -> str:
    done, most = len(experiment.blocks), experiment.plan.blocks
    line = f"block {done} of {'at most ' if done < most else ''}{most} took {took_s:.0f} s"
    if experiment.is_done:
        return line
    if experiment.judged.tests:
        still = sum(test.is_open for test in experiment.judged.tests)
        line += f", {still} of {len(experiment.judged.tests)} tests undecided"
    return f"{line}; at most {(most - done) * longest_s:.0f} s left"
