"""The records of a run → the suite verdict: a shift that all tests share, and tests slower beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pytest_llmspeed.baselines.sessions import GATED, Session
from pytest_llmspeed.baselines.window import Window
from pytest_llmspeed.records.record import SuiteShift, SuiteVerdict, TestRecord
from pytest_llmspeed.regression.suite_test import CommonShift, SuiteTest, common_shift, slower_beside
from pytest_llmspeed.regression.verdicts import Comparison, Verdict, gravest


@dataclass(frozen=True, slots=True)
class JudgedTest:
    """A test of the run with its stored sessions, and itself as a session."""

    record: TestRecord
    window: Window
    now: Session


@dataclass(frozen=True, slots=True)
class _Member:
    """One comparison of one test, as the suite sees it."""

    judged: JudgedTest
    stratum: str
    test: SuiteTest


def judge_suite(
    tests: Sequence[JudgedTest], comparisons: int, accept: str | None = None
) -> SuiteVerdict | None:
    """Return what the tests say together, None where they are too few to share anything.

    It changes no test's outcome. `comparisons` is M, as for the single tests; a slowdown may be
    accepted with a reason.
    """
    shifts: list[SuiteShift] = []
    alone: list[tuple[str, Comparison]] = []
    for environment in dict.fromkeys(test.record.environment for test in tests):
        here = [test for test in tests if test.record.environment == environment]
        for metric in GATED:
            members = list(_members(here, metric))
            spans_a_day = all(member.judged.window.spans_a_day for member in members)
            shift = common_shift([member.test for member in members], spans_a_day=spans_a_day)
            if shift is not None:
                shifts.append(_shown(environment, metric, shift))
                alone += _slower_beside(members, shift, metric, comparisons)
    if not shifts:
        return None
    verdict = gravest([shift.verdict for shift in shifts]) or Verdict.PASSED
    found = SuiteVerdict(verdict, tuple(shifts), tuple(alone))
    return replace(found, accepted=accept) if found.fails else found


def _members(tests: Sequence[JudgedTest], metric: str) -> Iterator[_Member]:
    for each in tests:
        compared = {
            comparison.stratum
            for comparison in each.record.comparisons
            if comparison.delta is not None and comparison.prompt_tokens is None
        }
        for stratum, series in each.now.series.items():
            stored = {
                session.replicate: session.series[stratum].values[metric]
                for session in each.window.sessions
                if stratum in session.series and metric in session.series[stratum].values
            }
            if stratum in compared and stored and metric in series.values:
                test = SuiteTest(each.record.nodeid, stored, series.values[metric])
                yield _Member(each, stratum, test)


def _shown(environment: str, metric: str, shift: CommonShift) -> SuiteShift:
    return SuiteShift(
        environment=environment,
        metric=metric,
        verdict=shift.verdict,
        delta=shift.ratio,
        ci=shift.ci,
        p_session=shift.p,
        tests=shift.tests,
        sessions=shift.sessions,
    )


def _slower_beside(
    members: Sequence[_Member], shift: CommonShift, metric: str, comparisons: int
) -> Iterator[tuple[str, Comparison]]:
    """The tests that are slower once the shift of all is taken out, and were not found so alone."""
    for member in members:
        if member.judged.record.verdict is Verdict.SLOWER:
            continue
        spans_a_day = member.judged.window.spans_a_day
        found = slower_beside(member.test, shift, comparisons=comparisons, spans_a_day=spans_a_day)
        if found:
            yield member.judged.record.nodeid, replace(found, metric=metric, stratum=member.stratum)
