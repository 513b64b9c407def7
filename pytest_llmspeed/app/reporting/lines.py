"""The closing section of the terminal: records → lines. Drawn here, decided elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_llmspeed.core.advice import name, percent, quantity, slower_beside, suite_shift
from pytest_llmspeed.core.metrics import METRICS, metric_of
from pytest_llmspeed.core.record import SuiteVerdict, TestRecord
from pytest_llmspeed.core.verdicts import BudgetCheck, Comparison, Verdict, worst_of_each_metric

HEADERS = ("test", "metric", "baseline", "now", "change", "verdict")
DASH = "–"

Row = tuple[str, str, str, str, str, str]


def closing_section(
    records: Sequence[TestRecord],
    *,
    verbose: bool,
    suite: SuiteVerdict | None = None,
    stored: Sequence[Path] = (),
    problems: Sequence[str] = (),
) -> Iterator[str]:
    """Yield the lines of the closing section: a table, advice, counts. None where nothing was used.

    A row for what is not passed, with `verbose` for everything.
    """
    if not records and not problems:
        return
    rows = [row for record in records for row in _rows(record, verbose)]
    if rows:
        from tabulate import tabulate

        table = tabulate(_named_once(rows), HEADERS, tablefmt="simple", disable_numparse=True)
        yield from table.splitlines()
        yield ""
    yield from _advice(records)
    yield from _suite(suite)
    yield from problems
    yield counts(records)
    for path in stored:
        yield f"baseline stored: {path}"


def _named_once(rows: Sequence[Row]) -> Iterator[Row]:
    """The rows with each test named in its first one only."""
    before = None
    for row in rows:
        yield ("", *row[1:]) if row[0] == before else row
        before = row[0]


def _advice(records: Sequence[TestRecord]) -> Iterator[str]:
    """One line for each sentence, with the test or the number of tests that it is for."""
    tests: dict[str, list[str]] = {}
    for record in records:
        for sentence in record.advice:
            tests.setdefault(sentence, []).append(record.nodeid)
    for sentence, nodeids in tests.items():
        yield f"{nodeids[0] if len(nodeids) == 1 else f'{len(nodeids)} tests'}: {sentence}"


def _suite(suite: SuiteVerdict | None) -> Iterator[str]:
    """What the tests say together, where that is not passed."""
    for shift in suite.shifts if suite else ():
        if shift.verdict is Verdict.SLOWER:
            yield suite_shift(shift.metric, shift.delta, shift.ci, shift.tests)
    for nodeid, found in suite.alone if suite else ():
        yield slower_beside(nodeid, found)


def counts(records: Sequence[TestRecord]) -> str:
    """One line that says how many tests were measured and what was found."""
    found = Counter(_word(record) for record in records)
    order = [verdict.value for verdict in Verdict]
    parts = [f"{found[word]} {word}" for word in sorted(found, key=lambda w: _place(order, w))]
    missed = sum(not check.kept for record in records for check in record.budgets)
    if missed:
        parts.append(f"{missed} budget{'' if missed == 1 else 's'} missed")
    return f"{len(records)} test{'' if len(records) == 1 else 's'} measured: {', '.join(parts) or 'nothing'}"


def _place(order: list[str], word: str) -> int:
    return order.index(word) if word in order else len(order)


def _word(record: TestRecord) -> str:
    """What the counting line calls a test."""
    if record.partial:
        return "interrupted"
    if record.accepted is not None:
        return "accepted"
    return "not compared" if record.verdict is None else record.verdict.value


def _rows(record: TestRecord, verbose: bool) -> Iterator[Row]:
    if record.partial:
        done = len(record.measurement.samples)
        yield (record.nodeid, DASH, DASH, DASH, DASH, f"interrupted after {done} requests")
        return
    for check in record.budgets:
        if verbose or not check.kept:
            yield _budget_row(record, check)
    for found in worst_of_each_metric(record.comparisons):
        if verbose or found.verdict is not Verdict.PASSED:
            yield _comparison_row(record, found)
    if record.verdict is Verdict.INVALID:
        reason = record.problems[-1] if record.problems else ""
        yield (record.nodeid, DASH, DASH, DASH, DASH, f"invalid: {reason.partition(';')[0]}")


def _budget_row(record: TestRecord, check: BudgetCheck) -> Row:
    unit_of = _metric_key(check.name)
    sign = "≥" if metric_of(unit_of).better == "higher" else "≤"
    label = f" of {check.label!r}" if check.label else ""
    metric = f"{check.name}{label} {sign} {quantity(check.limit, unit_of)}"
    now = DASH if check.observed is None else quantity(check.observed, unit_of)
    missed = "not measured" if check.observed is None else "budget missed"
    return (record.nodeid, metric, DASH, now, DASH, "budget kept" if check.kept else missed)


def _metric_key(budget_name: str) -> str:
    return next(m.key for m in METRICS.values() if budget_name.startswith(m.name))


def _comparison_row(record: TestRecord, found: Comparison) -> Row:
    return (
        record.nodeid,
        name(found),
        DASH if found.baseline is None else quantity(found.baseline, found.metric),
        DASH if found.now is None else quantity(found.now, found.metric),
        _change(found),
        _verdict(record, found),
    )


def _change(found: Comparison) -> str:
    if found.delta is None or found.ci is None:
        return DASH
    low, high = (percent(bound) for bound in found.ci)
    return f"{percent(found.delta)} ({low} to {high})"


def _verdict(record: TestRecord, found: Comparison) -> str:
    """The verdict with its number: what `passed` rules out, what was accepted."""
    if found.verdict is Verdict.SLOWER and record.accepted is not None:
        return f"slower, accepted: {record.accepted}"
    if found.verdict is Verdict.PASSED:
        return "passed: no slowdown above 20 %"
    return found.verdict.value.replace("_", " ")
