"""What each rung says, and what a failed check says for its test. Every sentence of a check is here."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_llmspeed.messages.speed import UPDATE, counted
from pytest_llmspeed.quality.answers import NoiseFloor
from pytest_llmspeed.quality.findings import DIVERGENCE, LOGPROBS, AnswerLine, SetFindings, Word
from pytest_llmspeed.quality.paired_test import Paired, prompts_needed
from pytest_llmspeed.quality.scores import ScoreChange

SHOWN_CHARS = 160
A_LOSS = 0.10
"""The loss that a number of prompts is told to show or not."""


def _percent(share: float, digits: int = 0) -> str:
    return f"{share * 100:.{digits}f}%"


def contracts(kept: float, asked: int, *, broken: int, at_ties: int) -> str:
    """How many contracts are kept, and how many were kept before."""
    if broken:
        told = f"{broken} of {counted(asked, 'answer')} broke"
        return f"{told}, {at_ties} of them at a near-tie" if at_ties else told
    return f"{kept:g} of {counted(asked, 'contract')} kept"


def nothing_expected() -> str:
    """No contract to keep."""
    return "no prompt has an expectation"


def failed_requests(failed: int, total: int, error: str | None) -> str:
    """Requests that failed leave a check without its answers."""
    return f"{failed} of {counted(total, 'request')} failed, the first with: {error}"


def score_too_low(score: float | None, least: float) -> str:
    """A limit of the user's that is not reached."""
    found = "no answer has a score" if score is None else f"the mean score is {score:.3g}"
    return f"{found}, min_score is {least:g}"


def no_score(score: float) -> str:
    """What a scorer may not return."""
    return f"the scorer returned {score}, which is not a score"


def cannot_be_scored(error: object) -> str:
    """An answer whose tokens the engine does not score."""
    return f"its tokens cannot be scored: {error}"


def no_logprobs() -> str:
    """Log-probabilities that are none."""
    return (
        "the log-probabilities are NaN or Inf: the model's weights are damaged, or its precision does not do "
        "for it"
    )


def nothing_greedy() -> str:
    """All prompts draw their answers."""
    return "no prompt has temperature 0, so none of the answers must repeat"


def differs_alone(found: tuple[int, int], *, draws: bool) -> str:
    """Answers differ between two equal requests."""
    told = f"{found[0]} of {counted(found[1], 'answer')} changed when the prompt was sent again"
    if not draws:
        return told
    return f"{told}, although the log-probabilities repeat exactly: tokens are sampled"


def differs_beside(found: tuple[int, int]) -> str:
    """Answers differ when other requests run beside."""
    return f"{found[0]} of {counted(found[1], 'answer')} changed when other requests ran at the same time"


def unlikely(found: tuple[int, int]) -> str:
    """Decoding and scoring disagree."""
    return (
        f"{found[0]} of {counted(found[1], 'token')} are not the ones that the model scores highest: "
        "decoding differs from scoring (cache, positions, penalties, sampling)"
    )


def consistent(alone: tuple[int, int], beside: tuple[int, int], width: int, floor: NoiseFloor | None) -> str:
    """How the engine agrees with itself."""
    told = f"{alone[1] - alone[0]} of {counted(alone[1], 'answer')} repeated exactly"
    if beside[1]:
        told += f", {beside[1] - beside[0]} alongside up to {counted(width - 1, 'other request')}"
    return told if floor is None else f"{told}; noise of a log-probability {floor.delta:.2g} nats"


def logprobs(change: ScoreChange, max_kl: float, min_top1: float | None) -> str:
    """How the log-probabilities of the stored tokens moved."""
    least = "" if min_top1 is None else f" (at least {_percent(min_top1, 1)})"
    return (
        f"over {counted(change.tokens, 'stored token')} KL {change.kl:.2g} nats per token "
        f"(at most {max_kl:.2g}), top-1 agreement {_percent(change.top1, 1)}{least}"
    )


def one_prompt(prompt: str, kl: float, max_kl: float) -> str:
    """The prompt that fails by itself."""
    return f"; {prompt!r} alone {kl:.2g} (at most {max_kl:.2g})"


def engine_scores_nothing() -> str:
    """Rung 3 on an engine that gives answers only."""
    return "this backend cannot score given tokens"


def no_stored_tokens() -> str:
    """Rung 3 on a baseline of hashes."""
    return "the baseline has no tokens (llmspeed_store_text = false, or another backend stored it)"


def no_baseline() -> str:
    """Nothing to compare with."""
    return f"no baseline of these prompts yet: store one with pytest {UPDATE}"


