"""What the client of one test has measured so far, and what it declared of its workload."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Lock

from pytest_llmspeed.core.exchange import Exchange, Request
from pytest_llmspeed.core.load_result import LoadResult
from pytest_llmspeed.core.measurement import Measurement
from pytest_llmspeed.core.metrics import CallKind, Sample, sample_of


class Recorder:
    """Takes the exchanges of one test and keeps their samples, in the order sent.

    Samples are held together in strata: of `measure`, what it declares of its request; of free calls,
    one label and one prompt, numbered by first appearance, so that a prompt with a date in it still
    meets its baseline; in a repeated body, one label and one place among the body's calls.
    """

    def __init__(self) -> None:
        self._samples: list[Sample] = []
        self._loads: list[LoadResult] = []
        self._warmup_requests = 0
        self._workload: dict[str, None] = {}
        self._prompts: dict[str | None, dict[str, int]] = {}
        self._origin_s: float | None = None
        self._warming = False
        self._bodies = 0
        self._lock = Lock()
        self._under_way: list[Event] = []
        self._calls_in_body: int | None = None

    @property
    def measurement(self) -> Measurement:
        """All that was measured so far."""
        return Measurement(tuple(self._samples), self._warmup_requests, loads=tuple(self._loads))

    @property
    def workload(self) -> tuple[str, ...]:
        """What was declared of the requests, one line a kind of call."""
        return tuple(sorted(self._workload))

    @property
    def in_body(self) -> bool:
        """True inside a repeated body, which warms up as a whole."""
        return self._calls_in_body is not None

    def since(self, start: int) -> Measurement:
        """What was measured after the first `start` requests."""
        return Measurement(tuple(self._samples[start:]), self._warmup_requests)

    def was_quiet_since(self, start: int) -> bool:
        """True if none of the requests after the first `start` was disturbed."""
        return all(sample.quiet for sample in self._samples[start:])

    @property
    def count(self) -> int:
        """How many requests were measured so far."""
        return len(self._samples)

    @contextmanager
    def in_flight(self) -> Iterator[Event]:
        """A request on its way; the event is set if another is, at any time meanwhile, on its way too.

        The client measures one request at a time: what an application sends from several threads
        at once is flagged, and not compared.
        """
        overlapped = Event()
        with self._lock:
            self._under_way.append(overlapped)
            if len(self._under_way) > 1:
                for event in self._under_way:
                    event.set()
        try:
            yield overlapped
        finally:
            with self._lock:
                self._under_way.remove(overlapped)

    @contextmanager
    def warming(self) -> Iterator[None]:
        """Requests inside are warm-up: counted, and left out of every figure."""
        before, self._warming = self._warming, True
        try:
            yield
        finally:
            self._warming = before

    @contextmanager
    def body(self, *, first: bool) -> Iterator[None]:
        """One round of a repeated body; `first` opens a new one."""
        self._bodies += first
        before, self._calls_in_body = self._calls_in_body, 0
        try:
            yield
        finally:
            self._calls_in_body = before

    def record(
        self, exchange: Exchange, call: CallKind, label: str | None, foreign_cpu: float | None = None
    ) -> Sample:
        """Keep one finished exchange; return its sample."""
        kind: CallKind = "rounds" if self.in_body and call == "generate" else call
        declared = _declared(exchange.request, kind, label)
        stratum = self._stratum(exchange.request, kind, label, declared)
        if not self._warming and self._origin_s is None:
            self._origin_s = exchange.started_s
        sample = sample_of(
            exchange,
            label=label,
            stratum=stratum,
            call=kind,
            origin_s=self._origin_s,
            foreign_cpu=foreign_cpu,
        )
        if self._warming:
            self._warmup_requests += 1
        else:
            self._samples.append(sample)
            self._workload[declared] = None
        return sample

    def origin_s(self, first_s: float) -> float:
        """The zero of `started_ms`: the first measured request of the test, which may be this one."""
        if self._origin_s is None:
            self._origin_s = first_s
        return self._origin_s

    def stratum_of_load(self, declared: str, label: str | None) -> str:
        """The stratum of a load of that kind; of a second such load in the test another one."""
        name = f"{label}/" if label else ""
        name += f"load {hashlib.sha256(declared.encode()).hexdigest()[:6]}"
        before = sum(load.stratum.partition(" #")[0] == name for load in self._loads)
        return f"{name} #{before + 1}" if before else name

    def record_load(self, load: LoadResult, declared: str) -> None:
        """Keep a load and its requests."""
        self._loads.append(load)
        self._samples += load.samples
        self._warmup_requests += load.warmup_requests
        self._workload[declared] = None

    def replace_loads(self, loads: Sequence[LoadResult]) -> None:
        """Put loads in the place of those of the same stratum."""
        new = {load.stratum: load for load in loads}
        self._loads = [new.get(load.stratum, load) for load in self._loads]

    def _stratum(self, request: Request, kind: CallKind, label: str | None, declared: str) -> str:
        prefix = f"{label}/" if label else ""
        if kind == "rounds" and self._calls_in_body is not None:
            self._calls_in_body += 1
            body = f"body {self._bodies} " if self._bodies > 1 else ""
            return f"{prefix}{body}call {self._calls_in_body}"
        if kind == "measure":
            return f"{prefix}prompt {hashlib.sha256(declared.encode()).hexdigest()[:6]}"
        prompts = self._prompts.setdefault(label, {})
        place = prompts.setdefault(request.prompt_hash, len(prompts) + 1)
        return f"{prefix}prompt {place}"


def _declared(request: Request, kind: CallKind, label: str | None) -> str:
    """One line that says what was asked; the prompt is part of it where `measure` repeats it."""
    parts = [
        kind,
        request.endpoint,
        f"{'max' if request.output_tokens is None else 'output'}_tokens={request.limit}",
        f"temperature={request.temperature:g}",
    ]
    if request.model:
        parts.append(f"model={request.model}")
    if request.extra_body:
        extra = json.dumps(dict(request.extra_body), sort_keys=True, default=repr)
        parts.append(f"extra_body={hashlib.sha256(extra.encode()).hexdigest()[:8]}")
    if kind == "measure":
        parts.append(f"prompt={request.prompt_hash}")
    if label:
        parts.append(f"label={label}")
    return " ".join(parts)
