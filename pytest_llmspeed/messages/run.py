"""Sentences on a whole run: its suite, its CI job, and engines side by side."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_llmspeed.messages.figures import counted, percent
from pytest_llmspeed.messages.speed import how_to_accept, moved, name
from pytest_llmspeed.regression.verdicts import Comparison


def same_job(sessions: int, job: str | None) -> str:
    """Return why sessions that were stored do not count."""
    return (
        f"{counted(sessions, 'session')} stored that will not count: an earlier one of the same CI job "
        f"({job}) does; set LLMSPEED_JOB where several machines share a job's id"
    )


def smoke_run(rounds: int) -> str:
    """Return what a smoke run left out."""
    return f"--llmspeed-rounds={rounds}: only budgets were checked; nothing was compared with a baseline"


def suite_shift(
    metric: str, ratio: float, ci: tuple[float, float], tests: int, accepted: str | None = None
) -> str:
    """The sentence on a shift that the whole suite shares."""
    low, high = (percent(bound) for bound in ci)
    start = (
        f"the whole suite is slower: {metric} {percent(ratio)} (95% interval {low} to {high}, over "
        f"{counted(tests, 'comparison')})"
    )
    if accepted is not None:
        return f"{start}, accepted: {accepted}"
    return f"{start}; look at the machine and the engine first; {how_to_accept()}"


def slower_beside(comparison: Comparison, accepted: str | None = None) -> str:
    """The sentence on a test that is slower once the suite's own shift is taken out."""
    start = f"{name(comparison)} is slower than the shift of the whole suite explains: {moved(comparison)}"
    return (
        f"{start}, accepted: {accepted}"
        if accepted is not None
        else f"{start}; look for what only this test does"
    )


def unlike_answers(tokens: Mapping[str, float]) -> str:
    """Return why throughput differs between engines whose answers had other lengths."""
    return f"answers had {_on_each(tokens)}; throughput follows their length: set output_tokens= to force one"


def unlike_prompts(tokens: Mapping[str, float]) -> str:
    """Return why TTFT is not comparable between engines that saw other prompts."""
    return f"prompts had {_on_each(tokens)}: tokenizers or chat templates differ, and with them the work"


def _on_each(tokens: Mapping[str, float]) -> str:
    first, *others = (f"{count:g} on {engine}" for engine, count in tokens.items())
    return ", ".join([first.replace(" on", " tokens on", 1), *others])


def unlike_caches(caches: Mapping[str, str]) -> str:
    """Return why TTFT is not comparable if only some prefix caches are cold."""
    shown = ", ".join(f"{cache} on {engine}" for engine, cache in caches.items())
    return f"the prefix cache is {shown}: TTFT is not comparable"