def divergence(answers: int, changed: int, ties: int, real: int, where: tuple[str, int | None] | None) -> str:
    """Where answers part from their baseline, and whether rounding explains it."""
    told = f"{answers - changed} of {counted(answers, 'answer')} unchanged"
    parts = [f"{ties} parted at a near-tie"] if ties else []
    if where and where[1] is not None:
        parts.append(f"{real} beyond rounding, the first: {where[0]!r} at token {where[1] + 1}")
    if left := changed - ties - real:
        parts.append(f"{left} changed without an explanation")
    return "; ".join([told, *parts])


def nothing_scored() -> str:
    """No prompt expects anything."""
    return "no prompt has an expectation, and no scorer is set"


def task_score(found: Paired, visible: float | None) -> str:
    """The paired test, with what it could have shown."""
    if found.worse or found.better:
        moved = f"{found.worse} fell and {found.better} rose"
        told = f"of {counted(found.prompts, 'score')}, {moved} (p = {found.p:.2g})"
    else:
        told = f"the score of none of {counted(found.prompts, 'prompt')} changed"
    if visible is None:
        return f"{told}; too few to show any loss"
    told = f"{told}; a loss of {_percent(visible)} would show"
    if visible <= A_LOSS:
        return told
    return f"{told}, to see one of {_percent(A_LOSS)} use {prompts_needed(A_LOSS)} prompts"


def failure(found: SetFindings, changed: Sequence[str] = (), *, show_answers: bool) -> str:
    """The sentence that fails a test over its answers, with the first broken one beside its baseline."""
    told = "; ".join([*(finding.said for finding in found.failures), *_answers_changed(found)])
    since = f"; changed since: {', '.join(changed)}" if changed else ""
    sentence = f"{told} (quality of {found.prompts!r}){since}"
    worst = next(iter(found.broken or _fallen(found)), None)
    if worst is None:
        return sentence
    shown = beside_baseline(worst) if show_answers else repr(worst.prompt)
    return f"{sentence}: {shown}"


def _answers_changed(found: SetFindings) -> list[str]:
    """How many answers differ from the baseline's; if nearly all do, a template or an option may be why."""
    figures = next((finding.figures for finding in found.rungs if finding.rung == DIVERGENCE), {})
    answers, changed = figures.get("answers"), figures.get("changed")
    return [f"{changed:g} of {counted(int(answers), 'answer')} changed"] if answers and changed else []


def _fallen(found: SetFindings) -> list[AnswerLine]:
    """The answers whose score fell, the furthest first; without scores those that parted for real."""
    pairs = [
        (answer.score - answer.baseline_score, answer)
        for answer in found.answers
        if answer.score is not None and answer.baseline_score is not None
    ]
    fell = [answer for change, answer in sorted(pairs, key=lambda pair: pair[0]) if change < 0]
    return fell or [answer for answer in found.answers if answer.near_tie is False]


def beside_baseline(answer: AnswerLine) -> str:
    """An answer beside that of its baseline, each cut to a line."""
    missing = f" ({answer.not_kept[0]})" if answer.not_kept else ""
    before = f"was {_cut(answer.baseline_text)}, " if answer.baseline_text else ""
    return f"{answer.prompt!r} {before}is {_cut(answer.text)}{missing}"


def _cut(text: str) -> str:
    words = " ".join(text.split())
    return repr(words if len(words) <= SHOWN_CHARS else f"{words[:SHOWN_CHARS]}…")


def suspect(found: SetFindings) -> str:
    """What is not bad enough to fail, or not certain."""
    told = "; ".join(finding.said for finding in found.rungs if finding.word is Word.SUSPECT)
    return f"quality of {found.prompts!r} may be worse: {told}"


def without_baseline(found: SetFindings) -> str:
    """Answers that could be compared with nothing."""
    return f"quality of {found.prompts!r}: {no_baseline()}"


def accepted(found: SetFindings) -> str:
    """Other answers that are meant."""
    told = "; ".join(finding.said for finding in found.failures)
    return f"quality of {found.prompts!r} changed, accepted ({found.accepted}): {told}"


def skipped_aloud(found: SetFindings) -> list[str]:
    """A sentence for each rung that could not be climbed for want of what the engine or the store gives."""
    return [
        f"quality of {found.prompts!r}: rung {finding.number} ({finding.rung}) is skipped: {finding.said}"
        for finding in found.rungs
        if finding.word is Word.SKIPPED and finding.rung == LOGPROBS
    ]
