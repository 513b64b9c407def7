"""One request to a transformers model: `generate` with a stamp at each token → Exchange."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pytest_llmspeed.core.exchange import Event, Exchange, Request, Usage
from pytest_llmspeed.edges import clock

TAKEN = frozenset({"ignore_eos", "min_tokens", "seed", "tools", "top_k", "top_p"})
"""What `extra_body` may hold for an engine in process. `tools` go into the chat template; a model that
calls one says so in its text."""


class _StopError(Exception):
    """Ends a request, from inside the streamer of `generate` too; its text is the request's error."""


class Generation:
    """A request being answered. `run` is called once, in any thread; setting `stop` ends it early.

    `on_event`, where given, is called in that thread with each event once it is stamped.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        request: Request,
        stop: threading.Event,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        self._model, self._tokenizer, self._request, self._stop = model, tokenizer, request, stop
        self._ends = _end_tokens(model, tokenizer)
        self._texts = _Texts(tokenizer, on_event)
        self._tells = on_event is not None
        self._deadline_s = 0.0
        self._yields: list[tuple[float, int]] = []
        self._prompt_seen = False

    def run(self, started_s: float) -> Exchange:
        """Return the exchange of a request made at `started_s`; what goes wrong is in its `error`."""
        self._deadline_s = started_s + self._request.timeout_s
        try:
            prompt = self._prompt()
            self._generate(prompt)
        except _StopError as stopped:
            return Exchange(self._request, started_s, self._events(), error=str(stopped))
        except (RuntimeError, ValueError, MemoryError, IndexError) as error:
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            return Exchange(self._request, started_s, error=text)
        return self._finished(started_s, prompt["input_ids"].shape[-1])

    def put(self, tokens: Any) -> None:
        """Take in the prompt, then each token: what `generate` calls on its streamer.

        They come from the device already, copied for its stop check too: a stamp waits for nothing more.
        """
        stamp_s = clock.now_s()
        if not self._prompt_seen:
            self._prompt_seen = True
            return
        token = int(tokens[0])
        self._yields.append((stamp_s, token))
        if self._tells and token not in self._ends:
            self._texts.step(stamp_s, token)
        if self._stop.is_set():
            raise _StopError("cancelled")
        if stamp_s > self._deadline_s:
            raise _StopError(f"timed out after {self._request.timeout_s:g} s, {len(self._yields)} tokens in")

    def end(self) -> None:
        """Do nothing: `generate` returns next."""

    def _prompt(self) -> Any:
        tokenizer, request = self._tokenizer, self._request
        if request.endpoint == "chat" and tokenizer.chat_template:
            encoded = tokenizer.apply_chat_template(
                request.messages,
                tools=request.extra_body.get("tools"),
                add_generation_prompt=True,
                return_tensors="pt",
                return_dict=True,
            )
        elif isinstance(request.prompt, str):
            encoded = tokenizer(request.prompt, return_tensors="pt")
        else:
            raise ValueError(
                "the model has no chat template, so it takes a text, not messages"
                if request.endpoint == "chat"
                else "endpoint='completions' takes a text, not messages"
            )
        return encoded.to(self._model.device)

    def _generate(self, prompt: Any) -> None:
        import torch

        seed = self._request.extra_body.get("seed", 0)
        if self._request.temperature:
            torch.manual_seed(seed)
        with torch.inference_mode(), _finite_logits(self._model):
            self._model.generate(
                **prompt,
                generation_config=self._generation_config(prompt["input_ids"].shape[-1]),
                streamer=self,
            )

    def _generation_config(self, prompt_tokens: int) -> Any:
        """Greedy means argmax: penalties and sampling of the model's own defaults are set aside."""
        from transformers import GenerationConfig

        extra, request = self._request.extra_body, self._request
        if request.model is not None:
            raise ValueError(f"model={request.model!r}: an engine in process has one model, the backend's")
        if unknown := sorted(extra.keys() - TAKEN):
            raise ValueError(f"extra_body: an engine in process takes {sorted(TAKEN)}, not {unknown}")
        limit = request.limit or max(self._context() - prompt_tokens, 1)
        sampled = bool(request.temperature)
        sampling = {"temperature": request.temperature, "top_k": 0, "top_p": 1.0} if sampled else {}
        sampling |= {name: extra[name] for name in ("top_k", "top_p") if sampled and name in extra}
        return GenerationConfig(
            max_new_tokens=limit,
            min_new_tokens=request.forced_tokens,
            do_sample=sampled,
            num_beams=1,
            repetition_penalty=1.0,
            no_repeat_ngram_size=0,
            eos_token_id=sorted(self._ends) or None,
            pad_token_id=self._tokenizer.pad_token_id or next(iter(self._ends), 0),
            **sampling,
        )

    def _context(self) -> int:
        return int(getattr(self._model.config, "max_position_embeddings", 4096))

    def _finished(self, started_s: float, prompt_tokens: int) -> Exchange:
        ended_by_model = bool(self._yields) and self._yields[-1][1] in self._ends
        if ended_by_model:
            self._yields.pop()
        return Exchange(
            request=self._request,
            started_s=started_s,
            events=self._events(),
            usage=Usage(prompt_tokens, output_tokens=len(self._yields), cached_tokens=0),
            token_source="engine",
            finish_reason="stop" if ended_by_model else "length",
        )

    def _events(self) -> tuple[Event, ...]:
        """The tokens as text, made here and not between the tokens, unless somebody listens."""
        for stamp_s, token in self._yields[self._texts.steps :]:
            self._texts.step(stamp_s, token)
        return self._texts.end()


def _end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    configured = model.generation_config.eos_token_id
    if configured is None:
        configured = tokenizer.eos_token_id
    if configured is None:
        return frozenset()
    return frozenset(configured if isinstance(configured, list | tuple) else (int(configured),))


class _Texts:
    """Stamped tokens → events: a token that completes no character joins the next one that does."""

    def __init__(self, tokenizer: Any, on_event: Callable[[Event], None] | None) -> None:
        self._pieces, self._on_event = _Pieces(tokenizer), on_event
        self._events: list[Event] = []
        self._held, self._stamp_s = 0, 0.0
        self.steps = 0

    def step(self, stamp_s: float, token: int) -> None:
        """Take in a further token."""
        self.steps += 1
        self._held += 1
        self._stamp_s = stamp_s
        if text := self._pieces.step(token):
            self._add(text)

    def end(self) -> tuple[Event, ...]:
        """Return all events, the last one with what its tokens left unfinished."""
        if self._held and (text := self._pieces.rest()):
            self._add(text)
        return tuple(self._events)

    def _add(self, text: str) -> None:
        event = Event(self._stamp_s, text=text, tokens=self._held)
        self._held = 0
        self._events.append(event)
        if self._on_event is not None:
            self._on_event(event)


@contextmanager
def _finite_logits(model: Any) -> Iterator[None]:
    """Raise `_StopError` at the end if the last logits of a model were NaN or Inf.

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
            raise _StopError(_not_finite(str(model.dtype)))


def _not_finite(dtype: str) -> str:
    if dtype.endswith("float16") and "bfloat" not in dtype:
        return "the logits are NaN or Inf: the model's values exceed those of fp16 (65504); use bf16"
    return "the logits are NaN or Inf: the model's weights are damaged, or its precision does not do for it"


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
        """What the last tokens would show if no more came: an unfinished character, most often."""
        whole: str = self._tokenizer.decode(self._tokens, skip_special_tokens=True)
        return whole[len(self._shown) :]
