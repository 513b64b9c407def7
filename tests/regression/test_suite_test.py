"""What the tests of a run say together, on simulated sessions."""

from __future__ import annotations

import random
from math import exp

import pytest

from pytest_llmspeed.regression.suite_test import SuiteTest, common_shift, slower_beside
from pytest_llmspeed.regression.verdicts import Verdict

SESSIONS = 5


def suite(
    seed: int = 1, tests: int = 8, shift: float = 1.0, moods: dict[str, float] | None = None
) -> list[SuiteTest]:
    """Tests of about 100 ms with a request spread of 1%; `moods` multiply whole sessions."""
    rng = random.Random(seed)

    def session(factor: float) -> list[float]:
        return [100 * factor * exp(rng.gauss(0, 0.01)) for _ in range(12)]

    factors = moods or {f"s{number}": 1.0 for number in range(SESSIONS)}
    return [
        SuiteTest(f"test_{number}", {name: session(mood) for name, mood in factors.items()}, session(shift))
        for number in range(tests)
    ]


def test_fewer_than_six_tests_share_nothing():
    """A shift of five tests may be the tests' own."""
    assert common_shift(suite(tests=5)) is None


def test_an_unchanged_suite_passes():
    """Nothing moved: the ratio is 1 within its interval."""
    shift = common_shift(suite())
    assert shift is not None
    assert shift.verdict is Verdict.PASSED
    assert shift.ci[0] < 1 < shift.ci[1]


@pytest.mark.parametrize(("factor", "verdict"), [(1.25, Verdict.SLOWER), (0.75, Verdict.FASTER)])
def test_a_shift_of_all_tests_is_named(factor: float, verdict: Verdict):
    """An engine that became 25% slower or faster is seen as such, with its size."""
    shift = common_shift(suite(shift=factor))
    assert shift is not None
    assert shift.verdict is verdict
    assert shift.ratio == pytest.approx(factor, rel=0.02)
    assert (shift.tests, shift.sessions) == (8, SESSIONS)


def test_a_machine_whose_sessions_differ_needs_a_larger_shift():
    """Where whole sessions lie 8% apart, one 10% above their mean says little."""
    moods = {"a": 0.92, "b": 1.08, "c": 0.95, "d": 1.06, "e": 0.99}
    shift = common_shift(suite(shift=1.1, moods=moods))
    assert shift is not None
    assert shift.verdict is Verdict.INCONCLUSIVE


def test_a_test_with_many_strata_counts_once():
    """Six strata of one test are one test, and do not outvote five others."""
    several = suite(tests=6, shift=1.3)
    one = [SuiteTest("test_0", each.baseline, each.new) for each in several]
    assert common_shift([*one, *suite(tests=5)[1:]]) is None
    shift = common_shift([*one, *suite(tests=7)[1:]])
    assert shift is not None
    assert shift.tests == 7
    assert shift.ratio == pytest.approx(1.0, abs=0.02)


def test_the_order_of_tests_changes_nothing():
    """The suite is a set."""
    tests = suite(shift=1.07)
    assert common_shift(tests) == common_shift(tests[::-1])


def test_one_test_slower_beside_an_unchanged_suite_on_a_moody_machine():
    """Alone its sessions differ too much to say; with the moods of all taken out it is plain."""
    moods = {"a": 0.88, "b": 1.12, "c": 0.93, "d": 1.1, "e": 0.97}
    tests = suite(moods=moods, tests=12)
    slow = SuiteTest("slow", tests[0].baseline, [value * 1.25 for value in tests[0].new])
    shift = common_shift([*tests[1:], slow])
    assert shift is not None
    assert slower_beside(tests[1], shift) is None
    found = slower_beside(slow, shift)
    assert found is not None
    assert found.delta == pytest.approx(1.25, rel=0.03)


def test_a_test_that_moved_with_the_suite_is_not_slower_beside_it():
    """All became 30% slower: none of them is slower than the others."""
    tests = suite(shift=1.3)
    shift = common_shift(tests)
    assert shift is not None
    assert not any(slower_beside(test, shift) for test in tests)


def test_tests_whose_own_sessions_differ_teach_how_much_that_is():
    """Where each test has moods of its own, of 10%, none of 20 unchanged suites has a slower test."""
    rng = random.Random(7)

    def moody(number: int) -> SuiteTest:
        sessions = [[100 * mood * exp(rng.gauss(0, 0.03)) for _ in range(20)] for mood in moods()]
        return SuiteTest(
            f"test_{number}", {f"s{place}": s for place, s in enumerate(sessions[1:])}, sessions[0]
        )

    def moods() -> list[float]:
        return [exp(rng.gauss(0, 0.1)) for _ in range(4)]

    def is_calm(tests: list[SuiteTest]) -> bool:
        shift = common_shift(tests)
        assert shift is not None
        return not any(slower_beside(test, shift, comparisons=len(tests)) for test in tests)

    assert sum(is_calm([moody(number) for number in range(20)]) for _ in range(20)) == 20
