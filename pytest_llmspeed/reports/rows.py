"""What every report for people says of the records: rows, sentences, counts. Drawn elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from pytest_llmspeed.messages.figures import counted, percent, quantity, size
from pytest_llmspeed.messages.run import slower_beside, suite_shift
from pytest_llmspeed.messages.speed import location, name
from pytest_llmspeed.metrics.budgets import BudgetCheck
from pytest_llmspeed.metrics.reasons import as_sentences
from pytest_llmspeed.metrics.sample import METRICS, metric_of
from pytest_llmspeed.quality.findings import QualityStatus, SetFindings
from pytest_llmspeed.records.record import SuiteVerdict, TestRecord
from pytest_llmspeed.regression.verdicts import Comparison, Verdict, worst_of_each_metric
from pytest_llmspeed.reports.folding import advice_of, cut

HEADERS = ("test", "metric", "baseline", "now", "change", "verdict")
DASH = "–"
OVER_BUDGET = "failed by a budget"

Row = tuple[str, str, str, str, str, str]
AddressedSentence = tuple[tuple[str, ...], str]
"""Node ids of the tests that a sentence is about (none: the run), and the sentence."""


def rows(record: TestRecord, *, verbose: bool) -> Iterator[Row]:
    """Yield the rows of a test: of what is not passed, with `verbose` of everything."""
    if record.partial:
        done = counted(len(record.measurement.samples), "request")
        yield (record.nodeid, DASH, DASH, DASH, DASH, f"interrupted after {done}")
        return
    for check in record.budgets:
        if verbose or check.kept is False:
            yield _budget_row(record, check)
    worst = worst_of_each_metric(record.comparisons)
    unknown = [found for found in worst if found.verdict is Verdict.NO_BASELINE]
    if len(unknown) > 1 and not verbose:
        worst = [found for found in worst if found not in unknown]
        yield _without_baseline(record, unknown)
    for found in worst:
        if verbose or found.verdict is not Verdict.PASSED:
            yield _comparison_row(record, found)
    for answers in record.quality:
        if verbose or answers.status is not QualityStatus.PASSED:
            yield _quality_row(record, answers)
    if record.verdict is Verdict.INVALID and not any(
        s.status is QualityStatus.FAILED for s in record.quality
    ):
        reason = str(record.problems[-1]) if record.problems else ""
        yield (record.nodeid, DASH, DASH, DASH, DASH, f"invalid: {reason.partition(';')[0]}")
    if record.verdict is None and record.problems and not record.budgets:
        yield (record.nodeid, DASH, DASH, DASH, DASH, "nothing measured")


def _budget_row(record: TestRecord, check: BudgetCheck) -> Row:
    unit_of = _metric_key(check.name)
    sign = "≥" if metric_of(unit_of).better == "higher" else "≤"
    label = f" of {check.label!r}" if check.label else ""
    metric = f"{check.name}{label} {sign} {quantity(check.limit, unit_of)}"
    now = DASH if check.observed is None else quantity(check.observed, unit_of)
    return (record.nodeid, metric, DASH, now, DASH, _budget_word(check))


def _budget_word(check: BudgetCheck) -> str:
    if check.kept is None:
        return f"not checked: {check.reason}"
    if check.observed is None:
        return "not measured"
    if not check.kept:
        return "budget missed"
    return "budget kept, a close call" if check.close_call else "budget kept"


def _metric_key(budget_name: str) -> str:
    return next(m.key for m in METRICS.values() if budget_name.startswith(m.name))


def _comparison_row(record: TestRecord, comparison: Comparison) -> Row:
    return (
        record.nodeid,
        name(comparison),
        DASH if comparison.baseline is None else quantity(comparison.baseline, comparison.metric),
        DASH if comparison.now is None else quantity(comparison.now, comparison.metric),
        _change_and_place(comparison),
        _verdict(record, comparison),
    )


def _without_baseline(record: TestRecord, unknown: Sequence[Comparison]) -> Row:
    """One row for all metrics of a test that have nothing to be compared with."""
    now = (DASH if found.now is None else quantity(found.now, found.metric) for found in unknown)
    names = ", ".join(map(name, unknown))
    return (record.nodeid, names, DASH, ", ".join(now), DASH, _verdict(record, unknown[0]))


def _quality_row(record: TestRecord, findings: SetFindings) -> Row:
    scores = [(a.baseline_score, a.score) for a in findings.answers if a.score is not None]
    before = [score for score, _ in scores if score is not None]
    return (
        record.nodeid,
        f"quality of {findings.prompts}",
        f"{sum(before):g} of {len(before)}" if before else DASH,
        f"{sum(score for _, score in scores):g} of {len(scores)}" if scores else DASH,
        DASH,
        _quality_verdict(findings),
    )


def _quality_verdict(findings: SetFindings) -> str:
    if findings.accepted is not None:
        return f"accepted: {findings.accepted}"
    rungs = [finding.rung for finding in findings.rungs if finding.status is findings.status]
    if findings.status is QualityStatus.PASSED:
        return "passed"
    return (
        "no baseline"
        if findings.status is QualityStatus.NO_BASELINE
        else f"{findings.status.value}: {', '.join(rungs)}"
    )


def change(found: Comparison) -> str | None:
    """Return the change with its 95% interval, "+12% (+3.0% to +21%)"; None where there is none."""
    if found.delta is None or found.ci is None:
        return None
    low, high = (percent(bound) for bound in found.ci)
    return f"{percent(found.delta)} ({low} to {high})"


def _change_and_place(comparison: Comparison) -> str:
    """The change, with the location that it was found at unless that is the row's own two figures."""
    moved = change(comparison) or DASH
    return f"{moved} at {location(comparison)}" if comparison.at_another_location else moved


