"""Sentences on the quality of answers: what each check found, and what a failed one says for its test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_llmspeed.messages.figures import counted
from pytest_llmspeed.messages.speed import UPDATE, speed_beside_answers
from pytest_llmspeed.metrics.reasons import Explanation, Reason, words
from pytest_llmspeed.quality.paired_test import prompts_needed
from pytest_llmspeed.regression.verdicts import Comparison

SHOWN_CHARS = 160
A_LOSS = 0.10
"""The loss that a number of prompts is told to show or not."""


def _percent(share: float, digits: int = 0) -> str:
    return f"{share * 100:.{digits}f}%"


# what each check found; parameters are the figures of its finding


@words(Reason.CONTRACTS_KEPT)
def contracts_kept(kept: float, asked: int, **_: object) -> str:
    """Return how many contracts are kept."""
    return f"{kept:g} of {counted(asked, 'contract')} kept"


@words(Reason.CONTRACTS_BROKEN)
def contracts_broken(broken: int, asked: int, at_ties: int, **_: object) -> str:
    """Return how many contracts are broken that the baseline kept."""
    start = f"{broken} of {counted(asked, 'answer')} broke"
    return f"{start}, {at_ties} of them at a near-tie" if at_ties else start


@words(Reason.NOTHING_EXPECTED)
def nothing_expected(**_: object) -> str:
    """No contract to keep."""
    return "no prompt has an expectation"


@words(Reason.PROMPTS_FAILED)
def prompts_failed(errors: int, requests: int, first_error: str | None, **_: object) -> str:
    """Requests that failed leave a check without its answers."""
    return f"{errors} of {counted(requests, 'request')} failed, the first with: {first_error}"


@words(Reason.SCORE_TOO_LOW)
def score_too_low(score: float | None, min_score: float, **_: object) -> str:
    """A limit of the user's that is not reached."""
    found = "no answer has a score" if score is None else f"the mean score is {score:.3g}"
    return f"{found}, min_score is {min_score:g}"


@words(Reason.NOTHING_GREEDY)
def nothing_greedy(**_: object) -> str:
    """Return why self-consistency says nothing: no prompt is greedy."""
    return "no prompt has temperature 0, so none of the answers must repeat"


@words(Reason.DIFFERS_ALONE)
def differs_alone(differing: int, asked_again: int, is_exact: bool, **_: object) -> str:
    """Answers differ between two equal requests."""
    start = f"{differing} of {counted(asked_again, 'answer')} changed when the prompt was sent again"
    if not is_exact:
        return start
    return f"{start}, although the log-probabilities repeat exactly: tokens are sampled"


@words(Reason.DIFFERS_BESIDE_OTHERS)
def differs_beside_others(differing_beside: int, asked_beside: int, **_: object) -> str:
    """Answers differ when other requests run beside."""
    return (
        f"{differing_beside} of {counted(asked_beside, 'answer')} changed when other requests ran at the "
        "same time"
    )


@words(Reason.UNLIKELY_TOKENS)
def unlikely_tokens(unlikely: int, scored_tokens: int, **_: object) -> str:
    """Decoding and scoring disagree."""
    return (
        f"{unlikely} of {counted(scored_tokens, 'token')} are not the ones that the model scores highest: "
        "decoding differs from scoring (cache, positions, penalties, sampling)"
    )


@words(Reason.REPEATS)
def repeats(
    *,
    differing: int,
    asked_again: int,
    differing_beside: int,
    asked_beside: int,
    width: int,
    floor_delta: float | None,
    **_: object,
) -> str:
    """Return how the engine agrees with itself."""
    start = f"{asked_again - differing} of {counted(asked_again, 'answer')} repeated exactly"
    if asked_beside:
        others = counted(width - 1, "other request")
        start += f", {asked_beside - differing_beside} alongside up to {others}"
    return start if floor_delta is None else f"{start}; noise of a log-probability {floor_delta:.2g} nats"


@words(Reason.LOGPROBS_MOVED)
def logprobs_moved(
    *,
    tokens: int,
    kl: float,
    max_kl: float,
    top1: float,
    min_top1: float | None,
    worst_prompt: str | None = None,
    worst_prompt_kl: float = 0.0,
    worst_prompt_max_kl: float = 0.0,
    **_: object,
) -> str:
    """Return how the log-probabilities of the stored tokens moved, and the prompt that fails by itself."""
    least = "" if min_top1 is None else f" (at least {_percent(min_top1, 1)})"
    start = (
        f"over {counted(tokens, 'stored token')} KL {kl:.2g} nats per token "
        f"(at most {max_kl:.2g}), top-1 agreement {_percent(top1, 1)}{least}"
    )
    if worst_prompt is None:
        return start
    return f"{start}; {worst_prompt!r} alone {worst_prompt_kl:.2g} (at most {worst_prompt_max_kl:.2g})"


