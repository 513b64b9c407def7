"""The table of what fails a test and what may be stored."""

import pytest

from pytest_llmspeed.metrics.budgets import BudgetCheck
from pytest_llmspeed.regression.verdicts import (
    CONSEQUENCES,
    Comparison,
    Verdict,
    gravest,
    worst_of_each_metric,
)

V = Verdict


@pytest.mark.parametrize(
    ("verdict", "fails", "stored", "if_required", "if_strict"),
    [
        (V.INVALID, True, False, False, False),
        (V.SLOWER, True, False, False, False),
        (V.SUSPECT, False, True, False, True),
        (V.INCONCLUSIVE, False, True, False, True),
        (V.INCOMPARABLE, False, True, True, False),
        (V.NO_BASELINE, False, True, True, False),
        (V.FASTER, False, True, False, False),
        (V.PASSED, False, True, False, False),
    ],
)
def test_each_verdict_has_the_consequences_that_are_promised(verdict, fails, stored, if_required, if_strict):
    """The table in the code is the table in the documentation."""
    found = CONSEQUENCES[verdict]
    assert (found.fails, found.stored) == (fails, stored)
    assert (found.fails_if_required, found.fails_if_strict) == (if_required, if_strict)


def test_no_verdict_is_without_consequences():
    """A new verdict has to be entered in the table."""
    assert CONSEQUENCES.keys() == set(Verdict)


def test_the_gravest_verdict_speaks_for_all():
    """One slower metric makes the test slower; nothing compared is no verdict."""
    assert gravest([V.PASSED, V.SLOWER, V.NO_BASELINE]) is V.SLOWER
    assert gravest([V.PASSED, V.FASTER]) is V.FASTER
    assert gravest([V.INCONCLUSIVE, V.PASSED]) is V.INCONCLUSIVE
    assert gravest([]) is None


@pytest.mark.parametrize(
    ("observed", "ci", "close"),
    [
        (95, (90, 110), True),
        (95, (90, 100), True),
        (95, (80, 99), False),
        (95, (90, None), False),
        (95, (None, 110), True),
        (105, (95, 110), True),
        (105, (101, 110), False),
        (105, (None, 110), False),
        (95, None, False),
    ],
)
def test_a_close_call_is_an_interval_that_reaches_the_limit(observed, ci, close):
    """From the side of the figure, bounds included; a bound that is not known reaches nothing."""
    assert BudgetCheck("ttft_ms", 100, observed, True, ci).close_call is close


def test_the_gravest_stratum_speaks_for_its_metric():
    """One comparison a metric, in order of first appearance, wherever the worst stands."""
    good, bad = Comparison(V.PASSED, metric="ttft_ms"), Comparison(V.SLOWER, metric="ttft_ms")
    other = Comparison(V.NO_BASELINE, metric="tpot_ms")
    assert worst_of_each_metric([good, other, bad]) == [bad, other]
    assert worst_of_each_metric([bad, good]) == [bad]
    assert worst_of_each_metric([]) == []
