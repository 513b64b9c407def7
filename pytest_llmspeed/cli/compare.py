"""`llmspeed compare OLD NEW`: the product's own judgement on reports that someone kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_llmspeed.baselines.report_set import Measured, ReportSet, budgets_of, read_reports
from pytest_llmspeed.baselines.sessions import Session
from pytest_llmspeed.baselines.stored_tests import Pair, Pairing, aligned, paired, slot_of, stored_tests
from pytest_llmspeed.baselines.window import Window, gated_comparisons, window
from pytest_llmspeed.cli.output import Result, counted, listed
from pytest_llmspeed.errors import StoreError
from pytest_llmspeed.judging.case import Case, Policy
from pytest_llmspeed.judging.comparing import leading_figure
from pytest_llmspeed.judging.judge import judge
from pytest_llmspeed.messages import speed
from pytest_llmspeed.messages.figures import size
from pytest_llmspeed.metrics.reasons import Reason
from pytest_llmspeed.records.record import TestRecord, test_to_builtins
from pytest_llmspeed.regression.verdicts import CONSEQUENCES, Comparison, Verdict
from pytest_llmspeed.reports.terminal import closing_section
from pytest_llmspeed.system.environment import what_changed

SCHEMA = "llmspeed-compare/1"
SLOWER, NOTHING_COMPARED = 1, 2
NOT_COMPARED = (Verdict.NO_BASELINE, Verdict.INCOMPARABLE)
"""Verdicts of figures that had nothing to be held against."""


@dataclass(frozen=True, slots=True)
class ComparedTest:
    """One test of both sides. `records` are its new sessions, each judged, the worst first."""

    pair: Pair
    records: tuple[TestRecord, ...]
    changed: tuple[str, ...]

    @property
    def record(self) -> TestRecord:
        """The worst new session, which speaks for the test, with the advice on it."""
        return replace(
            self.records[0], advice=tuple(Reason.AS_WRITTEN(text=text) for text in _sentences(self))
        )

    @property
    def fails(self) -> bool:
        """True if the verdict is one that fails a test."""
        verdict = self.records[0].verdict
        return verdict is not None and CONSEQUENCES[verdict].fails

    @property
    def is_compared(self) -> bool:
        """True if any figure of a new session was held against an old one."""
        return any(
            comparison.verdict not in NOT_COMPARED
            for record in self.records
            for comparison in record.comparisons
        )


def compare(old: Path, new: Path) -> Result:
    """Return how the reports at `new` stand to those at `old`, each a file or a folder of them.

    Every new session is judged against all old ones (the last ten of the current level, one for each
    CI job); the worst speaks for its test. All of them count as comparisons, so that more reports
    raise no false alarms. Raises `StoreError` where nothing can be compared.
    """
    before, after = read_reports(old), read_reports(new)
    fresh = {session.run_id for session in after.sessions}
    known = [session for session in before.sessions if session.series and session.run_id not in fresh]
    if not known and before.sessions:
        raise StoreError(f"every run of {old} is also in {new}; name older ones")
    pairing = paired(stored_tests(known), stored_tests(after.sessions))
    many = max(1, gated_comparisons(known), _gated(after))
    judged = [_judged(pair, after, many) for pair in pairing.pairs]
    if not judged:
        raise StoreError(_nothing_in_common(before, after, pairing))
    return _result(before, after, pairing, judged)


def _gated(side: ReportSet) -> int:
    return sum(gated_comparisons([session]) for session in side.sessions)


def _judged(pair: Pair, after: ReportSet, comparisons: int) -> ComparedTest:
    """The pair with each new session judged."""
    slot = slot_of(pair.new.newest)
    fresh = [each for each in after.measured if each.ran and slot_of(each.session) == slot]
    records, changed = [], dict[str, None]()
    for each in fresh:
        stored = _window(pair, each.session)
        records.append(_verdict(each, stored, comparisons))
        changed |= dict.fromkeys(what_changed(stored.facts, each.session.facts))
    return ComparedTest(pair, tuple(sorted(records, key=_gravity)), tuple(changed))


def _window(pair: Pair, now: Session) -> Window:
    """The old sessions that count, under the key and series of the new one: this pair was asked for."""
    old = [replace(aligned(session, now), key=now.key) for session in pair.old.sessions]
    return window(old, now.identity, now.key)


def _verdict(measured: Measured, stored: Window, comparisons: int) -> TestRecord:
    """The record with its verdict. Its budgets say what is compared; they were checked when it ran."""
    record = measured.record
    case = Case(budgets_of(record), stored, measured.session, comparisons)
    judged = replace(judge(record, case, Policy()), budgets=())
    if judged.verdict is not None:
        return judged
    failed = record.measurement.failures
    if not failed:
        metric, now = leading_figure(record.measurement)
        found = Comparison(Verdict.INCOMPARABLE, Reason.NOTHING_TO_COMPARE(), now=now, metric=metric)
        return replace(judged, verdict=found.verdict, comparisons=(found,))
    problem = Reason.REQUESTS_FAILED(failed=len(failed), total=len(failed), error=failed[-1].error)
    return replace(judged, verdict=Verdict.INVALID, problems=(problem,))


def _gravity(record: TestRecord) -> tuple[int, float]:
    order = list(Verdict)
    place = len(order) if record.verdict is None else order.index(record.verdict)
    p_values = [comparison.p_session for comparison in record.comparisons if comparison.p_session is not None]
    return place, min(p_values, default=1.0)


def _nothing_in_common(before: ReportSet, after: ReportSet, pairing: Pairing) -> str:
    old, new = (listed(names) or "nothing measured" for names in (pairing.only_old, pairing.only_new))
    return (
        f"{before.path} and {after.path} have no test in common (the one has {old}; the other {new}); "
        "name reports of the same tests"
    )


def _sentences(judged: ComparedTest) -> Iterator[str]:
    """Yield the sentences on a pair that its rows in the table do not show."""
    if len(judged.records) > 1:
        words = Counter(str(record.verdict) for record in judged.records)
        verdicts = ", ".join(f"{count} {word}" for word, count in words.items())
        yield f"the worst of {len(judged.records)} new sessions is shown ({verdicts})"
    counting = max((comparison.sessions for comparison in judged.records[0].comparisons), default=0)
    if 0 < counting < (kept := len(judged.pair.old.sessions)):
        yield f"{counting} of {kept} old sessions count: the last ten at the current level, one per CI job"
    if judged.pair.differs:
        how = "compared although " if judged.is_compared else "not compared: "
        yield how + "; ".join(map(_difference, judged.pair.differs))
    if judged.changed:
        yield f"changed since OLD: {', '.join(judged.changed)}"
    for found in judged.records[0].comparisons:
        if found.verdict in (Verdict.INCONCLUSIVE, Verdict.SUSPECT, Verdict.INCOMPARABLE):
            yield _unsettled(found)


def _difference(what: str) -> str:
    name, _, change = what.partition(": ")
    return f"the {name} differs: {change}"


def _unsettled(comparison: Comparison) -> str:
    """Return why a comparison decided nothing, and what would."""
    sentence = f"{speed.name(comparison)}: {comparison.reason}"
    if comparison.visible is None:
        return sentence
    sentence += f"; {speed.unseen(comparison.visible)}"
    enough = next(((slow, more) for slow, more in comparison.more_sessions if more), None)
    if enough is None:
        return sentence
    return f"{sentence}; {counted(enough[1] or 0, 'more report')} in OLD would show {size(enough[0])}"


def _result(before: ReportSet, after: ReportSet, pairing: Pairing, judged: Sequence[ComparedTest]) -> Result:
    left_out = [f"{side.path}: {problem}" for side in (before, after) for problem in side.problems]
    return Result(
        lines=tuple(_lines(before, after, pairing, judged)),
        shown=_shown(before, after, pairing, judged),
        exit_code=_exit_code(judged),
        warnings=(*left_out, *_nothing_compared(judged)),
    )


def _exit_code(judged: Sequence[ComparedTest]) -> int:
    if any(each.fails for each in judged):
        return SLOWER
    return 0 if any(each.is_compared for each in judged) else NOTHING_COMPARED


def _nothing_compared(judged: Sequence[ComparedTest]) -> Iterator[str]:
    """A sentence on the tests of which nothing was compared, if there are any."""
    left_out = [each.pair.new.identity for each in judged if not (each.is_compared or each.fails)]
    if len(left_out) == len(judged):
        yield "nothing was compared: OLD has none of NEW's figures; name reports of the same work"
    elif left_out:
        yield f"not compared: {listed(left_out)}"


def _lines(
    before: ReportSet, after: ReportSet, pairing: Pairing, judged: Sequence[ComparedTest]
) -> Iterator[str]:
    for name, side in (("OLD", before), ("NEW", after)):
        yield f"{name}: {side.path}, {counted(len(side.files), 'run')}{_commits(side)}"
    yield ""
    yield from closing_section([each.record for each in judged], verbose=True)
    for name, identities in (("OLD", pairing.only_old), ("NEW", pairing.only_new)):
        if identities:
            yield f"only in {name}: {listed(identities)}"


def _commits(side: ReportSet) -> str:
    commits = dict.fromkeys(file.run["commit"] for file in side.files if file.run["commit"])
    return f" of commit {listed(list(commits))}" if commits else ""


def _shown(
    before: ReportSet, after: ReportSet, pairing: Pairing, judged: Sequence[ComparedTest]
) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "old": [str(file.path) for file in before.files],
        "new": [str(file.path) for file in after.files],
        "tests": [_shown_test(each) for each in judged],
        "only_old": list(pairing.only_old),
        "only_new": list(pairing.only_new),
        "left_out": [*before.problems, *after.problems],
    }


def _shown_test(judged: ComparedTest) -> dict[str, Any]:
    sessions = [test_to_builtins(record, text=False) for record in judged.records]
    return {
        "identity": judged.pair.new.identity,
        "verdict": sessions[0]["verdict"],
        "differs": list(judged.pair.differs),
        "changed": list(judged.changed),
        "sessions": [
            {name: session[name] for name in ("nodeid", "verdict", "comparisons", "problems")}
            for session in sessions
        ],
    }
