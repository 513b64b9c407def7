"""`llmspeed ab --old SIDE --new SIDE -- PYTEST ARGUMENTS`: both sides measured in one go, and judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pytest_llmspeed.cli.output import Result, counted, listed
from pytest_llmspeed.errors import SettingsError
from pytest_llmspeed.experiments import ab
from pytest_llmspeed.experiments.ab import Experiment
from pytest_llmspeed.experiments.judged import Form, TestOnBothSides
from pytest_llmspeed.experiments.plan import BLOCKS, Plan, form_that_fits, new_folder, read_plan, shown_path
from pytest_llmspeed.experiments.side import Side, SideError, differences
from pytest_llmspeed.messages.figures import size
from pytest_llmspeed.records.record import test_to_builtins
from pytest_llmspeed.regression.verdicts import Verdict
from pytest_llmspeed.reports.terminal import closing_section

SCHEMA = "llmspeed-ab/1"
SLOWER, UNDECIDED, INTERRUPTED = 1, 125, 130
"""Exit codes. `git bisect run` takes 125 for a commit that cannot be tested."""
HEADERS = ("test", "metric", "old", "new", "change", "verdict")
NOT_SLOWER = (Verdict.PASSED, Verdict.FASTER)
FORMS = {
    Form.PAIRS: "pairs: both sides at once, their requests in turn",
    Form.RUNS: "runs: one side after the other",
}


def new_plan(
    old: Sequence[str] | None,
    new: Sequence[str] | None,
    arguments: Sequence[str],
    *,
    form: str | None,
    blocks: int | None,
    limit_s: float | None,
) -> Plan:
    """Return the plan of a new experiment; raises `SettingsError` for sides that cannot be compared.

    Without a form, both sides run at once where both fit.
    """
    before, after = Side.parse(old or ()), Side.parse(new or ())
    if old is None and new is None:
        raise SettingsError("name the sides: llmspeed ab --old ref=v1.4 --new ref=HEAD -- PYTEST ARGUMENTS")
    chosen = Form(form) if form else form_that_fits(before, after)
    return Plan(before, after, tuple(arguments), chosen, Path.cwd(), blocks or BLOCKS, limit_s)


def run(plan: Plan, tell: Callable[[str], None]) -> Result:
    """Make a new experiment and return what it found."""
    return _result(plan, new_folder(plan.cwd, datetime.now()), tell)


def resume(folder: Path, blocks: int | None, limit_s: float | None, tell: Callable[[str], None]) -> Result:
    """Take up an experiment that was interrupted; with more blocks or another limit if they are given."""
    from dataclasses import replace

    plan = read_plan(folder)
    return _result(replace(plan, blocks=blocks or plan.blocks, limit_s=limit_s), folder, tell)


def _result(plan: Plan, folder: Path, tell: Callable[[str], None]) -> Result:
    try:
        plan.write(folder)
        found = ab.run(plan, folder, tell)
    except SideError as error:
        shown = {"schema": SCHEMA, **_sides(plan), "verdict": None, "problem": str(error)}
        return Result((), shown, UNDECIDED, (str(error),))
    warnings = (
        [f"interrupted; go on with: llmspeed ab --resume {shown_path(folder)}"] if found.interrupted else []
    )
    return Result(tuple(_lines(found)), _shown(found), _exit_code(found), tuple(warnings))


def _exit_code(found: Experiment) -> int:
    if found.interrupted:
        return INTERRUPTED
    if found.judged.verdict is Verdict.SLOWER:
        return SLOWER
    return 0 if found.judged.verdict in NOT_SLOWER else UNDECIDED


def _lines(found: Experiment) -> Iterator[str]:
    plan, tests = found.plan, found.judged.tests
    yield f"OLD: {plan.old}"
    yield f"NEW: {plan.new}"
    if changed := _changed(found):
        yield f"differs: {', '.join(changed)}"
    yield f"{FORMS[plan.form]}; {counted(len(found.blocks), 'block')} of at most {plan.blocks}"
    yield ""
    yield from closing_section([test.record for test in tests], verbose=True, headers=HEADERS)
    for name, identities in (("OLD", found.judged.pairing.only_old), ("NEW", found.judged.pairing.only_new)):
        if identities:
            yield f"only in {name}: {listed(identities)}"
    yield _conclusion(found)


def _changed(found: Experiment) -> list[str]:
    """What differs between the sides: as they were named, and what their runs recorded besides."""
    recorded = dict.fromkeys(change for test in found.judged.tests for change in test.changed)
    keyed = dict.fromkeys(change for test in found.judged.tests for change in test.pair.differs)
    return list(dict.fromkeys((*differences(found.plan.old, found.plan.new), *keyed, *recorded)))


def _conclusion(found: Experiment) -> str:
    """The sentence that answers the question."""
    verdict, visible = found.judged.verdict, found.judged.visible
    seen = f"a slowdown of {size(visible)} or more would have been seen in every test" if visible else ""
    if verdict is Verdict.SLOWER:
        return "NEW is slower than OLD"
    if verdict in NOT_SLOWER:
        return f"NEW is not slower than OLD; {seen}"
    if not found.blocks:
        return "undecided: no block was measured to its end"
    more = f"more blocks may decide it: --blocks {2 * found.plan.blocks}"
    return f"undecided: {seen}; {more}" if seen else f"undecided; {more}"


def _sides(plan: Plan) -> dict[str, Any]:
    return {"old": plan.old.to_builtins(), "new": plan.new.to_builtins(), "form": plan.form.value}


def _shown(found: Experiment) -> dict[str, Any]:
    verdict = found.judged.verdict
    return {
        "schema": SCHEMA,
        **_sides(found.plan),
        "arguments": list(found.plan.arguments),
        "blocks": len(found.blocks),
        "folder": str(found.folder),
        "verdict": None if verdict is None else verdict.value,
        "visible": found.judged.visible,
        "differs": _changed(found),
        "tests": [_shown_test(test) for test in found.judged.tests],
        "only_old": list(found.judged.pairing.only_old),
        "only_new": list(found.judged.pairing.only_new),
        "interrupted": found.interrupted,
    }


def _shown_test(test: TestOnBothSides) -> dict[str, Any]:
    shown = test_to_builtins(test.record, text=False)
    return {name: shown[name] for name in ("identity", "verdict", "comparisons", "problems")}
