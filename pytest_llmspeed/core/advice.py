"""Symptom → one sentence with the fix. Every sentence that follows a verdict is written here."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_llmspeed.core.verdicts import BudgetCheck, Comparison

UPDATE = "--llmspeed-update-baseline"


def percent(ratio: float) -> str:
    """A ratio as a signed change: 1.28 → "+28 %"."""
    change = (ratio - 1) * 100
    return f"{change:+.0f} %" if abs(change) >= 10 else f"{change:+.1f} %"


def quantity(value: float, metric: str) -> str:
    """A value of a metric with its unit, to three figures: 312.4 of `ttft_ms` → "312 ms"."""
    figures = f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"
    for unit, shown in (("_ms", " ms"), ("_tps", " tokens/s")):
        if metric.endswith(unit):
            return figures + shown
    return figures


def budget_missed(check: BudgetCheck, unit_of: str) -> str:
    """The sentence that fails a test over a budget."""
    where = f" of {check.label!r}" if check.label else ""
    if check.observed is None:
        return f"{check.name}{where} not measured: {check.reason}"
    side = "below" if check.observed < check.limit else "above"
    observed, limit = quantity(check.observed, unit_of), quantity(check.limit, unit_of)
    return f"{check.name}{where} is {observed}, {side} its budget of {limit}{_interval(check, unit_of)}"


def _interval(check: BudgetCheck, unit_of: str) -> str:
    if check.ci is None:
        return ""
    low, high = ("?" if bound is None else quantity(bound, unit_of) for bound in check.ci)
    return f" (95 % interval {low} to {high})"


def slower(found: Comparison, changed: Sequence[str]) -> str:
    """The sentence that fails a test over its baseline."""
    since = f"; changed since: {', '.join(changed)}" if changed else ""
    return f"{name(found)} is slower than its baseline: {moved(found)}{since}"


def moved(found: Comparison) -> str:
    """Old and new value with the change and its interval."""
    if found.baseline is None or found.now is None or found.delta is None or found.ci is None:
        return found.reason
    low, high = (percent(bound) for bound in found.ci)
    return (
        f"{quantity(found.baseline, found.metric)} → {quantity(found.now, found.metric)}, "
        f"{percent(found.delta)} (95 % interval {low} to {high}, {_sessions(found.sessions)})"
    )


def name(found: Comparison) -> str:
    """The metric of a comparison, with its label where it has one."""
    return f"{found.metric} of {found.label!r}" if found.label else found.metric


def _sessions(count: int) -> str:
    return f"{count} stored session{'' if count == 1 else 's'}"


def faster(found: Comparison) -> str:
    """What to do about a speed-up."""
    return f"{name(found)} is faster: {moved(found)}; store it to guard it: pytest {UPDATE}"


def accept(reasons: str) -> str:
    """How to accept a slowdown."""
    return f"if this is meant, accept it: pytest {UPDATE} --llmspeed-accept {reasons}"


def suspect(found: Comparison) -> str:
    """What to do about a suspect."""
    return f"{name(found)} may be slower: {moved(found)}; {found.reason}; run it again, or look at the change"


def machine_busy(disturbed: int, total: int) -> str:
    """Why nothing was decided on a busy machine."""
    return f"machine busy: other programs used the processor during {disturbed} of {total} requests"


def busy(found: Comparison) -> str:
    """What to do about a busy machine."""
    return f"{found.reason}; run it again when the machine is quiet (this run is not stored)"


def inconclusive(found: Comparison) -> str:
    """What to do where the data decide nothing."""
    if found.visible is None:
        return f"{name(found)}: {found.reason}; measure more with llm_client.measure(…) or rounds(10)"
    seen = f"a slowdown from {percent(found.visible)} on would be seen"
    return f"{name(found)}: {found.reason}; {seen}{_more(found)}"


def _more(found: Comparison) -> str:
    """Which slowdown more sessions would show, if any number within the window would."""
    for slowdown, more in found.more_sessions:
        if more:
            plural = "" if more == 1 else "s"
            return f"; {more} more stored session{plural} would show {percent(slowdown)} ({UPDATE})"
    return ""


def no_baseline(elsewhere: Sequence[str]) -> str:
    """What to do where nothing is stored."""
    if elsewhere:
        return (
            f"no baseline for this environment (there is one for {', '.join(elsewhere)}); store one: "
            f"pytest {UPDATE}, or name the runner class that they share: llmspeed_environment"
        )
    return f"no baseline yet: store one with pytest {UPDATE}"


def incomparable(differs: Sequence[str]) -> str:
    """What to do where the baseline is of something else."""
    return f"the baseline is of something else ({'; '.join(differs)}); store one: pytest {UPDATE}"


def failed_requests(failed: int, total: int, error: str | None) -> str:
    """The sentence that fails a test over its failed requests."""
    return (
        f"{failed} of {total} requests failed, the last with: {error}; "
        "allow them with llm_budget(error_rate=…) if that is meant"
    )


def workload_changed(stratum: str, before: float, now: float) -> str:
    """The sentence that fails a test whose prompts changed."""
    return (
        f"the workload changed: {stratum or 'the prompts'} had {before:g} prompt tokens, now {now:g} "
        f"(more than 20 % apart); if that is meant, give the calls another label="
    )


def nothing_measured(overridden_in: str | None) -> str:
    """The sentence that fails a budgeted test that measured nothing."""
    if overridden_in:
        return (
            f"nothing was measured: the llm_client of this test is not ours but the one in "
            f"{overridden_in}; rename that fixture, or let it call the original"
        )
    return "nothing was measured: a test with llm_budget has to send a request through llm_client"


def close_call(check: BudgetCheck, unit_of: str) -> str:
    """The sentence on a budget that was kept, but not beyond doubt."""
    observed, limit = quantity(check.observed or 0.0, unit_of), quantity(check.limit, unit_of)
    return f"{check.name} is a close call: {observed} of {limit}{_interval(check, unit_of)}"


def suite_shift(metric: str, ratio: float, ci: tuple[float, float], tests: int) -> str:
    """The sentence on a shift that the whole suite shares."""
    low, high = (percent(bound) for bound in ci)
    return (
        f"the whole suite is slower: {metric} {percent(ratio)} (95 % interval {low} to {high}) over {tests} "
        "comparisons; look at the machine and the engine first, single tests tell little"
    )


def slower_beside(nodeid: str, found: Comparison) -> str:
    """The sentence on a test that is slower once the suite's own shift is taken out."""
    return f"{nodeid}: {name(found)} is slower beside the other tests of this run: {moved(found)}"


def crept(since: str) -> str:
    """Why a test is suspect that no single session made slower."""
    return f"it crept up in small steps since {since}, the beginning of its level"


def aged(days: int) -> str:
    """What to do about an old baseline."""
    return f"the baseline is {days} days old: store a new session with pytest {UPDATE}"
