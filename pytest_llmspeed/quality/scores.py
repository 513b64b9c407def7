"""How likely an engine finds the tokens of an answer, and how far two engines lie apart in that.

Log-probabilities are natural logarithms, differences are in nats.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import exp, log
from statistics import fmean

from pytest_llmspeed.engines.token_scores import TokenScores

STORED_TOP = 8
"""The number of likeliest tokens per position that a baseline keeps."""
ASKED_TOP = 20
"""The number requested from an engine, so that it nearly always covers the baseline's eight."""
LEAST_LOGPROB = -1e4
"""A log-probability beyond the range of 16-bit floats counts as impossible."""
LEAST_SHARE = 1e-7
"""The least probability assumed for all other tokens together; anything less is rounding."""

Top = Sequence[tuple[int, float]]
"""The likeliest tokens of one position with their log-probabilities, likeliest first."""


@dataclass(frozen=True, slots=True)
class TokenChange:
    """One position of one text under two engines.

    `kl` is the truncated divergence from before to now, `delta` the change of the token's own
    log-probability, `lead` how far the likeliest token led the second one before.
    """

    kl: float
    delta: float
    same_top: bool
    lead: float


def token_changes(before: TokenScores, now: TokenScores) -> list[TokenChange]:
    """Return the change at each position; both are scores of the same tokens."""
    return [
        TokenChange(
            kl=truncated_kl(top_before, top_now),
            delta=max(logprob_now, LEAST_LOGPROB) - max(logprob_before, LEAST_LOGPROB),
            same_top=top_before[0][0] == top_now[0][0],
            lead=top_before[0][1] - top_before[1][1] if len(top_before) > 1 else 0.0,
        )
        for top_before, top_now, logprob_before, logprob_now in zip(
            before.top, now.top, before.logprobs, now.logprobs, strict=True
        )
    ]


def truncated_kl(before: Top, now: Top) -> float:
    """Return the divergence KL(before‖now) over the tokens listed before, all others taken as one.

    Taking tokens together never raises a divergence, so this is a lower bound of the whole one. A
    token that `now` does not list is as likely as the last one that it does list, at most.
    """
    listed = dict(now)
    last = min(listed.values())
    p = _with_rest([exp(logprob) for _, logprob in before])
    q = _with_rest([exp(listed.get(token, last)) for token, _ in before])
    return max(0.0, sum(a * log(a / b) for a, b in zip(p, q, strict=True)))


def _with_rest(shares: list[float]) -> list[float]:
    """Shares with that of all other tokens, made to sum up to 1 in spite of rounding."""
    whole = [*(max(share, 1e-30) for share in shares), max(1 - sum(shares), LEAST_SHARE)]
    total = sum(whole)
    return [share / total for share in whole]


@dataclass(frozen=True, slots=True)
class ScoreChange:
    """All positions together: mean divergence and mean change per token, share of unchanged top tokens."""

    tokens: int
    kl: float
    top1: float
    delta: float
    largest_delta: float

    @classmethod
    def of(cls, changes: Sequence[TokenChange]) -> ScoreChange:
        """Return the summary of one or more changes."""
        return cls(
            tokens=len(changes),
            kl=fmean(change.kl for change in changes),
            top1=fmean(change.same_top for change in changes),
            delta=fmean(change.delta for change in changes),
            largest_delta=max(abs(change.delta) for change in changes),
        )


def first_divergence(before: Sequence[int], now: Sequence[int]) -> int | None:
    """Return the first position at which two answers have different tokens; None where they are the same."""
    for place, (one, other) in enumerate(zip_longest(before, now)):
        if one != other:
            return place
    return None


def gap_at(before: TokenScores, place: int, other: int | None) -> float | None:
    """Return by how much the token before was likelier than the `other`, at a place, before.

    Where the other is not among those listed it is at least the gap to the last of them. None
    where one answer had ended and nothing was scored.
    """
    if other is None or place >= len(before.top):
        return None
    listed: Mapping[int, float] = dict(before.top[place])
    return before.logprobs[place] - listed.get(other, min(listed.values()))


def pooled(changes: Iterable[Sequence[TokenChange]]) -> Iterator[TokenChange]:
    """Yield the changes of several answers one after the other."""
    for change in changes:
        yield from change
