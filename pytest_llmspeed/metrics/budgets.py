"""Budgets: `llm_budget(ttft_p95_ms=300)` → a limit on a statistic, and whether it was kept."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import isfinite, isnan

from pytest_llmspeed.errors import SettingsError, TooFewSamplesError, did_you_mean
from pytest_llmspeed.messages.load import no_load, no_load_figure, no_slo, slo_missed
from pytest_llmspeed.metrics.exchange import plain_text
from pytest_llmspeed.metrics.load_figures import slo_broken
from pytest_llmspeed.metrics.measurement import Measurement
from pytest_llmspeed.metrics.sample import METRICS, TOKENS_PER_EVENT_LIMIT, Metric
from pytest_llmspeed.metrics.summary import needed_samples, quantile
from pytest_llmspeed.metrics.token_counts import DOUBTED
from pytest_llmspeed.regression.verdicts import BudgetCheck
from pytest_llmspeed.system.environment import slug

NARROWING = ("label", "backend", "environment")
UNKNOWN_MEMORY = (
    "the memory of this engine is not known: it is read on Linux, of engines that the run itself starts, "
    "on a GPU of those in this process"
)
Slot = tuple[str, str | None, str | None]
"""Name, label and backend of a budget."""
_STATISTIC = re.compile(r"median|mean|min|max|p[1-9][0-9]?")


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit on one statistic of one metric. `label`, `backend`, `environment` narrow what it holds for."""

    metric: Metric
    statistic: str
    limit: float
    label: str | None = None
    backend: str | None = None
    environment: str | None = None
    is_default: bool = False
    """True of those in the settings: they hold for what a test measures, and ask for nothing."""

    @property
    def name(self) -> str:
        """The name as a mark spells it, as in `ttft_p95_ms`."""
        middle = "" if self.statistic in ("median", "whole") else f"_{self.statistic}"
        unit = f"_{self.metric.unit}" if self.metric.unit else ""
        return f"{self.metric.name}{middle}{unit}"

    @property
    def slot(self) -> Slot:
        """What a closer mark's budget of the same name replaces; in an environment, also a general one."""
        return self.name, self.label, self.backend

    def not_checked(self, reason: str) -> BudgetCheck:
        """Return the check of a budget that this run leaves out."""
        return BudgetCheck(self.name, self.limit, None, None, None, self.label, reason)

    @property
    def quantile(self) -> float | None:
        """The quantile that is limited, None for mean, min, max and shares."""
        if self.statistic == "median":
            return 0.5
        return int(self.statistic[1:]) / 100 if self.statistic.startswith("p") else None

    @property
    def needs_requests(self) -> int:
        """How many requests the statistic needs (of gaps between tokens one request gives many)."""
        if self.quantile is None or self.metric.name == "itl":
            return 1
        return needed_samples(self.quantile)

    @property
    def gates(self) -> bool:
        """True if the metric is also compared with the baseline; a tail is a limit only."""
        return self.statistic in ("median", "mean") or self.metric.name == "requests"


def parse_budgets(limits: Mapping[str, object]) -> list[Budget]:
    """Return the budgets of one `llm_budget(...)`; raises `SettingsError` naming the first wrong one.

    A limit of None is no budget: it lifts one, see `merged`.
    """
    label, backend, environment = (_narrowing(limits, name) for name in NARROWING)
    named = {name: limit for name, limit in limits.items() if name not in NARROWING}
    if not named:
        raise SettingsError("llm_budget() sets no limit: write e.g. llm_budget(ttft_ms=300)")
    parsed = [(*_metric_and_statistic(name), _limit(name, value)) for name, value in named.items()]
    return [
        Budget(metric, statistic, limit, label, backend, environment)
        for metric, statistic, limit in parsed
        if limit is not None
    ]


def merged(
    layers: Sequence[Sequence[Mapping[str, object]]], defaults: Sequence[Budget] = ()
) -> tuple[Budget, ...]:
    """Return the budgets of the keywords of marks, layer by layer, the farthest first; the closest are last.

    A closer limit replaces one of its name and narrowing, `defaults` are the farthest; None lifts it
    (without narrowing, each of that name). Within a layer those of an environment count as closer than
    general ones.
    """
    found = {(budget.slot, budget.environment): budget for budget in defaults}
    for layer in layers:
        for limits in sorted(layer, key=lambda each: each.get("environment") is not None):
            budgets = parse_budgets(limits)
            for slot in [slot for slot in found if _is_lifted(slot, limits)]:
                del found[slot]
            for budget in budgets:
                found.pop((budget.slot, budget.environment), None)
                found[budget.slot, budget.environment] = budget
    return tuple(found.values())


