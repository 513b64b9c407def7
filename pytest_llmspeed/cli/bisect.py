"""`llmspeed bisect GOOD BAD -- PYTEST ARGUMENTS`: the first slow commit, measured step by step."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pytest_llmspeed.cli.output import Result, counted
from pytest_llmspeed.errors import SettingsError
from pytest_llmspeed.experiments import ab
from pytest_llmspeed.experiments.bisection import SKIPPED, Bisection, SearchEnd, Step, UntestableError
from pytest_llmspeed.experiments.checkouts import Checkouts, Repository
from pytest_llmspeed.experiments.judged import Form, Judged
from pytest_llmspeed.experiments.plan import BLOCKS, Plan, form_that_fits, shown_path
from pytest_llmspeed.experiments.side import Side, SideError
from pytest_llmspeed.messages.figures import percent

SCHEMA = "llmspeed-bisect/1"
NOT_FOUND, INTERRUPTED = 125, 130
FOLDER, FILE = Path(".llmspeed") / "bisect", "search.json"
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Search:
    """What is searched: the commits from the good one (first) to the bad one, and how each is measured."""

    commits: Sequence[str]
    side: Side
    arguments: Sequence[str]
    cwd: Path
    limit_s: float | None = None
    form: str | None = None

    def plan(self, old: int, new: int) -> Plan:
        """Return the experiment that measures one commit against another."""
        before, after = (replace(self.side, ref=self.commits[place]) for place in (old, new))
        form = Form(self.form) if self.form else form_that_fits(before, after)
        return Plan(before, after, tuple(self.arguments), form, self.cwd, BLOCKS, self.limit_s)


def new_search(
    good: str, bad: str, words: Sequence[str], setup: str | None, arguments: Sequence[str], **how: Any
) -> Search:
    """Return the search between two revisions; raises `SettingsError` for what cannot be searched."""
    side = Side.parse(words)
    if side.ref is not None:
        raise SettingsError("ref= is what is searched: name the revisions as GOOD and BAD")
    repository = Repository.around(Path.cwd())
    first, last = repository.commit(good), repository.commit(bad)
    between = repository.between(first, last)
    if not between:
        raise SettingsError(f"{bad} has no commit that {good} has not: name the older, good one first")
    return Search((first, *between), replace(side, setup=setup), arguments, Path.cwd(), **how)


def run(search: Search, say: Say) -> Result:
    """Begin a search in a folder of its own."""
    folder = search.cwd / FOLDER / f"{datetime.now():%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:4]}"
    folder.mkdir(parents=True)
    return _Run(search, folder, say).result()


def resume(folder: Path, say: Say) -> Result:
    """Go on with a search that was interrupted; raises `SettingsError` if the folder has none."""
    try:
        shown = json.loads((folder / FILE).read_text(encoding="utf-8"))
        search = Search(
            shown["commits"],
            Side.from_builtins(shown["side"]),
            shown["arguments"],
            Path(shown["cwd"]),
            shown["limit_s"],
            shown["form"],
        )
        steps = [Step.from_builtins(step) for step in shown["steps"]]
        watched = None if shown["watched"] is None else tuple(shown["watched"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SettingsError(
            f"{folder} holds no search that could be taken up ({error}); name a folder of {FOLDER}"
        ) from error
    run = _Run(search, folder, say)
    run.bisection.steps, run.bisection.watched = steps, watched
    say(f"taken up after {counted(len(steps), 'step')}")
    return run.result()


class _Run:
    """A search under way, kept in its folder after each step."""

    def __init__(self, search: Search, folder: Path, say: Say) -> None:
        self.search, self.folder, self.say = search, folder, say
        self.repository = Repository.around(search.cwd)
        self.bisection = Bisection(len(search.commits) - 1, self._measure, self._note)

    def result(self) -> Result:
        """Search, and return the answer."""
        self._write()
        with Checkouts(self.repository) as self.checkouts:
            try:
                answer = self.bisection.run()
            except KeyboardInterrupt:
                answer = SearchEnd.INTERRUPTED
        go_on = f"interrupted; go on with: llmspeed bisect --resume {shown_path(self.folder)}"
        return Result(
            lines=tuple(self._lines(answer)),
            shown=self._shown(answer),
            exit_code={SearchEnd.FOUND: 0, SearchEnd.INTERRUPTED: INTERRUPTED}.get(answer, NOT_FOUND),
            warnings=(go_on,) if answer is SearchEnd.INTERRUPTED else (),
        )

    def _measure(self, old: int, new: int) -> Judged:
        """Measure one commit against another; a step that was interrupted is taken up."""
        plan = self.search.plan(old, new)
        self.say(f"step {len(self.bisection.steps) + 1}: {self._named(new)} against {self._named(old)}")
        folder = self.folder / f"{len(self.bisection.steps) + 1:02d}"
        folder.mkdir(exist_ok=True)
        try:
            found = ab.run(plan, folder, lambda line: self.say(f"  {line}"), self.checkouts)
        except SideError as error:
            failed = self.search.commits.index(error.ref or "")
            if failed == 0:
                raise
            self.say(f"  {error}")
            raise UntestableError(failed, str(error)) from error
        finally:
            for place in {old, new} - {0}:
                self.checkouts.drop(self.search.commits[place])
        if found.interrupted:
            raise KeyboardInterrupt
        return found.judged

    def _note(self, step: Step, bisection: Bisection) -> None:
        self._write()
        suspects = bisection.suspects
        likely = suspects.likely(0.95)
        if step.verdict == SKIPPED:
            self.say(f"  {self._named(step.new)} cannot be tested and is skipped")
        elif bisection.watched is not None:
            chance = suspects.probability(suspects.likeliest - 1, suspects.likeliest)
            self.say(
                f"  {step.verdict}; {counted(len(likely), 'commit')} left at 95%, likeliest "
                f"{self._named(suspects.likeliest)} ({chance:.0%})"
            )

    def _named(self, place: int) -> str:
        return self.repository.subject(self.search.commits[place])

    def _write(self) -> None:
        half = self.folder / f"{FILE}.half"
        half.write_text(json.dumps(self._state, indent=1), encoding="utf-8")
        half.replace(self.folder / FILE)

    @property
    def _state(self) -> dict[str, Any]:
        search, watched = self.search, self.bisection.watched
        return {
            "commits": list(search.commits),
            "side": search.side.to_builtins(),
            "arguments": list(search.arguments),
            "cwd": str(search.cwd),
            "limit_s": search.limit_s,
            "form": search.form,
            "watched": None if watched is None else list(watched),
            "steps": [step.to_builtins() for step in self.bisection.steps],
        }

    def _lines(self, answer: SearchEnd) -> Iterator[str]:
        steps = [step for step in self.bisection.steps if step.verdict != SKIPPED]
        if answer is SearchEnd.NOT_SLOWER:
            verdict = steps[0].verdict
            yield f"{self._named(-1)} is not slower than {self._named(0)} ({verdict}): nothing to search"
            return
        if self.bisection.watched is None:
            return
        test, _, metric = self.bisection.watched
        yield f"followed: {metric} of {test}, {_size(steps[0])} from {self._named(0)} to {self._named(-1)}"
        culprits = self.bisection.culprits
        suspects, count = self.bisection.suspects, counted(len(steps), "measurement")
        chance = sum(suspects.probability(k - 1, k) for k in culprits)
        if answer is SearchEnd.INTERRUPTED:
            yield f"likeliest so far, after {count}: {self._named(culprits[0])} (probability {chance:.0%})"
            return
        what = "the first slow commit" if len(culprits) == 1 else "the first slow commit is one of these"
        yield f"{what} (probability {chance:.0%}, {count}):"
        for k in culprits:
            yield f"  {self._named(k)}"
        yield self._verification(answer)

    def _verification(self, answer: SearchEnd) -> str:
        """The sentence on the last measurement: the culprit against the commit before it."""
        if answer is SearchEnd.NOT_CONFIRMED:
            return "not confirmed: measured against the commit before it, it was not slower for certain"
        last = next(step for step in reversed(self.bisection.steps) if step.new == self.bisection.culprits[0])
        return f"confirmed: {_size(last)} against {self._named(last.old)}"

    def _shown(self, answer: SearchEnd) -> dict[str, Any]:
        suspects = self.bisection.suspects
        found = self.bisection.culprits if self.bisection.watched else []
        return {
            "schema": SCHEMA,
            "answer": answer.value,
            "culprits": [
                {"commit": self.search.commits[k], "probability": suspects.probability(k - 1, k)}
                for k in found
            ],
            "folder": str(self.folder),
            **self._state,
        }


def _size(step: Step) -> str:
    return percent(step.delta) if step.delta is not None else "no figure"
