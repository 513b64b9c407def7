"""Codes, figures and sentences in reports: what is written is read, in this schema and in the first."""

import pytest

import pytest_llmspeed.messages  # noqa: F401  words each reason
from pytest_llmspeed.metrics.budgets import BudgetCheck
from pytest_llmspeed.metrics.reasons import Explanation, Reason
from pytest_llmspeed.records.verdict_codec import (
    budget_check_from_builtins,
    comparison_from_builtins,
    comparison_to_builtins,
    explanation_from_builtins,
    explanation_to_builtins,
)
from pytest_llmspeed.regression.verdicts import Comparison, Verdict

SLOWER = Comparison(
    Verdict.SLOWER,
    Reason.WITH_EARLIER_SUSPECTS(suspects=2),
    "ttft_ms",
    baseline=240.0,
    now=312.4,
    delta=1.3,
    ci=(1.18, 1.43),
    sessions=5,
)
MISSED = BudgetCheck("ttft_ms", 300.0, 412.0, False, (350.0, None))


@pytest.mark.parametrize(
    "explanation",
    [
        Reason.TOO_FEW_REQUESTS(requests=3, least=5),
        Reason.SLOWER(comparison=SLOWER, changed=["torch: 2.5 → 2.6"]),
        Reason.FAILS_BY_OPTION(option="--llmspeed-strict", because=Reason.SUSPECT(comparison=SLOWER)),
        Reason.BUDGET_MISSED(
            check=BudgetCheck("ttft_ms", 300.0, 412.0, False, (350.0, None)), unit_of="ttft_ms"
        ),
        Reason.ANSWERS_SUSPECT(prompts="general", findings=[Reason.NOTHING_EXPECTED(asked=0)]),
    ],
)
def test_an_explanation_comes_back_as_it_was(explanation: Explanation) -> None:
    """With what it rests on, at any depth; the sentence stands beside the code."""
    shown = explanation_to_builtins(explanation)
    assert (shown["reason"], shown["sentence"]) == (explanation.reason.value, str(explanation))
    assert explanation_from_builtins(shown) == explanation


def test_a_sentence_of_the_first_schema_is_read_as_it_is_written() -> None:
    """An old report has no codes."""
    assert str(explanation_from_builtins("ttft_ms is slower")) == "ttft_ms is slower"
    old = {"name": "tpot_ms", "limit": 40.0, "observed": None, "kept": False, "ci": None, "label": None}
    assert str(budget_check_from_builtins({**old, "reason": "no token counts"}).reason) == "no token counts"
    assert budget_check_from_builtins({**old, "reason": ""}).reason is None


@pytest.mark.parametrize(
    "changes",
    [
        {"reason": "of_a_later_version"},
        {"figures": {}},
        {"figures": {"comparison": {"metric": "ttft_ms"}}},
        {"figures": {"comparison": 3}},
    ],
)
def test_what_cannot_be_worded_keeps_its_sentence(changes: dict[str, object]) -> None:
    """Of a later version, or edited by hand."""
    shown = {**explanation_to_builtins(Reason.SLOWER(comparison=SLOWER)), **changes}
    assert str(explanation_from_builtins(shown)) == shown["sentence"]


def test_a_comparison_has_its_reason_as_code_figures_and_sentence() -> None:
    """None of them where there is nothing to explain."""
    shown = comparison_to_builtins(SLOWER)
    assert (shown["reason"], shown["figures"]) == ("with_earlier_suspects", {"suspects": 2})
    assert shown["sentence"] == "on average of this run and the 2 suspect runs before it"
    plain = comparison_to_builtins(Comparison(Verdict.PASSED, metric="ttft_ms"))
    assert (plain["reason"], plain["figures"], plain["sentence"]) == (None, {}, "")
    assert comparison_from_builtins(shown) == SLOWER