def default_budgets(text: str | Sequence[str]) -> list[Budget]:
    """Return the budgets of the setting `llmspeed_budget`: a line of `name=value` words for each mark.

    Raises `SettingsError` for a word that is none.
    """
    lines = text.splitlines() if isinstance(text, str) else text
    try:
        found = merged([[_words(line)] for line in lines if line.strip()])
    except SettingsError as error:
        raise SettingsError(f"llmspeed_budget: {error}") from error
    return [replace(budget, is_default=True) for budget in found]


def _words(line: str) -> dict[str, object]:
    words: dict[str, object] = {}
    for word in line.replace(",", " ").split():
        name, equals, value = word.partition("=")
        if not equals:
            raise SettingsError(f"{word!r} sets no limit: write name=value, as in ttft_ms=300 tpot_ms=40")
        words[name] = value if name in NARROWING else _number(value)
    return words


def _number(value: str) -> object:
    try:
        return float(value)
    except ValueError:
        return value


def _is_lifted(key: tuple[Slot, str | None], limits: Mapping[str, object]) -> bool:
    (name, label, backend), environment = key
    narrowed = [limits.get(each) for each in NARROWING]
    lifts = {_name_of(limit) for limit, value in limits.items() if value is None and limit not in NARROWING}
    return name in lifts and (not any(narrowed) or narrowed == [label, backend, environment])


def _name_of(limit: str) -> str:
    return Budget(*_metric_and_statistic(limit), 0.0).name


def in_environment(budgets: Sequence[Budget], environment: str) -> tuple[list[Budget], list[BudgetCheck]]:
    """Return the budgets that hold in an environment, and those of other environments as not checked.

    `environment=` of a budget is a name, or a pattern with * and ?. Of several in one slot that hold, the
    last one counts.
    """
    holding: dict[Slot, Budget] = {}
    elsewhere: list[BudgetCheck] = []
    for budget in budgets:
        if budget.environment is None or _matches(budget.environment, environment):
            holding[budget.slot] = budget
        else:
            reason = f"for environment {budget.environment!r}, this is {environment!r}"
            elsewhere.append(budget.not_checked(reason))
    return list(holding.values()), elsewhere


def _matches(pattern: str, environment: str) -> bool:
    parts = re.split(r"([*?])", pattern)
    return fnmatchcase(environment, "".join(slug(part) if part.strip("*? ") else part for part in parts))


def enough_rounds(budgets: Sequence[Budget], rounds: int) -> tuple[list[Budget], list[BudgetCheck]]:
    """Return the budgets that so many rounds can say something about, and the others as not checked."""
    few = [b for b in budgets if b.needs_requests > rounds and b.quantile not in (None, 0.5)]
    reasons = (f"needs {b.needs_requests} requests, --llmspeed-rounds={rounds}" for b in few)
    unchecked = [budget.not_checked(reason) for budget, reason in zip(few, reasons, strict=True)]
    return [budget for budget in budgets if budget not in few], unchecked


def _narrowing(limits: Mapping[str, object], name: str) -> str | None:
    value = limits.get(name)
    if value is not None and not isinstance(value, str):
        raise SettingsError(f"llm_budget({name}={value!r}): {name} takes a string")
    return plain_text(value)


def _metric_and_statistic(name: str) -> tuple[Metric, str]:
    for metric in METRICS.values():
        if name == metric.key:
            return metric, "median" if metric.per == "request" else "whole"
        head, tail = f"{metric.name}_", f"_{metric.unit}"
        if metric.per == "request" and name.startswith(head) and name.endswith(tail):
            statistic = name[len(head) : -len(tail)]
            if _STATISTIC.fullmatch(statistic):
                return metric, statistic
    known = [metric.key for metric in METRICS.values()]
    raise SettingsError(
        f"llm_budget({name}=…): no such budget; {did_you_mean(name, known)}; "
        "a statistic goes before the unit, as in ttft_p95_ms (median, mean, min, max, p1 to p99)"
    )


