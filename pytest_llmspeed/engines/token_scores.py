"""How likely an engine finds the tokens of an answer."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from math import inf


@dataclass(frozen=True, slots=True)
class TokenScores:
    """The log-probability of each token of an answer, given its prompt and the tokens before it.

    `top` holds for each position its likeliest tokens, likeliest first, as many for each.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    top: tuple[tuple[tuple[int, float], ...], ...]

    def cut(self, width: int) -> TokenScores:
        """The same with fewer of the likeliest tokens."""
        return TokenScores(self.token_ids, self.logprobs, tuple(top[:width] for top in self.top))

    @property
    def are_numbers(self) -> bool:
        """False where a log-probability is NaN or +Inf; -Inf is that of a token that is impossible."""
        listed = (logprob for top in self.top for _, logprob in top)
        return all(logprob < inf for logprob in chain(self.logprobs, listed))

    @property
    def shortfalls(self) -> tuple[float, ...]:
        """By how much each token lies below the likeliest one of its position; 0 for that one itself."""
        return tuple(
            max(0.0, top[0][1] - logprob) for logprob, top in zip(self.logprobs, self.top, strict=True)
        )
