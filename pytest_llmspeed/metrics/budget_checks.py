"""A budget and a measurement → whether the budget is kept."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, isnan

from pytest_llmspeed.errors import TooFewSamplesError
from pytest_llmspeed.metrics.budgets import Budget, BudgetCheck
from pytest_llmspeed.metrics.load_figures import slo_broken
from pytest_llmspeed.metrics.load_result import LoadResult
from pytest_llmspeed.metrics.measurement import Measurement
from pytest_llmspeed.metrics.reasons import Explanation, Reason
from pytest_llmspeed.metrics.sample import TOKENS_PER_EVENT_LIMIT, Metric
from pytest_llmspeed.metrics.summary import quantile
from pytest_llmspeed.metrics.token_counts import DOUBTED


def check(budget: Budget, measurement: Measurement) -> BudgetCheck:
    """Return whether the measurement keeps the budget, judged by the point estimate.

    Each load is held against it by itself, all other requests together; the worst of them speaks. A
    metric that no request gave, or a quantile of too few samples, is not kept: "not measured".
    """
    chosen = measurement.labelled(budget.label)
    if budget.is_default and not chosen.samples:
        return budget.not_checked(Reason.NO_REQUEST_TO_CHECK())
    parts = [part for part in chosen.parts if part.load or budget.metric.per != "load"]
    if chosen.parts and not parts:
        return _not_measured(budget, Reason.ONLY_FOR_LOADS(metric=budget.metric.key))
    found = [_check(budget, part, measurement) for part in parts or [chosen]]
    return max(found, key=lambda each: _severity(budget, each))


def missed_by(load: LoadResult, budgets: Sequence[Budget]) -> tuple[str, ...]:
    """Return the names of the budgets that one load misses; failures miss one unless a budget allows them."""
    measurement = Measurement(load.samples, loads=(load,))
    checks = [check(budget, measurement) for budget in budgets]
    missed = [found.name for found in checks if found.kept is False]
    if load.failures and not any(budget.metric.name == "error_rate" for budget in budgets):
        missed.append("error_rate")
    return tuple(missed)


def _severity(budget: Budget, found: BudgetCheck) -> tuple[bool, bool, float]:
    """Not kept before kept, not measured before all, then by how bad the value is."""
    observed = found.observed or 0.0
    worse = observed if budget.metric.better == "lower" else -observed
    return not found.kept, found.observed is None, worse


def _check(budget: Budget, chosen: Measurement, whole: Measurement) -> BudgetCheck:
    if reason := _unmeasurable(budget, chosen, whole):
        return _not_measured(budget, reason)
    if budget.metric.name == "error_rate":
        return _check_error_rate(budget, chosen)
    if budget.metric.name == "peak_memory":
        return _check_peak_memory(budget, chosen)
    if _is_one_figure(budget, chosen):
        return _check_load(budget, chosen)
    values = chosen.values(budget.metric.key)
    try:
        observed = _statistic(budget, values)
    except TooFewSamplesError as few:
        return _not_measured(
            budget, Reason.TOO_FEW_SAMPLES(quantile=few.quantile, samples=few.n, needed=few.needed)
        )
    kept = not budget.metric.worse(observed, budget.limit)
    return BudgetCheck(budget.name, budget.limit, observed, kept, _interval(budget, values), budget.label)


def _is_one_figure(budget: Budget, chosen: Measurement) -> bool:
    """True of what a load has one value of: its own figures, and the throughput of its whole window."""
    whole_window = budget.metric.name == "throughput" and budget.statistic in ("median", "mean")
    return budget.metric.per == "load" or (whole_window and chosen.load is not None)


def _check_load(budget: Budget, chosen: Measurement) -> BudgetCheck:
    load, metric = chosen.load, budget.metric
    observed = load.figure(metric.key) if load else None
    if load is None or observed is None:
        no_limits = metric.name == "goodput" and load is not None and not load.slo
        return _not_measured(
            budget, Reason.NO_SLO() if no_limits else Reason.LOAD_HAS_NO_VALUE(metric=metric.key)
        )
    blocks = load.blocks.get(metric.key)
    interval = _mean_interval(blocks) if blocks else None
    kept = not metric.worse(observed, budget.limit)
    reason = None
    if metric.name == "goodput" and not kept:
        broken = slo_broken(load.samples, load.slo)
        reason = Reason.SLO_MISSED(broken=dict(broken), slo=dict(load.slo), failed=len(load.failures))
    return BudgetCheck(budget.name, budget.limit, observed, kept, interval, budget.label, reason)


def _not_measured(budget: Budget, reason: Explanation) -> BudgetCheck:
    return BudgetCheck(budget.name, budget.limit, None, False, None, budget.label, reason)


def _unmeasurable(budget: Budget, chosen: Measurement, whole: Measurement) -> Explanation | None:
    """Return why the budget's metric has no value, or None where it has."""
    if not chosen.samples:
        if budget.label is None:
            return Reason.NO_REQUEST()
        return Reason.NO_SUCH_LABEL(label=budget.label, seen=list(whole.labels))
    if budget.metric.per != "request" or chosen.values(budget.metric.key):
        return None
    if len(chosen.failures) == len(chosen.samples):
        return Reason.ALL_FAILED(failed=len(chosen.samples), error=chosen.samples[-1].error)
    return _no_figure(budget.metric, chosen)


