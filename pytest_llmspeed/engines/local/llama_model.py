"""A GGUF model that llama.cpp has loaded: prompt → tokens → answer, token by token."""

from __future__ import annotations

import codecs
import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Any

from pytest_llmspeed.engines.local.llama_scoring import score
from pytest_llmspeed.engines.local.token_stream import (
    SEED,
    Answering,
    StopError,
    check_request,
    no_template,
    too_long,
)
from pytest_llmspeed.engines.token_scores import TokenScores
from pytest_llmspeed.errors import GenerationError
from pytest_llmspeed.metrics.exchange import Exchange, Request

LONGEST_PIECE = 512
"""Bytes of the longest token that any vocabulary holds: runs of spaces are longer than words."""


class LlamaModel:
    """A loaded `llama_cpp.Llama`, spoken to by its tokens. `warm` keeps a prompt's beginning for the next."""

    def __init__(self, llama: Any, *, warm: bool) -> None:
        import llama_cpp

        self._llama, self._c, self._warm = llama, llama_cpp.llama_cpp, warm
        self._vocabulary = self._c.llama_model_get_vocab(llama.model)
        self.ends = frozenset(filter(self._is_end, range(llama.n_vocab())))
        self._template = _template(llama, self._text_of)

    def answer(self, request: Request, answering: Answering) -> Exchange:
        """Return the exchange; what goes wrong is in its `error`."""
        try:
            check_request(request)
            prompt = self.prompt_tokens(request)
            cached_tokens = self._answer(prompt, request, answering)
        except StopError as stopped:
            return answering.stopped(stopped)
        except (RuntimeError, ValueError, MemoryError) as error:
            return answering.broken(error)
        return answering.finished(len(prompt), cached_tokens)

    def score(self, request: Request, token_ids: Sequence[int], top: int) -> TokenScores:
        """Return the scores of `token_ids` as the answer to a request; raises `GenerationError`."""
        try:
            return score(self._llama, self.prompt_tokens(request), token_ids, top)
        except (RuntimeError, ValueError, MemoryError, IndexError) as error:
            raise GenerationError(f"{type(error).__name__}: {error}") from error
        finally:
            self._llama.reset()  # what was scored is no prompt that the next one may go on from

    def prompt_tokens(self, request: Request) -> list[int]:
        """Return the tokens of a prompt: by the file's own template, once, or of the text as it stands."""
        if request.endpoint == "chat" and self._template is not None:
            shown = self._template(messages=request.messages, tools=request.extra_body.get("tools"))
            return self._tokens(shown.prompt, add_special=not shown.added_special)
        if not isinstance(request.prompt, str):
            raise no_template(request)
        return self._tokens(request.prompt, add_special=True)

    def _tokens(self, text: str, *, add_special: bool) -> list[int]:
        encoded = text.encode("utf-8", "replace")
        found: list[int] = self._llama.tokenize(encoded, add_bos=add_special, special=True)
        return found

    def _answer(self, prompt: list[int], request: Request, answering: Answering) -> int:
        """Generate until the model or the limit ends it; return how many prompt tokens were still there."""
        context: int = self._llama.n_ctx()
        limit = min(request.limit or context, context - len(prompt))
        if limit < 1:
            raise too_long(len(prompt), "n_ctx", context)
        forced = min(request.forced_tokens or 0, limit)
        with self._sampler(request, endless=True) as endless, self._sampler(request, endless=False) as free:
            cached_tokens = self._read(prompt)
            while True:
                sampler = endless if answering.tokens < forced else free
                token = self._c.llama_sampler_sample(sampler, self._llama.ctx, -1)
                answering.add(token)
                if token in self.ends or answering.tokens == limit:
                    return cached_tokens
                self._llama.eval([token])

    def _read(self, prompt: list[int]) -> int:
        """Let the model read a prompt; return how many of its first tokens it still had from the last one."""
        kept = self._common(prompt) if self._warm else 0
        memory = self._c.llama_get_memory(self._llama.ctx)
        if kept and self._c.llama_memory_seq_rm(memory, 0, kept, -1):
            self._llama.n_tokens = kept
        else:
            kept = 0
            self._llama.reset()  # what it has of other prompts goes when it reads on from place 0
        self._llama.eval(prompt[kept:])
        return kept

    def _common(self, prompt: list[int]) -> int:
        """The length of the prompt's beginning that is still in memory, short of its last token."""
        known = self._llama.input_ids[: self._llama.n_tokens].tolist()
        pairs = zip(known, prompt[:-1], strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    @contextmanager
    def _sampler(self, request: Request, *, endless: bool) -> Iterator[Any]:
        """Return what picks the next token: the argmax, or by chance with a seed; `endless` never an end."""
        chain = self._c.llama_sampler_chain_init(self._c.llama_sampler_chain_default_params())
        try:
            for sampler in (*self._without_ends(endless), *self._choice(request)):
                self._c.llama_sampler_chain_add(chain, sampler)
            yield chain
        finally:
            self._c.llama_sampler_free(chain)

    def _without_ends(self, endless: bool) -> Iterator[Any]:
        if endless and self.ends:
            never = [self._c.llama_logit_bias(end, float("-inf")) for end in self.ends]
            biases = (self._c.llama_logit_bias * len(never))(*never)
            yield self._c.llama_sampler_init_logit_bias(self._llama.n_vocab(), len(never), biases)

    def _choice(self, request: Request) -> Iterator[Any]:
        if not request.temperature:
            yield self._c.llama_sampler_init_greedy()
            return
        extra = request.extra_body
        yield self._c.llama_sampler_init_temp(request.temperature)
        if "top_k" in extra:
            yield self._c.llama_sampler_init_top_k(extra["top_k"])
        if "top_p" in extra:
            yield self._c.llama_sampler_init_top_p(extra["top_p"], 1)
        yield self._c.llama_sampler_init_dist(extra.get("seed", SEED))

    def _is_end(self, token: int) -> bool:
        return bool(self._c.llama_vocab_is_eog(self._vocabulary, token))

    def _text_of(self, token: int) -> str:
        """A special token as the template spells it; empty where the model has none."""
        if token < 0:
            return ""
        text: bytes = self._c.llama_vocab_get_text(self._vocabulary, token)
        return text.decode()

    def piece(self, token: int) -> bytes:
        """Return the bytes of a token; a special one has none."""
        space = ctypes.create_string_buffer(LONGEST_PIECE)
        length = self._c.llama_token_to_piece(self._vocabulary, token, space, LONGEST_PIECE, 0, False)
        return space.raw[: max(length, 0)]

    def close(self) -> None:
        """Free the model and its context."""
        self._llama.close()


class LlamaPieces:
    """Token ids → the text that each completes."""

    def __init__(self, model: LlamaModel) -> None:
        self._model = model
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def step(self, token: int) -> str:
        """The text that a further token completes, empty if none."""
        return self._decoder.decode(self._model.piece(token))

    def rest(self) -> str:
        """Return what the last tokens would show if no more came: an unfinished character."""
        return self._decoder.decode(b"", final=True)


def _template(llama: Any, text_of: Any) -> Any | None:
    """The chat template that the file holds, None where it holds none."""
    from llama_cpp.llama_chat_format import Jinja2ChatFormatter

    template = llama.metadata.get("tokenizer.chat_template")
    if template is None:
        return None
    return Jinja2ChatFormatter(
        template, eos_token=text_of(llama.token_eos()), bos_token=text_of(llama.token_bos())
    )
