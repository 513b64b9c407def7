"""The series a request belongs to: the samples that are compared with each other from run to run."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pytest_llmspeed.metrics.exchange import Request, plain_text
from pytest_llmspeed.metrics.sample import CallKind


@dataclass(frozen=True, slots=True)
class SeriesPlace:
    """Where a request belongs: settled when it is sent, whenever it ends."""

    call: CallKind
    label: str | None
    stratum: str
    declared: str
    is_warmup: bool


class SeriesNames:
    """Names the series of one test's requests, in the order they are sent.

    A series of `measure` is named by what it declares of its request. Free calls form one series per label
    and prompt, numbered by first appearance, so that a prompt with a date in it still meets its baseline. In
    a repeated body there is one per label and place among the body's calls with that label, so that a call
    added under another label moves none of them.
    """

    def __init__(self) -> None:
        self._prompts: dict[str | None, dict[str, int]] = {}
        self._bodies = 0
        self._bodies_of: dict[str | None, dict[int, int]] = {}
        self._calls_in_body: Counter[str | None] | None = None

    @property
    def in_body(self) -> bool:
        """True inside a repeated body."""
        return self._calls_in_body is not None

    @contextmanager
    def body(self, *, first: bool) -> Iterator[None]:
        """One round of a repeated body; `first` opens a new one."""
        self._bodies += first
        before, self._calls_in_body = self._calls_in_body, Counter()
        try:
            yield
        finally:
            self._calls_in_body = before

    def place(self, request: Request, call: CallKind, label: str | None, *, is_warmup: bool) -> SeriesPlace:
        """Return the place of the request that is sent next."""
        kind: CallKind = "rounds" if self.in_body and call == "generate" else call
        label = plain_text(label)
        said = declared(request, kind, label)
        return SeriesPlace(kind, label, self._name(request, kind, label, said), said, is_warmup)

    def _name(self, request: Request, kind: CallKind, label: str | None, declared: str) -> str:
        prefix = f"{label}/" if label else ""
        if kind in ("rounds", "sdk") and self._calls_in_body is not None:
            self._calls_in_body[label] += 1
            bodies = self._bodies_of.setdefault(label, {})
            number = bodies.setdefault(self._bodies, len(bodies) + 1)
            body = f"body {number} " if number > 1 else ""
            return f"{prefix}{body}call {self._calls_in_body[label]}"
        if kind == "measure":
            return f"{prefix}prompt {hashlib.sha256(declared.encode()).hexdigest()[:6]}"
        prompts = self._prompts.setdefault(label, {})
        place = prompts.setdefault(request.prompt_hash, len(prompts) + 1)
        return f"{prefix}prompt {place}"


def series_of_load(declared: str, label: str | None, before: Sequence[str]) -> str:
    """Return the series of a load, numbered if `before`, the test's loads so far, has some of its kind."""
    name = f"{label}/" if label else ""
    name += f"load {hashlib.sha256(declared.encode()).hexdigest()[:6]}"
    alike = sum(other == name or other.startswith(f"{name} #") for other in before)
    return f"{name} #{alike + 1}" if alike else name


def declared(request: Request, kind: CallKind, label: str | None) -> str:
    """One line that says what was asked; the prompt is part of it where `measure` repeats it."""
    parts = [kind, request.endpoint, *declared_sampling(request)]
    if kind == "measure":
        parts.append(f"prompt={request.prompt_hash}")
    if label:
        parts.append(f"label={label}")
    return " ".join(parts)


def declared_sampling(request: Request) -> list[str]:
    """Return what a request asks of the answer, one word each: its length, how it is drawn, the model."""
    limit = request.limit_field if request.output_tokens is None else "output_tokens"
    temperature = "its own" if request.temperature is None else f"{request.temperature:g}"
    parts = [f"{limit}={request.limit}", f"temperature={temperature}"]
    if request.model:
        parts.append(f"model={request.model}")
    if request.extra_body:
        extra = json.dumps(dict(request.extra_body), sort_keys=True, default=repr)
        parts.append(f"extra_body={hashlib.sha256(extra.encode()).hexdigest()[:8]}")
    return parts