def _no_figure(metric: Metric, chosen: Measurement) -> Explanation:
    """Return why requests that succeeded have no value of a metric."""
    succeeded = [sample for sample in chosen.samples if sample.ok]
    if all("non_streaming" in s.flags for s in succeeded) and metric.name != "throughput":
        return Reason.NOT_STREAMED()
    if metric.name in ("tpot", "itl", "throughput"):
        return _no_token_figure(metric.name, chosen)
    return Reason.NO_VALUE(metric=metric.key)


def _no_token_figure(metric: str, chosen: Measurement) -> Explanation:
    succeeded = [sample for sample in chosen.samples if sample.ok]
    if all(sample.output_tokens is None for sample in succeeded):
        doubted = any(DOUBTED in sample.flags for sample in succeeded)
        return Reason.TOKEN_COUNTS_DOUBTED() if doubted else Reason.NO_TOKEN_COUNTS()
    if all("buffered" in sample.flags for sample in succeeded):
        return Reason.ALL_IN_ONE_READ()
    if metric == "itl" and any(len(sample.itl_ms) for sample in succeeded):
        return Reason.SEVERAL_TOKENS_PER_EVENT(limit=TOKENS_PER_EVENT_LIMIT)
    return Reason.TOO_FEW_TOKENS()


def _statistic(budget: Budget, values: Sequence[float]) -> float:
    if budget.quantile is not None:
        return quantile(values, budget.quantile)
    return {"mean": lambda: sum(values) / len(values), "min": lambda: min(values)}.get(
        budget.statistic, lambda: max(values)
    )()


def _interval(budget: Budget, values: Sequence[float]) -> tuple[float | None, float | None] | None:
    """A 95 % interval: of a quantile by order statistics, of a mean by Student's t."""
    if len(values) < 2 or budget.statistic in ("min", "max"):
        return None
    if budget.quantile is None:
        return _mean_interval(values)
    from scipy.stats import quantile_test

    ci = quantile_test(values, p=budget.quantile).confidence_interval(0.95)
    return _or_none(float(ci.low)), _or_none(float(ci.high))


def _mean_interval(values: Sequence[float]) -> tuple[float, float]:
    from statistics import fmean, stdev

    from pytest_llmspeed.metrics.stats import t_quantile

    half = t_quantile(0.975, len(values) - 1) * stdev(values) / len(values) ** 0.5
    return fmean(values) - half, fmean(values) + half


def _or_none(value: float) -> float | None:
    return None if isnan(value) or not isfinite(value) else value


def _check_error_rate(budget: Budget, chosen: Measurement) -> BudgetCheck:
    from scipy.stats import binomtest

    failed, total = len(chosen.failures), len(chosen.samples)
    ci = binomtest(failed, total).proportion_ci(0.95, method="wilson")
    return BudgetCheck(
        name=budget.name,
        limit=budget.limit,
        observed=failed / total,
        kept=failed / total <= budget.limit,
        ci=(float(ci.low), float(ci.high)),
        label=budget.label,
    )


def _check_peak_memory(budget: Budget, chosen: Measurement) -> BudgetCheck:
    peak_mib = chosen.peak_memory_mib
    if peak_mib is None:
        return _not_measured(budget, Reason.MEMORY_UNKNOWN())
    return BudgetCheck(budget.name, budget.limit, peak_mib, peak_mib <= budget.limit, None, budget.label)
