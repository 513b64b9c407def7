"""Given tokens under a llama.cpp model: how likely is each after those before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pytest_llmspeed.engines.token_scores import TokenScores


def score(llama: Any, prompt: Sequence[int], token_ids: Sequence[int], top: int) -> TokenScores:
    """Return the scores of `token_ids` as the continuation of a prompt, from an empty memory on.

    Raises `ValueError` for more tokens than the context holds, `RuntimeError`.
    """
    read, context = len(prompt) + len(token_ids) - 1, llama.n_ctx()  # the last token is never read
    if read > context:
        raise ValueError(f"prompt and answer have {read} tokens, the context is n_ctx={context}")
    chosen, best = [], []
    for token, logprobs in zip(token_ids, _logprobs(llama, prompt, token_ids), strict=True):
        chosen.append(float(logprobs[token]))
        best.append(_likeliest(logprobs, top))
    return TokenScores(tuple(token_ids), tuple(chosen), tuple(best))


def _logprobs(llama: Any, prompt: Sequence[int], token_ids: Sequence[int]) -> Iterator[Any]:
    """The log-probabilities of all tokens at each place of an answer, an array of float64.

    The answer is read a token at a time, as it was generated. Read at once, other kernels do the work:
    on CPUs, log-probabilities of 4-bit weights lie 0.04 nats, on average, from those that led to the tokens.
    """
    import numpy as np
    from llama_cpp.llama_cpp import llama_get_logits_ith

    llama.reset()
    for part in (prompt, *([token] for token in token_ids[:-1])):
        llama.eval(part)
        row = llama_get_logits_ith(llama.ctx, -1)
        logits = np.ctypeslib.as_array(row, shape=(llama.n_vocab(),)).astype(np.float64)
        logits -= logits.max()
        yield logits - np.log(np.exp(logits).sum())


def _likeliest(logprobs: Any, top: int) -> tuple[tuple[int, float], ...]:
    """As many as are asked for, equally likely ones in the order of their ids."""
    ids = (-logprobs).argsort(kind="stable")[:top]
    return tuple(zip(ids.tolist(), logprobs[ids].tolist(), strict=True))
