"""Given tokens under a transformers model, in one pass: how likely is each after those before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_llmspeed.core.quality.scores import TokenScores


def score(model: Any, prompt: Any, token_ids: Sequence[int], top: int) -> TokenScores:
    """Return the scores of `token_ids` as the continuation of an encoded prompt.

    `prompt` is what a tokenizer returns, of one text. Log-probabilities are made in float32.
    """
    import torch

    count = len(token_ids)
    answer = torch.tensor([list(token_ids)], dtype=torch.long, device=model.device)
    with torch.inference_mode():
        ids = torch.cat([prompt["input_ids"], answer], dim=1)
        logits = model(input_ids=ids, logits_to_keep=count + 1, use_cache=False).logits[0]
        logprobs = torch.log_softmax(logits[-count - 1 : -1].float(), dim=-1)
        chosen = logprobs.gather(1, answer[0].unsqueeze(1)).squeeze(1)
        best = logprobs.topk(min(top, logprobs.shape[-1]))
    return TokenScores(
        token_ids=tuple(token_ids),
        logprobs=tuple(chosen.tolist()),
        top=tuple(
            tuple(zip(ids, values, strict=True))
            for ids, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ),
    )
