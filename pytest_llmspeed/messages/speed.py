"""Symptom → one sentence with the fix. Every sentence that follows a verdict is written here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_llmspeed.metrics.budgets import BudgetCheck
from pytest_llmspeed.regression.verdicts import Comparison

UPDATE = "--llmspeed-update-baseline"
NOT_BY_SESSIONS = "more sessions would not help: raise rounds=, or use a quieter machine"
RUN_AGAIN = "run it again; if it persists, look at what changed"
WHY = '"why"'
TAKE_TEN = "measure ten with llm_client.measure(…) or rounds(10)"


def percent(ratio: float) -> str:
    """A ratio as a signed change: 1.28 → "+28%"."""
    change = (ratio - 1) * 100
    return f"{change:+.0f}%" if abs(change) >= 10 else f"{change:+.1f}%"


def size(ratio: float) -> str:
    """A slowdown's factor as its size: 1.28 → "28%"."""
    return f"{(ratio - 1) * 100:.0f}%"


def counted(number: int, thing: str) -> str:
    """A number with its thing: "1 request", "2 requests"."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def quantity(value: float, metric: str) -> str:
    """A value of a metric with its unit, to three figures: 312.4 of `ttft_ms` → "312 ms"."""
    figures = f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"
    units = (("_ms", " ms"), ("_tps", " tokens/s"), ("_mib", " MiB"), ("load_s", " s"))
    for unit, shown in (*units, ("_per_s", " requests/s")):
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
    why = f": {check.reason}" if check.reason else ""
    return f"{check.name}{where} is {observed}, {side} its budget of {limit}{_interval(check, unit_of)}{why}"


def _interval(check: BudgetCheck, unit_of: str) -> str:
    if check.ci is None:
        return ""
    low, high = (None if bound is None else quantity(bound, unit_of) for bound in check.ci)
    if low and high:
        return f" (95% interval {low} to {high})"
    if low or high:
        return f" (95% interval {f'at least {low}' if low else f'at most {high}'})"
    return " (too few requests for an interval)"


def slower(found: Comparison, changed: Sequence[str]) -> str:
    """The sentence that fails a test over its baseline."""
    since = f"; changed since: {', '.join(changed)}" if changed else ""
    again = f", {found.reason}" if found.reason and found.delta is not None else ""
    return f"{prompt_moved(found)}{name(found)} is slower than its baseline: {moved(found)}{again}{since}"


def together_with(suspects: int) -> str:
    """What a slowdown rests on that one run alone does not show beyond chance."""
    return f"on average of this run and the {counted(suspects, 'suspect run')} before it"


def prompt_moved(found: Comparison) -> str:
    """How a sentence begins where the prompt grew or shrank since the baseline; else empty."""
    if found.prompt_tokens is None:
        return ""
    before, now = found.prompt_tokens
    of = f" of {found.stratum}" if found.stratum else ""
    return f"the prompt{of} {'grew' if now > before else 'shrank'} from {before:g} to {now:g} tokens; "


def moved(found: Comparison) -> str:
    """Old and new value with the change and its interval; where it was made, if not between these two."""
    if found.delta is None or found.ci is None:
        return found.reason
    low, high = (percent(bound) for bound in found.ci)
    change = (
        f"{percent(found.delta)} (95% interval {low} to {high}, {counted(found.sessions, 'stored session')})"
    )
    figures = _from_to(found.baseline, found.now, found.metric)
    if not found.at_another_location:
        return f"{figures}, {change}"
    return f"{f'{figures}; ' if figures else ''}compared at {location(found)}, {change}"


def location(found: Comparison) -> str:
    """Where a comparison was made, with the values there: "the fastest 10%: 44.1 ms → 56.5 ms"."""
    return f"{found.at}: {_from_to(found.at_baseline, found.at_now, found.metric)}"


def _from_to(before: float | None, now: float | None, metric: str) -> str:
    if before is None or now is None:
        return ""
    return f"{quantity(before, metric)} → {quantity(now, metric)}"


def name(found: Comparison) -> str:
    """The metric of a comparison, with the part of the test that it is of, if there are several."""
    part = found.part or (repr(found.label) if found.label else "")
    return f"{found.metric} of {part}" if part else found.metric


def faster(found: Comparison, *, storing: bool = False) -> str:
    """What to do about a speed-up."""
    said = f"{prompt_moved(found)}{name(found)} is faster: {moved(found)}"
    if found.follows_a_shorter_prompt:
        return f"{said}; a shorter prompt may be a mistake, so this is not stored; {accept(WHY)}"
    return said if storing else f"{said}; store it as the new baseline: pytest {UPDATE}"


def speed_beside_answers(found: Comparison) -> str:
    """How a sentence on worse answers begins where the same run shows another speed."""
    if found.delta is None:
        return ""
    is_faster = found.verdict.value == "faster"
    word, link = ("faster", "but") if is_faster else ("slower", "and")
    return f"{name(found)} is {word} by {abs(found.delta - 1) * 100:.0f}%, {link} "


def worse_answers() -> str:
    """Why a speed says nothing."""
    return "the answers are worse"


def accept(reasons: str) -> str:
    """How to accept a slowdown."""
    return f"if this is meant, accept it: pytest {UPDATE} --llmspeed-accept {reasons}"


def suspect(found: Comparison) -> str:
    """What to do about a suspect."""
    said = f"{prompt_moved(found)}{name(found)} may be slower: {moved(found)}; {found.reason}"
    return f"{said}; {RUN_AGAIN}"


def not_beyond_chance() -> str:
    """Why a slowdown that shows is a suspect only."""
    return "it could be chance"


def because_of(option: str, sentence: str) -> str:
    """The sentence that fails a test only because an option asks for it."""
    return f"{sentence} (the test fails because of {option})"


def same_job(sessions: int, job: str | None) -> str:
    """Why sessions that were stored do not count."""
    return (
        f"{counted(sessions, 'session')} stored that will not count: an earlier one of the same CI job "
        f"({job}) does; set LLMSPEED_JOB where several machines share a job's id"
    )


def smoke_run(rounds: int) -> str:
    """What a smoke run left out."""
    return f"--llmspeed-rounds={rounds}: only budgets were checked; nothing was compared with a baseline"


def inconclusive(found: Comparison) -> str:
    """What to do where the data decide nothing."""
    said = f"{prompt_moved(found)}{name(found)} is undecided: {found.reason}"
    if found.visible is None:
        return said
    return f"{said}; {unseen(found.visible)}; {_next_step(found)}"


def unseen(visible: float) -> str:
    """What a comparison that decided nothing could not have seen."""
    return f"a slowdown under {size(visible)} would not show"


def _next_step(found: Comparison) -> str:
    """What would settle it: more sessions, if any number within the window would, or another way."""
    if step := sessions_to_store(found):
        slowdown, more = step
        return f"store {counted(more, 'more session')} to see {size(slowdown)}: pytest {UPDATE}"
    return NOT_BY_SESSIONS if sessions_are_in_vain(found) else RUN_AGAIN


def sessions_to_store(found: Comparison) -> tuple[float, int] | None:
    """Return the first slowdown that more sessions would show, with their number; None if none would."""
    return next(((slowdown, more) for slowdown, more in found.more_sessions if more), None)


def sessions_are_in_vain(found: Comparison) -> bool:
    """Return whether no number of sessions within the window would show any slowdown."""
    return bool(found.more_sessions) and all(more is None for _, more in found.more_sessions)


def too_few_requests(requests: int, least: int) -> str:
    """Why so few requests are not compared."""
    were = "was" if requests == 1 else "were"
    return f"{counted(requests, 'request')} {were} measured, at least {least} are needed; {TAKE_TEN}"


def no_full_session(least: int) -> str:
    """Why stored sessions of fewer requests are not compared with."""
    return f"no stored session has {least} requests; {TAKE_TEN}, then store that: pytest {UPDATE}"


def no_time() -> str:
    """Why a test whose answers have no time at all is not compared."""
    return "no request gave a time that can be compared"


def all_at_once() -> str:
    """Why a test whose requests were all on their way together is not compared."""
    return "all requests overlapped with others; such times are checked against budgets and not compared"


def nothing_to_compare() -> str:
    """Why a test with requests is not compared in the command."""
    return "none of its requests are compared: those of sweeps and of loads that are too short never are"


def cannot_rule_out(slowdown: float) -> str:
    """Why the data do not show that nothing became slower."""
    return f"it could be up to {size(slowdown)} slower"


def sessions_differ() -> str:
    """Why slower requests are not called slower."""
    return "its requests are slower, but sessions of unchanged code have differed as much"


def median_moved(slowdown: float) -> str:
    """Why a shift of the median alone decides nothing."""
    return f"its median is {size(slowdown)} slower, but its fastest requests are not"


def tail_grew(slow: int, total: int) -> str:
    """Why a run of usual speed is not passed all the same."""
    return f"{slow} of {counted(total, 'request')} took longer than nearly all before"


def no_baseline(place: str, elsewhere: Sequence[str], *, storing: bool = False) -> str:
    """What to do where nothing is stored at `place`; nothing where a run stores it."""
    where = f" in {place}" if place else ""
    if elsewhere:
        said = f"no baseline{where} (there is one for {', '.join(elsewhere)})"
        said += "; " if storing else f"; store one: pytest {UPDATE}; or, "
        return f"{said}if the machines are alike, give them the same llmspeed_environment"
    return "" if storing else f"no baseline yet{where}: store one with pytest {UPDATE}"


def incomparable(differs: Sequence[str], *, storing: bool = False) -> str:
    """What to do where the baseline is of something else."""
    said = f"the baseline does not match this test ({'; '.join(differs)})"
    return said if storing else f"{said}; store a new one: pytest {UPDATE}"


def length_moved(found: Comparison) -> str:
    """What to do where answers are longer or shorter than those of the baseline."""
    return (
        f"{name(found)} is not compared: {found.reason}, and it follows their length; "
        f"keep that steady (max_tokens=, temperature=0), or budget tpot_ms instead"
    )


def length(before: float, now: float) -> str:
    """Why a figure that follows the length of the answers is not compared."""
    return f"answers had {before:g} tokens, now {now:g}"


def failed_requests(failed: int, total: int, error: str | None) -> str:
    """The sentence that fails a test over its failed requests."""
    return (
        f"{failed} of {total} requests failed, the last with: {error}; "
        "allow them with llm_budget(error_rate=…) if that is meant"
    )


def of_load(label: str | None, reason: str) -> str:
    """The sentence that fails a test whose load was not the one that was asked."""
    return f"the load{f' {label!r}' if label else ''} is invalid: {reason}"


def nothing_measured(overridden_in: str | None) -> str:
    """The sentence that fails a budgeted test that measured nothing."""
    if overridden_in:
        return (
            f"nothing was measured: the llm_client of this test is not ours but the one in "
            f"{overridden_in}; rename that fixture, or make it call the original"
        )
    return "nothing was measured: a test with llm_budget must send a request through llm_client"


def close_call(check: BudgetCheck, unit_of: str) -> str:
    """The sentence on a budget that was kept, but not beyond doubt."""
    observed, limit = quantity(check.observed or 0.0, unit_of), quantity(check.limit, unit_of)
    said = f"{check.name} is a close call: {observed}, its budget is {limit}{_interval(check, unit_of)}"
    return f"{said}; the next run may miss it"


def suite_shift(
    metric: str, ratio: float, ci: tuple[float, float], tests: int, accepted: str | None = None
) -> str:
    """The sentence on a shift that the whole suite shares."""
    low, high = (percent(bound) for bound in ci)
    said = (
        f"the whole suite is slower: {metric} {percent(ratio)} (95% interval {low} to {high}, over "
        f"{counted(tests, 'comparison')})"
    )
    if accepted is not None:
        return f"{said}, accepted: {accepted}"
    return f"{said}; look at the machine and the engine first; {accept(WHY)}"


def slower_beside(found: Comparison, accepted: str | None = None) -> str:
    """The sentence on a test that is slower once the suite's own shift is taken out."""
    said = f"{name(found)} is slower than the shift of the whole suite explains: {moved(found)}"
    return (
        f"{said}, accepted: {accepted}"
        if accepted is not None
        else f"{said}; look for what only this test does"
    )


