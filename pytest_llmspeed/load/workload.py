"""What a load asks: place in the load → conversation, the same one whoever asks, and its hash.

A conversation is one turn or several; the next turn is asked once the last is answered, with all
that was said before. Workloads are frozen data that cross to another process; `conversation(7)`
draws from a random generator of its own, so it does not depend on who drew before.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random
from typing import Any, cast

from pytest_llmspeed.errors import SettingsError
from pytest_llmspeed.load.synthetic import Lengths, words
from pytest_llmspeed.metrics.exchange import Endpoint, LimitField

Prompt = str | Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of a conversation: its new text or messages.

    `max_tokens` (sent as its `limit_field`), `output_tokens`, `temperature` and `endpoint`, where given,
    stand before those of the load, as do the fields of `extra_body`.
    """

    prompt: str | tuple[Mapping[str, Any], ...]
    max_tokens: int | None = None
    output_tokens: int | None = None
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    temperature: float | None = None
    endpoint: Endpoint | None = None
    limit_field: LimitField = "max_tokens"

    def described(self) -> list[Any]:
        """Return all that it asks, as builtins."""
        usual = [self.prompt, self.max_tokens, self.output_tokens, dict(self.extra_body), self.temperature]
        return [*usual, *(["completions"] if self.endpoint == "completions" else [])]


Conversation = tuple[Turn, ...]


class Workload:
    """What to ask. Made by `prompts`, `synthetic` and `mix`, or read from a file by `read_workload`."""

    __slots__ = ()

    def conversation(self, place: int) -> Conversation:
        """The conversation at a place, 0, 1, …, without end."""
        raise NotImplementedError

    def described(self) -> Any:
        """The workload's definition as plain builtins (the input to its hash)."""
        raise NotImplementedError

    @property
    def turns_each(self) -> int | None:
        """The number of turns of every conversation; None if it differs."""
        return None

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on records of the file that are left out or changed, one for each kind."""
        return ()

    @property
    def hash(self) -> str:
        """A short hash of all that it asks: the only trace of it that is ever stored."""
        text = json.dumps(self.described(), sort_keys=True, default=str, ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]

    @staticmethod
    def of(given: Workload | Prompt | Sequence[Prompt]) -> Workload:
        """A workload as it stands, or that of one prompt, one list of messages, or a list of prompts."""
        if isinstance(given, Workload):
            return given
        if isinstance(given, str) or _are_messages(given):
            return Workload.prompts([cast("Prompt", given)])
        return Workload.prompts(cast("Sequence[Prompt]", given))

    @staticmethod
    def prompts(prompts: Iterable[Prompt]) -> Workload:
        """Texts or lists of chat messages, asked in turn, and from the first again after the last."""
        return ListedWorkload(
            tuple((Turn(prompt if isinstance(prompt, str) else _messages(prompt)),) for prompt in prompts)
        )

    @staticmethod
    def conversations(conversations: Iterable[Sequence[Prompt]]) -> Workload:
        """Conversations of several turns: what the user says in each, as text or messages."""
        return ListedWorkload(
            tuple(
                tuple(Turn(turn if isinstance(turn, str) else _messages(turn)) for turn in turns)
                for turns in conversations
            )
        )

    @staticmethod
    def synthetic(
        *,
        input_tokens: int | tuple[int, int] | Lengths,
        output_tokens: int | tuple[int, int] | Lengths,
        shared_prefix_tokens: int = 0,
        prefixes: int = 1,
        turns: int = 1,
        seed: int = 0,
    ) -> Workload:
        """Random words: prompts of `input_tokens`, answers of `output_tokens`; a pair is a range.

        The chat template comes on top of the prompt. Every first prompt begins with one of `prefixes`
        texts of `shared_prefix_tokens`, which count among its tokens; beyond that no two are alike.
        """
        found = Synthetic(
            Lengths.parse(input_tokens),
            Lengths.parse(output_tokens),
            shared_prefix_tokens,
            prefixes,
            turns,
            seed,
        )
        if prefixes < 1 or turns < 1 or shared_prefix_tokens < 0:
            raise SettingsError(
                f"prefixes={prefixes}, turns={turns}, shared_prefix_tokens={shared_prefix_tokens}: "
                "at least one prefix and one turn are needed, and no negative length"
            )
        return found

    @staticmethod
    def mix(*parts: tuple[float, Workload | Prompt | Sequence[Prompt]], seed: int = 0) -> Workload:
        """Several workloads, each as often as its weight says: `mix((7, chat), (3, documents))`."""
        if not parts or any(not weight > 0 for weight, _ in parts):
            raise SettingsError("mix takes pairs (weight, workload) with positive weights")
        return Mixed(
            tuple(weight for weight, _ in parts), tuple(Workload.of(part) for _, part in parts), seed
        )


@dataclass(frozen=True, slots=True)
class ListedWorkload(Workload):
    """Conversations as they were given, in turn."""

    listed: tuple[Conversation, ...]
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse an empty list."""
        if not self.listed or not all(self.listed):
            raise SettingsError(
                "the workload is empty: give at least one prompt, and each conversation at least one turn"
            )

    def conversation(self, place: int) -> Conversation:
        """The conversation at a place."""
        return self.listed[place % len(self.listed)]

    @property
    def turns_each(self) -> int | None:
        """The number of turns of every conversation; None if it differs."""
        counts = {len(conversation) for conversation in self.listed}
        return counts.pop() if len(counts) == 1 else None

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on records of the file that are left out or changed."""
        return self.remarks

    def described(self) -> Any:
        """The workload's definition as plain builtins."""
        return [[turn.described() for turn in turns] for turns in self.listed]


