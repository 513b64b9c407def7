"""One request to a transformers model: `generate` with a stamp at each token → Exchange."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pytest_llmspeed.engines.local.token_stream import (
    SEED,
    Answering,
    OnEvent,
    StopError,
    check_request,
    no_template,
    too_long,
)
from pytest_llmspeed.metrics.exchange import Exchange, Request

KEPT_DEFAULTS = ("bos_token_id", "eos_token_id", "pad_token_id", "cache_implementation")
"""The fields of a model's own generation config that stay in force."""
STRETCHED = ("yarn", "linear", "dynamic")
"""Kinds of rotary embedding that reach further than `max_position_embeddings`, by their factor."""
UNLIMITED = 4096
"""The limit of an answer that neither the request nor the model's context limits."""


def encoded(model: Any, tokenizer: Any, request: Request) -> Any:
    """Return the tokens of a request's prompt, on the model's device; raises `ValueError`."""
    if request.endpoint == "chat" and tokenizer.chat_template:
        tokens = tokenizer.apply_chat_template(
            request.messages,
            tools=request.extra_body.get("tools"),
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=True,
        )
    elif isinstance(request.prompt, str):
        tokens = tokenizer(request.prompt, return_tensors="pt")
    else:
        raise no_template(request)
    return tokens.to(model.device)


class Generation:
    """A request made at `started_s`, being answered. `run` is called once, in any thread."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        request: Request,
        *,
        started_s: float,
        stop: threading.Event,
        on_event: OnEvent | None = None,
    ) -> None:
        self._model, self._tokenizer, self._request = model, tokenizer, request
        self._ends = _end_tokens(model, tokenizer)
        pieces = _Pieces(tokenizer)
        self._answering = Answering(
            request, started_s, stop, ends=self._ends, pieces=pieces, on_event=on_event
        )
        self._prompt_seen = False

    def run(self) -> Exchange:
        """Return the exchange; what goes wrong is in its `error`."""
        try:
            check_request(self._request)
            prompt = encoded(self._model, self._tokenizer, self._request)
            self._generate(prompt)
        except StopError as stopped:
            return self._answering.stopped(stopped)
        except (RuntimeError, ValueError, MemoryError, IndexError) as error:
            return self._answering.broken(error)
        return self._answering.finished(prompt["input_ids"].shape[-1])

    def put(self, tokens: Any) -> None:
        """Take in the prompt, then each token: what `generate` calls on its streamer.

        It has copied them from the device already, as it does for its stop check too: their stamps
        wait for nothing of our own.
        """
        if self._prompt_seen:
            self._answering.add(int(tokens[0]))
        self._prompt_seen = True

    def end(self) -> None:
        """Do nothing: `generate` returns next."""

    def _generate(self, prompt: Any) -> None:
        import torch

        seed = self._request.extra_body.get("seed", SEED)
        if self._request.temperature:
            torch.manual_seed(seed)
        with torch.inference_mode(), _finite_logits(self._model):
            self._model.generate(
                **prompt,
                generation_config=self._generation_config(prompt["input_ids"].shape[-1]),
                streamer=self,
            )

    def _generation_config(self, prompt_tokens: int) -> Any:
        """Return what the request asks for; the model has no other defaults left to add."""
        from transformers import GenerationConfig

        extra, request = self._request.extra_body, self._request
        sampled = bool(request.temperature)
        sampling = {"temperature": request.temperature, "top_k": 0, "top_p": 1.0} if sampled else {}
        sampling |= {name: extra[name] for name in ("top_k", "top_p") if sampled and name in extra}
        return GenerationConfig(
            max_new_tokens=self._limit(prompt_tokens),
            min_new_tokens=request.forced_tokens,
            do_sample=sampled,
            eos_token_id=sorted(self._ends) or None,
            pad_token_id=self._tokenizer.pad_token_id or next(iter(self._ends), 0),
            **sampling,
        )

    def _limit(self, prompt_tokens: int) -> int:
        """Return how many tokens there may be; raises `ValueError` if the prompt leaves room for none."""
        context = context_length(self._model.config)
        if context is None:
            return self._request.limit or UNLIMITED
        if prompt_tokens >= context:
            raise too_long(prompt_tokens, "max_position_embeddings", context)
        return min(self._request.limit or context, context - prompt_tokens)


def context_length(config: Any) -> int | None:
    """Return how many tokens a model's positions reach, from its configuration; None if they have no end.

    A stretched rotary embedding reaches further than the positions that the model was trained on, but
    for those kinds whose `max_position_embeddings` is the stretched length already.
    """
    text = config.get_text_config()
    trained = getattr(text, "max_position_embeddings", None) or getattr(text, "max_seq_len", None)
    if not trained:
        return None
    rope = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    kind, factor = rope.get("rope_type", rope.get("type")), rope.get("factor")
    if not factor or kind not in STRETCHED:
        return int(trained)
    if original := rope.get("original_max_position_embeddings"):
        return max(int(trained), int(original * factor))
    return int(trained * factor)


def set_aside_defaults(model: Any) -> None:
    """Leave of a model's own generation config its end tokens, and how its cache is kept.

    `generate` takes what a request does not set from there, whatever it is: penalties, suppressed
    tokens, time limits, beams. So greedy would not be the argmax, nor the same on every engine.
    """
    from transformers import GenerationConfig

    own = model.generation_config
    kept = {name: value for name in KEPT_DEFAULTS if (value := getattr(own, name, None)) is not None}
    model.generation_config = GenerationConfig(**kept)


def _end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    configured = model.generation_config.eos_token_id
    if configured is None:
        configured = tokenizer.eos_token_id
    if configured is None:
        return frozenset()
    return frozenset(configured if isinstance(configured, list | tuple) else (int(configured),))


@contextmanager
def _finite_logits(model: Any) -> Iterator[None]:
    """Raise `StopError` at the end if the last logits of a model were NaN or Inf.

    Looked at when all tokens are stamped: what overflows in the cache stays there, so the last ones tell.
    """
    head, last = model.get_output_embeddings(), deque[Any](maxlen=1)
    if head is None:
        yield
        return
    hook = head.register_forward_hook(lambda _module, _inputs, logits: last.append(logits))
    try:
        yield
    finally:
        hook.remove()
        if last and not bool(last[-1].isfinite().all()):
            raise StopError(_not_finite(str(model.dtype)))


def _not_finite(dtype: str) -> str:
    if dtype.endswith("float16") and "bfloat" not in dtype:
        return "the logits are NaN or Inf: the model's values exceed those of fp16 (65504); use bf16"
    return "the logits are NaN or Inf: the model's weights are damaged, or its precision cannot hold them"


class _Pieces:
    """Token ids → the text that each completes."""

    def __init__(self, tokenizer: Any) -> None:
        from tokenizers.decoders import DecodeStream

        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)
        self._tokens: list[int] = []
        self._shown = ""

    def step(self, token: int) -> str:
        """The text that a further token completes, empty if none."""
        self._tokens.append(token)
        text: str = self._stream.step(self._tokenizer.backend_tokenizer, token) or ""
        self._shown += text
        return text

    def rest(self) -> str:
        """Return what the last tokens would show if no more came: an unfinished character, most often."""
        whole: str = self._tokenizer.decode(self._tokens, skip_special_tokens=True)
        return whole[len(self._shown) :]