def _limit(name: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise SettingsError(f"llm_budget({name}={value!r}): a limit must be a finite number")
    if value < 0:
        raise SettingsError(f"llm_budget({name}={value!r}): a limit cannot be negative")
    if name in ("error_rate", "goodput") and value > 1:
        raise SettingsError(f"llm_budget({name}={value!r}): {name} must be between 0 and 1")
    return float(value)


def requests_needed(budgets: Sequence[Budget], label: str | None, least: int) -> int:
    """Return how many rounds the budgets of a label need, at least `least`."""
    fitting = (b.needs_requests for b in budgets if b.label in (None, label))
    return max([least, *fitting])


def check(budget: Budget, measurement: Measurement) -> BudgetCheck:
    """Return whether the measurement keeps the budget, judged by the point estimate.

    Each load is held against it by itself, all other requests together; the worst of them speaks. A
    metric that no request gave, or a quantile of too few samples, is not kept: "not measured".
    """
    chosen = measurement.labelled(budget.label)
    if budget.is_default and not chosen.samples:
        return budget.not_checked("it applies to no measured request")
    parts = [part for part in chosen.parts if part.load or budget.metric.per != "load"]
    if chosen.parts and not parts:
        return _not_measured(budget, no_load(budget.metric.key))
    found = [_check(budget, part, measurement) for part in parts or [chosen]]
    return max(found, key=lambda each: _severity(budget, each))


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
        return _not_measured(budget, str(few))
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
        return _not_measured(budget, no_slo() if no_limits else no_load_figure(metric.key))
    blocks = load.blocks.get(metric.key)
    interval = _mean_interval(blocks) if blocks else None
    kept = not metric.worse(observed, budget.limit)
    reason = ""
    if metric.name == "goodput" and not kept:
        reason = slo_missed(slo_broken(load.samples, load.slo), load.slo, len(load.failures))
    return BudgetCheck(budget.name, budget.limit, observed, kept, interval, budget.label, reason)


def _not_measured(budget: Budget, reason: str) -> BudgetCheck:
    return BudgetCheck(budget.name, budget.limit, None, False, None, budget.label, reason)


def _unmeasurable(budget: Budget, chosen: Measurement, whole: Measurement) -> str | None:
    """Why the budget's metric has no value, or None where it has."""
    if not chosen.samples:
        if budget.label is None:
            return "no request was measured"
        return f"no request has the label {budget.label!r}; labels seen: {list(whole.labels)}"
    if budget.metric.per != "request" or chosen.values(budget.metric.key):
        return None
    if len(chosen.failures) == len(chosen.samples):
        return f"all {len(chosen.samples)} requests failed: {chosen.samples[-1].error}"
    return _no_figure(budget.metric, chosen)


def _no_figure(metric: Metric, chosen: Measurement) -> str:
    """Why requests that succeeded have no value of a metric."""
    succeeded = [sample for sample in chosen.samples if sample.ok]
    if all("non_streaming" in s.flags for s in succeeded) and metric.name != "throughput":
        return "the answers were not streamed, so only their end-to-end time is known"
    if metric.name in ("tpot", "itl", "throughput"):
        return _no_token_figure(metric.name, chosen)
    return f"no request gave a value of {metric.key}"


def _no_token_figure(metric: str, chosen: Measurement) -> str:
    succeeded = [sample for sample in chosen.samples if sample.ok]
    if all(sample.output_tokens is None for sample in succeeded):
        if any(DOUBTED in sample.flags for sample in succeeded):
            return (
                "the server's token counts (usage) contradict what it streamed, so they are not used: "
                "set tokenizer= in the llm_backend mark to a folder or hub id"
            )
        return (
            "the server gave no token counts (usage) and no tokenizer is configured: "
            "set tokenizer= in the llm_backend mark to a folder or hub id"
        )
    if all("buffered" in sample.flags for sample in succeeded):
        return "all text arrived in one read, so there is no time between tokens: is a proxy buffering?"
    if metric == "itl" and any(len(sample.itl_ms) for sample in succeeded):
        return f"events carry more than {TOKENS_PER_EVENT_LIMIT} tokens each; use tpot_ms"
    return "the answers had fewer than two tokens: raise max_tokens"


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
        return _not_measured(budget, UNKNOWN_MEMORY)
    return BudgetCheck(budget.name, budget.limit, peak_mib, peak_mib <= budget.limit, None, budget.label)