@dataclass(frozen=True, slots=True)
class Synthetic(Workload):
    """Random words of drawn lengths."""

    input_tokens: Lengths
    output_tokens: Lengths
    shared_prefix_tokens: int
    prefixes: int
    turns: int
    seed: int

    def conversation(self, place: int) -> Conversation:
        """The conversation at a place."""
        random = Random(f"{self.seed}/{place}")
        prefix = self._prefix(random.randrange(self.prefixes))
        first = Turn(self._text(random, prefix), output_tokens=self.output_tokens.draw(random))
        others = (
            Turn(self._text(random, ""), output_tokens=self.output_tokens.draw(random))
            for _ in range(1, self.turns)
        )
        return first, *others

    @property
    def turns_each(self) -> int | None:
        """The number of turns of every conversation."""
        return self.turns

    def _prefix(self, number: int) -> str:
        return words(Random(f"{self.seed}/prefix {number}"), self.shared_prefix_tokens)

    def _text(self, random: Random, prefix: str) -> str:
        taken = self.shared_prefix_tokens if prefix else 0
        own = words(random, max(1, self.input_tokens.draw(random) - taken))
        return f"{prefix} {own}" if prefix else own

    def described(self) -> Any:
        """The workload's definition as plain builtins."""
        return [
            "synthetic 1",
            str(self.input_tokens),
            str(self.output_tokens),
            self.shared_prefix_tokens,
            self.prefixes,
            self.turns,
            self.seed,
        ]


@dataclass(frozen=True, slots=True)
class Mixed(Workload):
    """Several workloads; which one a place is of is drawn by weight."""

    weights: tuple[float, ...]
    parts: tuple[Workload, ...]
    seed: int

    def conversation(self, place: int) -> Conversation:
        """The conversation at a place."""
        bounds = list(accumulate(self.weights))
        drawn = Random(f"{self.seed}/part {place}").random() * bounds[-1]
        return self.parts[bisect(bounds, drawn, hi=len(bounds) - 1)].conversation(place)

    @property
    def turns_each(self) -> int | None:
        """The number of turns of every conversation; None if it differs."""
        counts = {part.turns_each for part in self.parts}
        return counts.pop() if len(counts) == 1 else None

    @property
    def notes(self) -> tuple[str, ...]:
        """Those of its parts."""
        return tuple(dict.fromkeys(note for part in self.parts for note in part.notes))

    def described(self) -> Any:
        """The workload's definition as plain builtins."""
        return ["mix", self.seed, list(self.weights), [part.described() for part in self.parts]]


def _are_messages(given: Any) -> bool:
    """True for one list of chat messages, where a list of prompts could stand too."""
    return bool(given) and all(isinstance(each, Mapping) for each in given)


def _messages(given: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    return tuple(dict(message) for message in given)
