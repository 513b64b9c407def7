"""Budgets: `llm_budget(ttft_p95_ms=300)` → a limit on a statistic, and whether it was kept."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import isfinite

from pytest_llmspeed.errors import SettingsError, did_you_mean
from pytest_llmspeed.metrics.exchange import plain_text
from pytest_llmspeed.metrics.reasons import Explanation, Reason
from pytest_llmspeed.metrics.sample import METRICS, Metric
from pytest_llmspeed.metrics.summary import needed_samples
from pytest_llmspeed.system.environment import slug

NARROWING = ("label", "backend", "environment")
Slot = tuple[str, str | None, str | None]
"""Name, label and backend of a budget."""
_STATISTIC = re.compile(r"median|mean|min|max|p[1-9][0-9]?")


@dataclass(frozen=True, slots=True)
class BudgetCheck:
    """One budget against what was measured.

    `observed` is None where nothing could be measured, `reason` then says why, and the budget is
    not kept. `kept` is None of a budget that was not checked in this run, for the `reason` given. `ci` is
    a 95% interval of the statistic; a bound that the samples cannot give is None.
    """

    name: str
    limit: float
    observed: float | None
    kept: bool | None
    ci: tuple[float | None, float | None] | None = None
    label: str | None = None
    reason: Explanation | None = None

    @property
    def close_call(self) -> bool:
        """True if the interval of the statistic reaches the limit (unless that is a plain zero).

        A bound that is not known, for want of requests, reaches nothing.
        """
        if self.ci is None or self.observed is None or self.limit == 0:
            return False
        low, high = self.ci
        if self.observed <= self.limit:
            return high is not None and high >= self.limit
        return low is not None and low <= self.limit


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
        """The key under which a closer mark's budget replaces this one."""
        return self.name, self.label, self.backend

    def not_checked(self, reason: Explanation) -> BudgetCheck:
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
        """The number of requests that the statistic needs; one is enough for gaps between tokens."""
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
            reason = Reason.OTHER_ENVIRONMENT(wanted=budget.environment, here=environment)
            elsewhere.append(budget.not_checked(reason))
    return list(holding.values()), elsewhere


def _matches(pattern: str, environment: str) -> bool:
    parts = re.split(r"([*?])", pattern)
    return fnmatchcase(environment, "".join(slug(part) if part.strip("*? ") else part for part in parts))


def enough_rounds(budgets: Sequence[Budget], rounds: int) -> tuple[list[Budget], list[BudgetCheck]]:
    """Return the budgets that so many rounds can say something about, and the others as not checked."""
    few = [b for b in budgets if b.needs_requests > rounds and b.quantile not in (None, 0.5)]
    unchecked = [
        budget.not_checked(Reason.SMOKE_RUN_TOO_SHORT(needed=budget.needs_requests, rounds=rounds))
        for budget in few
    ]
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