@words(Reason.ENGINE_SCORES_NOTHING)
def engine_scores_nothing(**_: object) -> str:
    """Log-probabilities of an engine that gives answers only."""
    return "this backend cannot score given tokens"


@words(Reason.NO_STORED_TOKENS)
def no_stored_tokens(**_: object) -> str:
    """Log-probabilities against a baseline of hashes."""
    return "the baseline has no tokens (llmspeed_store_text = false, or another backend stored it)"


@words(Reason.NO_STORED_ANSWERS)
def no_stored_answers(**_: object) -> str:
    """Nothing to compare with."""
    return f"no baseline of these prompts yet: store one with pytest {UPDATE}"


@words(Reason.DIVERGENCE)
def divergence(
    *,
    answers: int,
    changed: int,
    near_ties: int,
    real: int,
    first_prompt: str | None = None,
    first_token: int | None = None,
    **_: object,
) -> str:
    """Return where answers part from their baseline, and whether rounding explains it."""
    start = f"{answers - changed} of {counted(answers, 'answer')} unchanged"
    parts = [f"{near_ties} parted at a near-tie"] if near_ties else []
    if first_prompt is not None and first_token is not None:
        parts.append(f"{real} beyond rounding, the first: {first_prompt!r} at token {first_token + 1}")
    if left := changed - near_ties - real:
        parts.append(f"{left} changed without an explanation")
    return "; ".join([start, *parts])


@words(Reason.NOTHING_SCORED)
def nothing_scored(**_: object) -> str:
    """No prompt expects anything."""
    return "no prompt has an expectation, and no scorer is set"


@words(Reason.TASK_SCORE)
def task_score(
    prompts: int, worse: int, better: int, p: float, visible_loss: float | None, **_: object
) -> str:
    """The paired test, with what it could have shown."""
    if worse or better:
        start = f"of {counted(prompts, 'score')}, {worse} fell and {better} rose (p = {p:.2g})"
    else:
        start = f"the score of none of {counted(prompts, 'prompt')} changed"
    if visible_loss is None:
        return f"{start}; too few to show any loss"
    start = f"{start}; a loss of {_percent(visible_loss)} would show"
    if visible_loss <= A_LOSS:
        return start
    return f"{start}, to see one of {_percent(A_LOSS)} use {prompts_needed(A_LOSS)} prompts"


# what a check does to its test


@words(Reason.WORSE_ANSWERS)
def worse_answers(
    *,
    prompts: str,
    findings: Sequence[Explanation],
    answers: int | None,
    changed_answers: int | None,
    worst: Mapping[str, Any] | None,
    changed: Sequence[str] = (),
    comparison: Comparison | None = None,
) -> str:
    """The sentence that fails a test over its answers, with the worst one beside its baseline.

    How many answers changed is said because nearly all may point to a template or an option.
    """
    parts = [str(finding) for finding in findings]
    if answers and changed_answers:
        parts.append(f"{changed_answers:g} of {counted(int(answers), 'answer')} changed")
    since = f"; changed since: {', '.join(changed)}" if changed else ""
    start = f"{speed_beside_answers(comparison)}{'; '.join(parts)} (quality of {prompts!r}){since}"
    return start if worst is None else f"{start}: {beside_baseline(**worst)}"


def beside_baseline(
    prompt: str, text: str | None = None, baseline_text: str = "", not_kept: Sequence[str] = ()
) -> str:
    """An answer beside that of its baseline, each cut to a line; the prompt alone without texts."""
    if text is None:
        return repr(prompt)
    missing = f" ({not_kept[0]})" if not_kept else ""
    before = f"was {_cut(baseline_text)}, " if baseline_text else ""
    return f"{prompt!r} {before}is {_cut(text)}{missing}"


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= SHOWN_CHARS else f"{line[:SHOWN_CHARS]}…")


@words(Reason.ANSWERS_SUSPECT)
def answers_suspect(prompts: str, findings: Sequence[Explanation]) -> str:
    """Return what is not bad enough to fail, or not certain."""
    return f"quality of {prompts!r} may be worse: {'; '.join(map(str, findings))}"


@words(Reason.ANSWERS_WITHOUT_BASELINE)
def answers_without_baseline(prompts: str) -> str:
    """Answers that could be compared with nothing."""
    return f"quality of {prompts!r}: {no_stored_answers()}"


@words(Reason.ANSWERS_ACCEPTED)
def answers_accepted(prompts: str, accepted: str, findings: Sequence[Explanation]) -> str:
    """Other answers that are meant."""
    return f"quality of {prompts!r} changed, accepted ({accepted}): {'; '.join(map(str, findings))}"


@words(Reason.CHECK_SKIPPED)
def check_skipped(prompts: str, number: int, rung: str, because: Explanation) -> str:
    """A check that could not be made for want of what the engine or the store gives."""
    return f"quality of {prompts!r}: check {number} ({rung}) is skipped: {because}"