def unlike_answers(tokens: Mapping[str, float]) -> str:
    """Why throughput differs between engines whose answers had other lengths."""
    return f"answers had {_on_each(tokens)}; throughput follows their length: set output_tokens= to force one"


def unlike_prompts(tokens: Mapping[str, float]) -> str:
    """Why TTFT is not comparable between engines that saw other prompts."""
    return f"prompts had {_on_each(tokens)}: tokenizers or chat templates differ, and with them the work"


def _on_each(tokens: Mapping[str, float]) -> str:
    first, *others = (f"{count:g} on {engine}" for engine, count in tokens.items())
    return ", ".join([first.replace(" on", " tokens on", 1), *others])


def unlike_caches(caches: Mapping[str, str]) -> str:
    """Why TTFT is not comparable if only some prefix caches are cold."""
    said = ", ".join(f"{cache} on {engine}" for engine, cache in caches.items())
    return f"the prefix cache is {said}: TTFT is not comparable"


def short(cut: int, total: int) -> str:
    """What to do where an engine did not honour a forced length."""
    return (
        f"{cut} of {total} answers are shorter than the forced length: the engine does not honour "
        "it; compare tpot_ms, which does not depend on the length"
    )


def crept(since: str) -> str:
    """Why a test is suspect that no single session made slower."""
    return f"it crept up in small steps since {since}"


def aged(days: int) -> str:
    """What to do about an old baseline."""
    return f"the baseline is {days} days old: store a new session with pytest {UPDATE}"