def _verdict(record: TestRecord, comparison: Comparison) -> str:
    """The verdict with its number: what `passed` rules out, what could not be seen, what was accepted."""
    if comparison.verdict is Verdict.SLOWER and record.accepted is not None:
        return f"slower, accepted: {record.accepted}"
    if comparison.verdict is Verdict.PASSED:
        return f"passed: no slowdown above {'10%' if comparison.blocks else '20%'}"
    if comparison.verdict is Verdict.SUSPECT:
        return "suspect: may be slower"
    if comparison.verdict is Verdict.INCONCLUSIVE and comparison.visible is not None:
        return f"inconclusive: a slowdown under {size(comparison.visible)} would not show"
    return comparison.verdict.value.replace("_", " ")


def rows_of_all(
    records: Sequence[TestRecord], *, verbose: bool, most: int | None, keep_failures: bool = True
) -> tuple[list[Row], int]:
    """Return the rows of tests, at most so many, and how many are left out.

    Those of tests that fail come before all others where not all can be shown, and are never left out,
    but with `keep_failures=False`.
    """
    found = [(row, bool(record.problems)) for record in records for row in rows(record, verbose=verbose)]
    if most is not None and len(found) > most:
        found.sort(key=lambda each: not each[1])
    return cut([row for row, _ in found], most, kept=[fails and keep_failures for _, fails in found])


def left_out(number: int, thing: str, where: str) -> str:
    """Return the line that ends a list which is not shown to its end."""
    return f"… and {number:,} more {thing}{'' if number == 1 else 's'}; see {where}"


def sentences(
    records: Sequence[TestRecord], *, failures: bool = False, fold: bool = True
) -> Iterator[AddressedSentence]:
    """Yield each piece of advice once, with the tests that it is for.

    With `failures` the sentences that fail tests come first: for a report that stands alone. With `fold`
    tests that are undecided for one reason share a sentence.
    """
    if failures:
        yield from once([(record.nodeid, as_sentences(record.problems)) for record in records])
    advice = (
        advice_of(records) if fold else [(record.nodeid, as_sentences(record.advice)) for record in records]
    )
    yield from once(advice)


def of_suite(suite: SuiteVerdict | None) -> Iterator[AddressedSentence]:
    """Yield what the tests of the run say together."""
    if suite is None:
        return
    for shift in suite.shifts:
        if shift.verdict is Verdict.SLOWER:
            yield (), suite_shift(shift.metric, shift.delta, shift.ci, shift.tests, suite.accepted)
    for nodeid, found in suite.alone:
        yield (nodeid,), slower_beside(found, suite.accepted)


def once(sentences_by_test: Sequence[tuple[str, Sequence[str]]]) -> Iterator[AddressedSentence]:
    """Yield each sentence once, with the tests that say it."""
    tests: dict[str, list[str]] = {}
    for nodeid, sentences_of_test in sentences_by_test:
        for sentence in sentences_of_test:
            tests.setdefault(sentence, []).append(nodeid)
    for sentence, nodeids in tests.items():
        yield tuple(nodeids), sentence


def counts(records: Sequence[TestRecord]) -> str:
    """Return one line that says how many tests were measured and what was found."""
    found = Counter(word_of(record) for record in records)
    order = [verdict.value for verdict in Verdict]
    parts = [f"{found[word]} {spoken(word)}" for word in sorted(found, key=lambda w: _place(order, w))]
    missed = sum(check.kept is False for record in records for check in record.budgets)
    if missed:
        parts.append(f"{counted(missed, 'budget')} missed")
    measured = sum(_was_measured(record) for record in records)
    return f"{counted(measured, 'test')} measured: {', '.join(parts) or 'nothing'}"


def _place(order: list[str], word: str) -> int:
    return order.index(word) if word in order else len(order)


def word_of(record: TestRecord) -> str:
    """Return what the counting line calls a test."""
    if record.partial:
        return "interrupted"
    if record.verdict not in (Verdict.INVALID, Verdict.SLOWER) and any(not c.kept for c in record.budgets):
        return OVER_BUDGET
    if record.accepted is not None:
        return "accepted"
    if record.verdict is not None:
        return record.verdict.value
    return "not compared" if _was_measured(record) else "not measured"


def _was_measured(record: TestRecord) -> bool:
    return record.verdict is not None or record.partial or bool(record.measurement.samples)


def spoken(word: str) -> str:
    """Return the word of a verdict as a sentence says it."""
    return "without baseline" if word == Verdict.NO_BASELINE else word
