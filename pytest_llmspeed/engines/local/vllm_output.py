"""One request to vLLM: tokens and sampling parameters for it, and its outputs → Exchange, or scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pytest_llmspeed.engines.token_scores import TokenScores
from pytest_llmspeed.errors import did_you_mean
from pytest_llmspeed.metrics.exchange import Event, Exchange, Request, Speculation, Usage

OURS = frozenset(
    {"detokenize", "max_tokens", "n", "output_kind", "skip_clone", "stream_interval", "temperature"}
)
"""Sampling parameters that follow from the request itself."""


def prompt_tokens(tokenizer: Any, request: Request) -> list[int]:
    """Return the tokens of a prompt, the chat template applied to a chat; raises `ValueError`."""
    if request.endpoint == "chat" and tokenizer.chat_template:
        encoded = tokenizer.apply_chat_template(
            request.messages,
            tools=request.extra_body.get("tools"),
            add_generation_prompt=True,
            return_dict=True,
        )
    elif isinstance(request.prompt, str):
        encoded = tokenizer(request.prompt)
    else:
        raise ValueError(
            "the model has no chat template, so send a text, not messages"
            if request.endpoint == "chat"
            else "endpoint='completions' takes a text, not messages"
        )
    return list(encoded["input_ids"])


def sampling(request: Request) -> Any:
    """Return the `SamplingParams` of a request; raises `ValueError` for what vLLM does not know.

    Nothing comes from the model's own generation config but its end tokens: greedy means argmax.
    A forced length holds the end tokens back.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    if request.model is not None:
        raise ValueError(f"model={request.model!r}: an in-process engine serves only the backend's model")
    known = {name for name in SamplingParams.__struct_fields__ if not name.startswith("_")} - OURS
    extra = {name: value for name, value in request.extra_body.items() if name != "tools"}
    for name in sorted(extra.keys() - known):
        raise ValueError(f"extra_body: vLLM has no sampling parameter {name!r}; {did_you_mean(name, known)}")
    forced = {} if request.output_tokens is None else {"min_tokens": request.output_tokens}
    return SamplingParams(
        temperature=request.temperature or 0.0,
        max_tokens=request.limit,
        output_kind=RequestOutputKind.DELTA,
        **{"seed": 0 if request.temperature else None, **extra, **forced},
    )


def scoring(top: int, largest: int) -> Any:
    """Return the `SamplingParams` of a prompt that is to be scored, with the `top` likeliest of each token.

    Such a request reads nothing from a prefix cache, which has no scores. The one token that it generates
    is the least that vLLM takes. Raises `ValueError` if `top` is more than the engine's `largest`.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    if largest != -1 and top > largest:
        raise ValueError(
            f"max_logprobs={largest} is less than the {top} that are requested: set max_logprobs={top}"
        )
    return SamplingParams(
        temperature=0.0,
        max_tokens=1,
        prompt_logprobs=top,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def scores(prompt_logprobs: Sequence[Any], token_ids: Sequence[int], top: int) -> TokenScores:
    """Return the scores of `token_ids`, the last tokens of a prompt whose `prompt_logprobs` these are."""
    places = prompt_logprobs[len(prompt_logprobs) - len(token_ids) :]
    return TokenScores(
        token_ids=tuple(token_ids),
        logprobs=tuple(place[token].logprob for token, place in zip(token_ids, places, strict=True)),
        top=tuple(_likeliest(place, top) for place in places),
    )


def _likeliest(place: Any, top: int) -> tuple[tuple[int, float], ...]:
    """Without the token of the prompt where it is none of them: vLLM lists that one too."""
    ranked = sorted(place.items(), key=lambda listed: listed[1].rank)
    return tuple((token, found.logprob) for token, found in ranked[:top])


class VLLMAnswer:
    """The answer to a request as it comes; `started_s` is t0.

    Where `one_token_a_yield`, an output of several tokens means that this process was late to take
    it: the answer is flagged `client_lag`.
    """

    def __init__(
        self,
        request: Request,
        tokenizer: Any,
        started_s: float,
        one_token_a_yield: bool,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        self._request, self._tokenizer, self._started_s = request, tokenizer, started_s
        self._one_token_a_yield, self._on_event = one_token_a_yield, on_event
        self._events: list[Event] = []
        self._tokens: list[int] = []
        self._held: list[int] = []
        self._counted = 0
        self._last: Any = None
        self._lagged = False

    def take(self, stamp_s: float, output: Any) -> None:
        """Take in an output that was yielded at `stamp_s`."""
        self._last = output
        completion = output.outputs[0]
        tokens = list(completion.token_ids)
        self._tokens += tokens
        self._lagged |= self._one_token_a_yield and len(tokens) > 1
        if completion.finish_reason == "stop" and not isinstance(completion.stop_reason, str):
            tokens.pop()  # the end token: no part of the answer
        self._counted += len(tokens)
        self._held += tokens
        text = completion.text
        if completion.finish_reason == "length" and not text:
            text = self._unfinished()
        if text:
            self._add(Event(stamp_s, text=text, tokens=len(self._held)))

    def _unfinished(self) -> str:
        """Return what the last tokens would show if no more came: half a character, most often."""
        return str(self._tokenizer.decode(self._held, skip_special_tokens=True)) if self._held else ""

    def _add(self, event: Event) -> None:
        self._events.append(event)
        self._held = []
        if self._on_event:
            self._on_event(event)

    def timed_out(self) -> Exchange:
        """The exchange of a request whose time ran out."""
        seen = f"{len(self._events)} output events" if self._events else "no output"
        return self.exchange().failed(f"timed out after {self._request.timeout_s:g} s with {seen}")

    def exchange(self) -> Exchange:
        """Return what came."""
        if self._last is None:
            return Exchange(self._request, self._started_s)
        completion = self._last.outputs[0]
        return Exchange(
            request=self._request,
            started_s=self._started_s,
            events=tuple(self._events),
            usage=Usage(len(self._last.prompt_token_ids), self._counted, self._last.num_cached_tokens),
            token_source="engine",
            finish_reason=completion.finish_reason,
            error=_failure(completion.finish_reason),
            speculation=_speculation(completion),
            notes=frozenset({"client_lag"} if self._lagged else ()),
            token_ids=tuple(self._tokens),
        )


def _failure(finish_reason: str | None) -> str | None:
    return f"vLLM ended the request: {finish_reason}" if finish_reason in ("abort", "error") else None


def _speculation(completion: Any) -> Speculation | None:
    counts = getattr(completion, "spec_decode_metrics", None)
    if counts is None:
        return None
    accepted = sum(tokens * steps for tokens, steps in enumerate(counts.histogram))
    return Speculation(steps=sum(counts.histogram), drafted=counts.num_draft_tokens, accepted=accepted)
