"""Given tokens under a transformers model: how likely is each after those before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_llmspeed.engines.local.transformers_generation import context_length
from pytest_llmspeed.engines.token_scores import TokenScores


def score(model: Any, prompt: Any, token_ids: Sequence[int], top: int) -> TokenScores:
    """Return the scores of `token_ids` as the continuation of an encoded prompt.

    `prompt` is what a tokenizer returns, of one text. The tokens go the way that they were generated,
    one at a time through the cache, whose kernels are others than those of a prompt: what is wrong
    there shows. Log-probabilities are made in float32. Raises `ValueError` for more tokens than the
    model's context holds.
    """
    import torch
    from transformers import GenerationConfig

    if not token_ids:
        return TokenScores((), (), ())
    read, context = prompt["input_ids"].shape[-1] + len(token_ids) - 1, context_length(model.config)
    if context is not None and read > context:
        raise ValueError(f"prompt and answer have {read} tokens, the context is {context}")
    forced = _Forced(token_ids, top)
    config = GenerationConfig(
        max_new_tokens=len(token_ids),
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    with torch.inference_mode():
        model.generate(**prompt, generation_config=config, logits_processor=[forced])
    return TokenScores(tuple(token_ids), tuple(forced.logprobs), tuple(forced.listed))


class _Forced:
    """What `generate` gives its logits to at each step: takes note of them, and lets one token be left."""

    def __init__(self, token_ids: Sequence[int], top: int) -> None:
        self._left, self._top = iter(token_ids), top
        self.logprobs: list[float] = []
        self.listed: list[tuple[tuple[int, float], ...]] = []

    def __call__(self, _: Any, logits: Any) -> Any:
        token = next(self._left)
        logprobs = logits[0].float().log_softmax(dim=-1)
        best = logprobs.topk(min(self._top, len(logprobs)))
        self.logprobs.append(float(logprobs[token]))
        self.listed.append(tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True)))
        only = logits.new_full(logits.shape, float("-inf"))
        only[0, token] = 0.0
        return only
