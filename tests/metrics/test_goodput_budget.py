"""A missed goodput says which limits of the slo were broken, and how often."""

from pytest_llmspeed.messages.budgets import missed as budget_missed
from pytest_llmspeed.metrics.budget_checks import check
from pytest_llmspeed.metrics.budgets import parse_budgets
from pytest_llmspeed.metrics.load_result import LoadResult
from pytest_llmspeed.metrics.measurement import Measurement

SLO = {"ttft_ms": 300, "tpot_ms": 25}


def missed(samples, goodput):
    load = LoadResult(asked={}, samples=tuple(samples), slo=SLO, goodput=goodput)
    found = check(*parse_budgets({"goodput": 0.9}), Measurement(load.samples, loads=(load,)))
    return found, budget_missed(found, "goodput")


def test_each_broken_limit_is_named_with_its_requests(sample):
    """A request that broke both counts for both."""
    slow_start = [sample(ttft_ms=400.0, call="load") for _ in range(2)]
    slow_tokens = [sample(tpot_ms=30.0, call="load")]
    both = [sample(ttft_ms=400.0, tpot_ms=30.0, call="load")]
    good = [sample(call="load") for _ in range(4)]
    found, sentence = missed([*slow_start, *slow_tokens, *both, *good], 0.5)
    assert found.kept is False
    assert sentence == (
        "goodput is 0.5, below its budget of 0.9: ttft_ms > 300 in 3 requests, tpot_ms > 25 in 2 requests"
    )


def test_a_limit_that_all_kept_is_not_named(sample):
    """Failed requests are."""
    samples = [sample(tpot_ms=30.0, call="load"), sample(error="HTTP 500", call="load")]
    _, sentence = missed(samples, 0.0)
    assert sentence.endswith(": tpot_ms > 25 in 1 request, 1 request failed")


def test_a_kept_goodput_says_nothing_further(sample):
    """Nobody asked."""
    found, _ = missed([sample(call="load")], 1.0)
    assert found.kept
    assert found.reason is None
