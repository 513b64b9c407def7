"""One request and what came back: all that the edges hand up.

Engines and transports make an `Exchange` and nothing else; `core.metrics` makes every latency
figure from it. All stamps are seconds of one monotonic clock.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, get_args

from pytest_llmspeed.text.harmless import encodable, harmless_lines

Endpoint = Literal["chat", "completions", "responses"]
LimitField = Literal["max_tokens", "max_completion_tokens"]
LIMIT_FIELDS: tuple[LimitField, ...] = get_args(LimitField)
TokenSource = Literal["engine", "usage", "tokenizer"]
Text = TypeVar("Text")


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of an engine.

    `prompt` is a text, or the messages of a chat in the shape of the OpenAI API. With
    `endpoint="chat"` the chat template applies (a text is one user message), with "completions"
    the text is continued as it stands; "responses" is asked by SDK clients only. `max_tokens` limits the
    answer, `output_tokens` forces its length; a server gets the limit as its `limit_field`. Without a
    `temperature` it is the server's own (in process 0). `timeout_s` limits the whole request. With
    `wants_token_ids` a server that can is asked for the ids of the output tokens, which engines in
    process give anyway.
    """

    prompt: str | tuple[Mapping[str, Any], ...]
    endpoint: Endpoint = "chat"
    model: str | None = None
    max_tokens: int | None = None
    output_tokens: int | None = None
    temperature: float | None = 0.0
    timeout_s: float = 120.0
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    wants_token_ids: bool = False
    limit_field: LimitField = "max_tokens"

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The prompt as chat messages."""
        if isinstance(self.prompt, str):
            return [{"role": "user", "content": self.prompt}]
        return [dict(message) for message in self.prompt]

    @property
    def prompt_hash(self) -> str:
        """A short hash of the prompt: the only trace of it that is ever stored."""
        text = json.dumps(self.prompt, sort_keys=True, default=str, ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]

    @property
    def limit(self) -> int | None:
        """The most tokens that the answer may have, None where the model's context is the limit."""
        return self.max_tokens if self.output_tokens is None else self.output_tokens

    @property
    def forced_tokens(self) -> int | None:
        """The output length that the request forces, or None where the model may stop early."""
        if self.output_tokens is not None:
            return self.output_tokens
        if self.extra_body.get("ignore_eos"):
            return self.max_tokens
        least = self.extra_body.get("min_tokens")
        return least if isinstance(least, int) and least > 0 else None


@dataclass(frozen=True, slots=True)
class Event:
    """One output event: non-empty answer, reasoning, refusal or tool-call data, sound or a picture.

    `stamp_s` is the arrival of its bytes (in process: the engine's yield), taken before parsing.
    `tokens` is the number of tokens it carries, None if unknown. `choice` is the place of its answer
    where the request wanted several (`n`). `media` names sound or pictures ("audio", "image"), whose
    data is not kept.
    """

    stamp_s: float
    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    tool_call: str = ""
    tokens: int | None = None
    choice: int = 0
    media: str = ""

    @property
    def is_answer(self) -> bool:
        """True unless the event holds reasoning only."""
        return bool(self.text or self.refusal or self.tool_call or self.media)


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of the engine or server; None if it gave none.

    The reasoning tokens are part of the output tokens.
    """

    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Speculation:
    """What speculative decoding did in one request.

    `steps` are the model's steps that checked a draft, `drafted` the tokens proposed to them,
    `accepted` those of them that became output.
    """

    steps: int
    drafted: int
    accepted: int

    @property
    def acceptance_rate(self) -> float | None:
        """The accepted share (0 to 1) of the drafted tokens, None where none were drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def tokens_per_step(self) -> float | None:
        """Output tokens of a step that checked a draft: the accepted ones and the model's own."""
        return 1 + self.accepted / self.steps if self.steps else None


@dataclass(frozen=True, slots=True)
class Exchange:
    """A finished request: its events in order of arrival, or the error that ended it.

    `started_s` is t0: the monotonic clock just before the request was handed to the transport or
    engine. `streamed` is False for an answer that came as one JSON body. `new_connection` is True
    where the request had to open its connection. `notes` are flags that only the edge can know.
    `speculation` is None where the engine does not speculate or does not tell.
    `token_ids` are the output tokens, one that ended the answer included, where the engine gives them.
    """

    request: Request
    started_s: float
    events: tuple[Event, ...] = ()
    usage: Usage | None = None
    token_source: TokenSource | None = None
    finish_reason: str | None = None
    error: str | None = None
    streamed: bool = True
    new_connection: bool = False
    notes: frozenset[str] = frozenset()
    speculation: Speculation | None = None
    token_ids: tuple[int, ...] | None = None

    @property
    def failure(self) -> str | None:
        """The reason the request failed, also if it ended cleanly without an answer; None if it succeeded.

        None of an answer, and of one that its caller cancelled.
        """
        if self.error:
            return harmless_lines(whole_text(self.error))
        if "cancelled" in self.notes:
            return None
        if not self.events:
            return without_output(self)
        if self.finish_reason is None:
            return "the stream ended without a finish reason: the answer was cut"
        return None

    def failed(self, error: str) -> Exchange:
        """The same exchange, ended by `error`."""
        return replace(self, error=error)

    def joined(self, part: Literal["text", "reasoning", "refusal", "tool_call"]) -> str:
        """Return the first choice's `part` of all events, joined."""
        first = min((event.choice for event in self.events), default=0)
        return whole_text("".join(getattr(event, part) for event in self.events if event.choice == first))


def without_output(exchange: Exchange) -> str:
    """Return the sentence on an answer without output: what the server reported, and what to do."""
    usage, reason = exchange.usage or Usage(), exchange.finish_reason
    spent, thought = usage.output_tokens or 0, usage.reasoning_tokens or 0
    if thought and thought >= spent:
        problem = f"all {spent or thought} output tokens were hidden reasoning"
    elif thought:
        problem = f"no output could be seen, and {thought} of {spent} output tokens were hidden reasoning"
    elif spent:
        problem = f"none of the {spent} output tokens could be seen"
    else:
        problem = (
            "the stream ended without any output" if exchange.streamed else "the answer contains no output"
        )
    if reason is None:
        return problem
    return f"{problem} (finish reason {reason!r}): {_advice(exchange, reason, spent, thought)}"


def _advice(exchange: Exchange, reason: str, spent: int, thought: int) -> str:
    """Return what to do about an answer without output."""
    limit = exchange.request.limit
    if reason == "length":
        return "raise max_tokens" + (f", which is {limit}" if limit else "")
    if reason == "content_filter":
        return "the server's content filter withheld the answer; change the prompt"
    if reason in ("tool_calls", "function_call"):
        return "it announced a tool call but sent none that could be parsed"
    if thought:
        return "the model thought and then said nothing; raise max_tokens or lower its reasoning effort"
    if spent:
        return "the server dropped what was generated; check its reasoning and tool-call parsers"
    return "the model ended its answer at once; check the prompt and the chat template"


def plain_text(text: Text) -> Text:
    """Return a string without the class that it may have, of an Enum say; anything else as it is.

    Only builtins cross to another process, and no lone surrogate does (of a file name that is not
    UTF-8, of JSON that escapes half a character). `str()` would name the member instead of its value.
    """
    return encodable(str.__str__(text)) if isinstance(text, str) else text  # type: ignore[return-value]


def whole_text(text: str) -> str:
    """Return `text` with surrogate pairs joined, lone surrogates replaced.

    A server may cut a character between two chunks, and JSON may escape half of one; such text
    could not be encoded, so it could be neither written nor sent to another process.
    """
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
