"""What a load sends and when, as frozen data, whole or in the shares of several processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count, islice
from math import ceil
from typing import Any

from pytest_llmspeed.load.workload import Conversation, Workload
from pytest_llmspeed.metrics.exchange import Request

WARMUP_PLACES = 1_000_000_007
"""Warm-up asks the conversations from this place on, so that it fills no cache with what is measured."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One conversation: its place in the load, its turns, and when it is due (closed loops: None)."""

    place: int
    conversation: Conversation
    due_s: float | None = None


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What is to be sent.

    Closed loop: `slots` conversations are under way at any time. Open: the conversation at each
    place is due at `due_s[place]` seconds from the start. It ends after `requests`, or once
    `duration_s` has passed. `warmup` requests are sent before. `first` and `step` make it the share
    of one of several processes: of the places it has first, first + step, ….
    """

    workload: Workload
    template: Request
    slots: int | None = None
    due_s: tuple[float, ...] | None = None
    requests: int | None = None
    duration_s: float | None = None
    warmup: int = 0
    first: int = 0
    step: int = 1

    def is_certain(self, turn: int) -> bool:
        """True if the plan alone tells that this turn is sent, False if the clock decides on the way."""
        return self.duration_s is None or (self.due_s is not None and turn == 0)

    def certain(self) -> Iterator[tuple[int, int]]:
        """Yield place and turn of each request of this share that is certain to be sent."""
        if self.duration_s is not None and self.due_s is None:
            return
        for planned in self.planned():
            turns = range(len(planned.conversation))
            yield from ((planned.place, turn) for turn in turns if self.is_certain(turn))

    @property
    def longest_s(self) -> float:
        """The time after which every request has been answered or given up."""
        timeout_s = self.template.timeout_s
        if self.duration_s is not None:
            return self.duration_s + timeout_s
        turns = self.workload.turns_each or self.requests or 1
        if self.due_s is not None:
            return (self.due_s[-1] if self.due_s else 0.0) + turns * timeout_s
        return (ceil((self.requests or 1) / (self.slots or 1)) + turns) * timeout_s

    def shares(self, processes: int) -> tuple[LoadPlan, ...]:
        """The plan cut into as many, each with its part of places, slots and warm-up."""
        return tuple(
            replace(
                self,
                first=self.first + share,
                step=processes,
                slots=None if self.slots is None else _part(self.slots, share, processes),
                warmup=_part(self.warmup, share, processes),
            )
            for share in range(processes)
        )

    def planned(self) -> Iterator[Planned]:
        """Yield the conversations of this share in order, the last one cut where the total would pass."""
        places = count() if self.due_s is None else iter(range(len(self.due_s)))
        left, turns_each = self.requests, self.workload.turns_each
        for place in places:
            if left is not None and left <= 0:
                return
            mine = place % self.step == self.first
            if not mine and turns_each == 1:
                left = None if left is None else left - 1
                continue
            conversation = self.workload.conversation(place)[:left]
            left = None if left is None else left - len(conversation)
            if mine:
                yield Planned(place, conversation, None if self.due_s is None else self.due_s[place])

    def warmups(self) -> Iterator[Planned]:
        """Yield what is sent before: so many conversations, cut to their first turn."""
        start = WARMUP_PLACES + self.first
        for place in islice(count(start, self.step), self.warmup):
            yield Planned(place, self.workload.conversation(place)[:1])

    def request(self, planned: Planned, turn: int, before: tuple[Mapping[str, Any], ...] = ()) -> Request:
        """The request of one turn, after the messages `before` it."""
        asked, template = planned.conversation[turn], self.template
        own = asked.max_tokens is not None or asked.output_tokens is not None
        request = replace(
            template,
            prompt=asked.prompt,
            max_tokens=asked.max_tokens if own else template.max_tokens,
            output_tokens=asked.output_tokens if own else template.output_tokens,
            temperature=template.temperature if asked.temperature is None else asked.temperature,
            extra_body={**template.extra_body, **asked.extra_body},
            endpoint=asked.endpoint or template.endpoint,
            limit_field=asked.limit_field if own else template.limit_field,
        )
        return replace(request, prompt=(*before, *request.messages)) if before else request


def _part(whole: int, share: int, processes: int) -> int:
    return whole // processes + (share < whole % processes)
