"""Sentences on what the speed of a test comes to: slower, faster, undecided, invalid; and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_llmspeed.messages.figures import counted, percent, quantity, size
from pytest_llmspeed.metrics.reasons import Explanation, Reason, words
from pytest_llmspeed.regression.verdicts import Comparison

UPDATE = "--llmspeed-update-baseline"
NOT_BY_SESSIONS = "more sessions would not help: raise rounds=, or use a quieter machine"
RUN_AGAIN = "run it again; if it persists, look at what changed"
WHY = '"why"'


@words(Reason.AS_WRITTEN)
def as_written(text: str) -> str:
    """Return a sentence that comes ready-made: from an older report, or from an error."""
    return text


@words(Reason.SLOWER)
def slower(comparison: Comparison, changed: Sequence[str] = ()) -> str:
    """The sentence that fails a test over its baseline."""
    since = f"; changed since: {', '.join(changed)}" if changed else ""
    again = f", {comparison.reason}" if comparison.reason and comparison.delta is not None else ""
    start = f"{prompt_moved(comparison)}{name(comparison)}"
    return f"{start} is slower than its baseline: {moved(comparison)}{again}{since}"


@words(Reason.FASTER)
def faster(comparison: Comparison, *, storing: bool = False) -> str:
    """Return what to do about a speed-up."""
    start = f"{prompt_moved(comparison)}{name(comparison)} is faster: {moved(comparison)}"
    if comparison.follows_a_shorter_prompt:
        return f"{start}; a shorter prompt may be a mistake, so this is not stored; {how_to_accept()}"
    return start if storing else f"{start}; store it as the new baseline: pytest {UPDATE}"


@words(Reason.SUSPECT)
def suspect(comparison: Comparison) -> str:
    """Return what to do about a suspect."""
    start = f"{prompt_moved(comparison)}{name(comparison)} may be slower"
    return f"{start}: {moved(comparison)}; {comparison.reason}; {RUN_AGAIN}"


@words(Reason.UNDECIDED)
def undecided(comparison: Comparison) -> str:
    """Return what to do where the data decide nothing."""
    start = f"{prompt_moved(comparison)}{name(comparison)} is undecided: {comparison.reason}"
    if comparison.visible is None:
        return start
    return f"{start}; {unseen(comparison.visible)}; {_next_step(comparison)}"


@words(Reason.NO_BASELINE)
def no_baseline(place: str = "", elsewhere: Sequence[str] = (), *, storing: bool = False) -> str:
    """Return what to do where nothing is stored at `place`; nothing where a run stores it."""
    where = f" in {place}" if place else ""
    if elsewhere:
        start = f"no baseline{where} (there is one for {', '.join(elsewhere)})"
        start += "; " if storing else f"; store one: pytest {UPDATE}; or, "
        return f"{start}if the machines are alike, give them the same llmspeed_environment"
    return "" if storing else f"no baseline yet{where}: store one with pytest {UPDATE}"


@words(Reason.INCOMPARABLE)
def incomparable(differs: Sequence[str], *, storing: bool = False) -> str:
    """Return what to do where the baseline is of something else."""
    start = f"the baseline does not match this test ({'; '.join(differs)})"
    return start if storing else f"{start}; store a new one: pytest {UPDATE}"


@words(Reason.LENGTH_NOT_COMPARED)
def length_not_compared(comparison: Comparison) -> str:
    """Return what to do where answers are longer or shorter than those of the baseline."""
    return (
        f"{name(comparison)} is not compared: {comparison.reason}, and it follows their length; "
        f"keep that steady (max_tokens=, temperature=0), or budget tpot_ms instead"
    )


@words(Reason.REQUESTS_FAILED)
def requests_failed(failed: int, total: int, error: str | None) -> str:
    """The sentence that fails a test over its failed requests."""
    return (
        f"{failed} of {total} requests failed, the last with: {error}; "
        "allow them with llm_budget(error_rate=…) if that is meant"
    )


@words(Reason.LOAD_INVALID)
def load_invalid(label: str | None, because: Explanation) -> str:
    """The sentence that fails a test whose load was not the one that was asked."""
    return f"the load{f' {label!r}' if label else ''} is invalid: {because}"


@words(Reason.NOTHING_MEASURED)
def nothing_measured(overridden_in: str | None = None) -> str:
    """The sentence that fails a budgeted test that measured nothing."""
    if overridden_in:
        return (
            f"nothing was measured: the llm_client of this test is not ours but the one in "
            f"{overridden_in}; rename that fixture, or make it call the original"
        )
    return "nothing was measured: a test with llm_budget must send a request through llm_client"


@words(Reason.EARLIER_ATTEMPT_SLOWER)
def earlier_attempt_slower(because: Explanation) -> str:
    """The sentence that fails a test that passed when it was run again."""
    return f"an earlier attempt of this test was slower, and that result stands: {because}"


@words(Reason.SLOWER_AS_A_SUITE)
def slower_as_a_suite() -> str:
    """Return why a test is not stored that is part of a slower suite."""
    return "slower as a suite"


@words(Reason.FAILS_BY_OPTION)
def fails_by_option(option: str, because: Explanation) -> str:
    """The sentence that fails a test only because an option asks for it."""
    return f"{because} (the test fails because of {option})"


@words(Reason.HOW_TO_ACCEPT)
def how_to_accept() -> str:
    """Return how to accept a slowdown."""
    return f"if this is meant, accept it: pytest {UPDATE} --llmspeed-accept {WHY}"


@words(Reason.BASELINE_IS_OLD)
def baseline_is_old(days: int) -> str:
    """Return what to do about an old baseline."""
    return f"the baseline is {days} days old: store a new session with pytest {UPDATE}"


@words(Reason.SHORT_ANSWERS)
def short_answers(short: int, total: int) -> str:
    """Return what to do where an engine did not honour a forced length."""
    return (
        f"{short} of {total} answers are shorter than the forced length: the engine does not honour "
        "it; compare tpot_ms, which does not depend on the length"
    )


# parts of sentences


def prompt_moved(comparison: Comparison) -> str:
    """Return how a sentence begins where the prompt grew or shrank since the baseline; else empty."""
    if comparison.prompt_tokens is None:
        return ""
    before, now = comparison.prompt_tokens
    of = f" of {comparison.stratum}" if comparison.stratum else ""
    return f"the prompt{of} {'grew' if now > before else 'shrank'} from {before:g} to {now:g} tokens; "


def moved(comparison: Comparison) -> str:
    """Old and new value with the change and its interval; where it was made, if not between these two."""
    if comparison.delta is None or comparison.ci is None:
        return str(comparison.reason or "")
    low, high = (percent(bound) for bound in comparison.ci)
    blocks, sessions = counted(comparison.blocks, "block"), counted(comparison.sessions, "stored session")
    basis = blocks if comparison.blocks else sessions
    change = f"{percent(comparison.delta)} (95% interval {low} to {high}, {basis})"
    figures = _from_to(comparison.baseline, comparison.now, comparison.metric)
    if not comparison.at_another_location:
        return f"{figures}, {change}"
    return f"{f'{figures}; ' if figures else ''}compared at {location(comparison)}, {change}"


def location(comparison: Comparison) -> str:
    """Return where a comparison was made, with the values there: "the fastest 10%: 44.1 ms → 56.5 ms"."""
    return f"{comparison.at}: {_from_to(comparison.at_baseline, comparison.at_now, comparison.metric)}"


def _from_to(before: float | None, now: float | None, metric: str) -> str:
    if before is None or now is None:
        return ""
    return f"{quantity(before, metric)} → {quantity(now, metric)}"


def name(comparison: Comparison) -> str:
    """The metric of a comparison, with the part of the test that it is of, if there are several."""
    part = comparison.part or (repr(comparison.label) if comparison.label else "")
    return f"{comparison.metric} of {part}" if part else comparison.metric


def speed_beside_answers(comparison: Comparison | None) -> str:
    """Return how a sentence on worse answers begins where the same run shows another speed."""
    if comparison is None or comparison.delta is None:
        return ""
    is_faster = comparison.verdict.value == "faster"
    word, link = ("faster", "but") if is_faster else ("slower", "and")
    return f"{name(comparison)} is {word} by {abs(comparison.delta - 1) * 100:.0f}%, {link} "


def unseen(visible: float) -> str:
    """Return what a comparison that decided nothing could not have seen."""
    return f"a slowdown under {size(visible)} would not show"


def _next_step(comparison: Comparison) -> str:
    """Return what would settle it: more sessions, if any number within the window would, or another way."""
    if step := sessions_to_store(comparison):
        slowdown, more = step
        return f"store {counted(more, 'more session')} to see {size(slowdown)}: pytest {UPDATE}"
    return NOT_BY_SESSIONS if sessions_are_in_vain(comparison) else RUN_AGAIN


def sessions_to_store(comparison: Comparison) -> tuple[float, int] | None:
    """Return the first slowdown that more sessions would show, with their number; None if none would."""
    return next(((slowdown, more) for slowdown, more in comparison.more_sessions if more), None)


def sessions_are_in_vain(comparison: Comparison) -> bool:
    """Return whether no number of sessions within the window would show any slowdown."""
    return bool(comparison.more_sessions) and all(more is None for _, more in comparison.more_sessions)
