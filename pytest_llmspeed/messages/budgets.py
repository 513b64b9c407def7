"""Sentences on budgets: missed, kept by a hair, not measured, not checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_llmspeed.messages.figures import counted, quantity
from pytest_llmspeed.metrics.budgets import BudgetCheck
from pytest_llmspeed.metrics.reasons import Reason, words

SET_A_TOKENIZER = "set tokenizer= in the llm_backend mark to a folder or hub id"


@words(Reason.BUDGET_MISSED)
def missed(check: BudgetCheck, unit_of: str) -> str:
    """The sentence that fails a test over a budget."""
    where = f" of {check.label!r}" if check.label else ""
    if check.observed is None:
        return f"{check.name}{where} not measured: {check.reason}"
    side = "below" if check.observed < check.limit else "above"
    observed, limit = quantity(check.observed, unit_of), quantity(check.limit, unit_of)
    why = f": {check.reason}" if check.reason else ""
    return f"{check.name}{where} is {observed}, {side} its budget of {limit}{_interval(check, unit_of)}{why}"


@words(Reason.CLOSE_CALL)
def close_call(check: BudgetCheck, unit_of: str) -> str:
    """The sentence on a budget that was kept, but not beyond doubt."""
    observed, limit = quantity(check.observed or 0.0, unit_of), quantity(check.limit, unit_of)
    start = f"{check.name} is a close call: {observed}, its budget is {limit}{_interval(check, unit_of)}"
    return f"{start}; the next run may miss it"


def _interval(check: BudgetCheck, unit_of: str) -> str:
    if check.ci is None:
        return ""
    low, high = (None if bound is None else quantity(bound, unit_of) for bound in check.ci)
    if low and high:
        return f" (95% interval {low} to {high})"
    if low or high:
        return f" (95% interval {f'at least {low}' if low else f'at most {high}'})"
    return " (too few requests for an interval)"


@words(Reason.NO_REQUEST)
def no_request() -> str:
    """No request to hold against the budget."""
    return "no request was measured"


@words(Reason.NO_REQUEST_TO_CHECK)
def no_request_to_check() -> str:
    """A default budget that concerns nothing in this test."""
    return "it applies to no measured request"


@words(Reason.NO_SUCH_LABEL)
def no_such_label(label: str, seen: Sequence[str | None]) -> str:
    """A budget on a label that no request has."""
    return f"no request has the label {label!r}; labels seen: {list(seen)}"


@words(Reason.ALL_FAILED)
def all_failed(failed: int, error: str | None) -> str:
    """No request succeeded."""
    return f"all {failed} requests failed: {error}"


@words(Reason.NOT_STREAMED)
def not_streamed() -> str:
    """Answers that came whole."""
    return "the answers were not streamed, so only their end-to-end time is known"


@words(Reason.NO_VALUE)
def no_value(metric: str) -> str:
    """Requests that succeeded without a value of the metric."""
    return f"no request gave a value of {metric}"


@words(Reason.TOKEN_COUNTS_DOUBTED)
def token_counts_doubted() -> str:
    """Counts that the stream contradicts."""
    return (
        "the server's token counts (usage) contradict what it streamed, so they are not used: "
        + SET_A_TOKENIZER
    )


@words(Reason.NO_TOKEN_COUNTS)
def no_token_counts() -> str:
    """Answers of unknown length."""
    return f"the server gave no token counts (usage) and no tokenizer is configured: {SET_A_TOKENIZER}"


@words(Reason.ALL_IN_ONE_READ)
def all_in_one_read() -> str:
    """Text that came at once."""
    return "all text arrived in one read, so there is no time between tokens: is a proxy buffering?"


@words(Reason.SEVERAL_TOKENS_PER_EVENT)
def several_tokens_per_event(limit: float) -> str:
    """Gaps that are not gaps between tokens."""
    return f"events carry more than {limit} tokens each; use tpot_ms"


@words(Reason.TOO_FEW_TOKENS)
def too_few_tokens() -> str:
    """Answers of one token."""
    return "the answers had fewer than two tokens: raise max_tokens"


@words(Reason.TOO_FEW_SAMPLES)
def too_few_samples(quantile: float, samples: int, needed: int) -> str:
    """A quantile that so few requests do not have."""
    return f"p{quantile * 100:g} needs at least {needed} samples, there are {samples}"


@words(Reason.MEMORY_UNKNOWN)
def memory_unknown() -> str:
    """An engine whose memory nobody can read."""
    return (
        "the memory of this engine is not known: it is read on Linux, of engines that the run itself starts, "
        "on a GPU of those in this process"
    )


@words(Reason.ONLY_FOR_LOADS)
def only_for_loads(metric: str) -> str:
    """A budget on what only loads have."""
    return f"{metric} exists only for loads: use llm_client.load(…)"


@words(Reason.NO_SLO)
def no_slo() -> str:
    """Goodput without limits to keep."""
    return "the load has no slo: say what a good request is, as in load(…, slo={'ttft_ms': 300})"


@words(Reason.SLO_MISSED)
def slo_missed(broken: Mapping[str, int], slo: Mapping[str, float], failed: int) -> str:
    """Return which limits of an slo were broken, and in how many requests."""
    limits = [
        f"{metric} > {slo[metric]:g} in {counted(count, 'request')}" for metric, count in broken.items()
    ]
    return ", ".join([*limits, *([f"{counted(failed, 'request')} failed"] if failed else [])])


@words(Reason.LOAD_HAS_NO_VALUE)
def load_has_no_value(metric: str) -> str:
    """A load without a figure."""
    if metric == "steady_tps":
        return "the load never had all its slots taken, or it is not a closed loop; send more requests"
    return f"no request of the load gave a value of {metric}: they failed or came without token counts"


@words(Reason.OTHER_ENVIRONMENT)
def other_environment(wanted: str, here: str) -> str:
    """A budget that holds elsewhere."""
    return f"for environment {wanted!r}, this is {here!r}"


@words(Reason.SMOKE_RUN_TOO_SHORT)
def smoke_run_too_short(needed: int, rounds: int) -> str:
    """A budget that needs more requests than a smoke run takes."""
    return f"needs {needed} requests, --llmspeed-rounds={rounds}"
