"""The instrumented client that tests are handed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

import pytest_llmspeed.messages  # noqa: F401  so that results print as sentences
from pytest_llmspeed.engines.base import Engine
from pytest_llmspeed.errors import GenerationError, SettingsError, did_you_mean, hides_our_frames
from pytest_llmspeed.load.arrivals import Rate
from pytest_llmspeed.load.run import Arrivals, Load, ask_load, check_servable, run_load
from pytest_llmspeed.load.sweep import levels_of, run_sweep
from pytest_llmspeed.load.trace import Trace
from pytest_llmspeed.load.workload import Workload
from pytest_llmspeed.metrics.budgets import Budget, requests_needed
from pytest_llmspeed.metrics.exchange import LIMIT_FIELDS, Endpoint, Exchange, LimitField, Request
from pytest_llmspeed.metrics.load_curve import Curve
from pytest_llmspeed.metrics.load_result import LoadResult
from pytest_llmspeed.metrics.measurement import Answer, Measurement
from pytest_llmspeed.metrics.sample import CallKind, Sample
from pytest_llmspeed.quality.answers import CheckedSet, Scorer
from pytest_llmspeed.recording.recorder import Recorder
from pytest_llmspeed.recording.rounds import AUTO_STOPS, LEAST_ROUNDS, WARMUP, smoke_rounds, steady_enough
from pytest_llmspeed.recording.rounds import rounds as round_loop
from pytest_llmspeed.sdk.labels import LABEL_FIELD, label_of, labelled
from pytest_llmspeed.system.event_loop import LoopThread

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Client
    from openai import AsyncOpenAI, OpenAI

    from pytest_llmspeed.sdk.clients import SDKClients

__tracebackhide__ = hides_our_frames

MAX_TOKENS = 128
TIMEOUT_S = 120.0

QualityCheck = Callable[[str | Path | None, Mapping[str, Any]], CheckedSet]
Prompt = str | Sequence[Mapping[str, Any]]


class RequestOptions(TypedDict, total=False):
    """The options of a request, the same for `generate`, `measure`, `load` and `sweep`."""

    model: str | None
    """The model of a server that has several; by default the backend's."""
    max_tokens: int | None
    """The most tokens of an answer, 128 by default; None sends no limit."""
    output_tokens: int | None
    """Forces answers of this length."""
    temperature: float | None
    """0 by default; None sends none."""
    token_limit_field: LimitField
    """The field that carries the limit: "max_completion_tokens" for models that refuse "max_tokens"."""
    timeout_s: float
    """A request that takes longer has failed; 120 by default."""
    endpoint: Endpoint
    """By default "chat"; "completions" continues a text without a chat template."""
    extra_body: Mapping[str, Any] | None
    """Further fields of the request's body (`top_p`, `seed`, …)."""


class LLMClient:
    """Sends requests to the leased engine and measures each of them.

    A prompt is a text, or chat messages in the shape of the OpenAI API. Every call takes `RequestOptions`.
    `label` names what is compared and budgeted on its own; without it, that of the `with` block around the
    call.
    """

    def __init__(
        self,
        engine: Engine,
        loop: LoopThread,
        recorder: Recorder,
        budgets: Callable[[], Sequence[Budget]] = tuple,
        *,
        quality_check: QualityCheck | None = None,
        smoke: int | None = None,
        not_counted: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._engine, self._loop, self._recorder = engine, loop, recorder
        self._budgets = budgets
        self._quality_check = quality_check
        self._smoke_rounds = smoke
        self._not_counted = not_counted  # entered around imports: they are not the engine's memory
        self._warm: set[tuple[object, ...]] = set()

    @property
    def measurement(self) -> Measurement:
        """Everything this test has measured so far."""
        return self._recorder.measurement

    def generate(
        self,
        prompt: Prompt,
        *,
        label: str | None = None,
        warmup: bool | int = True,
        **options: Unpack[RequestOptions],
    ) -> Answer:
        """Return the answer to one request.

        The first call of its shape in a test is preceded by two warm-up requests (`warmup=False`:
        none); inside `rounds` the whole body warms up instead. Raises `GenerationError` if the
        request fails; its sample is recorded all the same.
        """
        request = _request(prompt, options)
        label = label_of(label)
        self._warm_up(request, WARMUP if warmup is True else int(warmup), label)
        exchange, sample = self._send(request, "generate", label)
        if sample.error is not None:
            raise GenerationError(sample.error, sample)
        parts = {name: exchange.joined(name) for name in ("reasoning", "refusal", "tool_call")}
        return Answer(sample, **parts)

    def measure(
        self,
        prompt: Prompt,
        *,
        rounds: int | Literal["auto"] | None = None,
        warmup: int = WARMUP,
        label: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> Measurement:
        """Return the measurement of one request repeated, failures counted.

        Takes as many rounds as the test's budgets need, at least ten, unless `rounds` says how many.
        With `rounds="auto"` it stops at 5, 10, 20 or 40, once TTFT and TPOT are steady.
        """
        request = _request(prompt, options)
        label = label_of(label)
        start, needed = self._recorder.count, self._rounds_needed(label)
        if self._smoke_rounds is not None:
            planned = smoke_rounds(self._recorder, self._smoke_rounds, warmup, body=False)
        elif rounds == "auto":
            enough = steady_enough(self._recorder, start, requests_needed(self._budgets(), label, 0))
            planned = round_loop(
                self._recorder, max(AUTO_STOPS[-1], needed), warmup, body=False, enough=enough
            )
        else:
            count = needed if rounds is None else rounds
            planned = round_loop(self._recorder, count, warmup, body=False)
        for _ in planned:
            self._send(request, "measure", label)
        return self._recorder.since(start)

    def load(
        self,
        workload: Workload | Prompt | Sequence[Prompt] | None = None,
        *,
        concurrency: int | None = None,
        rate: float | Rate | None = None,
        trace: Trace | None = None,
        requests: int | None = None,
        duration_s: float | None = None,
        warmup: int | None = None,
        slo: Mapping[str, float] | None = None,
        label: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> LoadResult:
        """Return what many requests at once showed, once all are answered; failures are counted.

        `concurrency`: so many under way at any time; `rate`: so many a second, come what may (a number is
        Poisson); `trace`: those of a trace. It ends after `requests`, or sends none after `duration_s`.
        `warmup` requests go before (as many as `concurrency`). `slo` holds limits that a good request keeps,
        as in {"ttft_ms": 300}. Raises `SettingsError` for a load that cannot be run, `GenerationError` if no
        warm-up is answered.
        """
        asked = ask_load(
            Workload.of(trace if workload is None and trace is not None else workload or ()),
            _request("", options),
            Arrivals(concurrency, rate, trace),
            requests=requests,
            duration_s=duration_s,
            least_requests=self._rounds_needed(label_of(label)),
            warmup=warmup,
            slo=slo,
            label=label_of(label),
        )
        return self._run(asked)

    def sweep(
        self,
        workload: Workload | Prompt | Sequence[Prompt],
        *,
        concurrency: Sequence[int] | None = None,
        rates: Sequence[float | Rate] | None = None,
        requests: int | None = None,
        duration_s: float | None = None,
        slo: Mapping[str, float] | None = None,
        stop_early: bool = True,
        label: str | None = None,
        **options: Unpack[RequestOptions],
    ) -> Curve:
        """Return the curve of loads from the lowest on.

        It ends early where more load only waits longer (`stop_early=False`: it runs all of them, unless
        one fails).

        `requests` or `duration_s` are those of each load. The test's budgets are held against the
        highest load that keeps them. Raises as `load` does.
        """
        template = _request("", options)
        asked = partial(
            ask_load,
            Workload.of(workload),
            template,
            requests=requests,
            duration_s=duration_s,
            least_requests=self._rounds_needed(label_of(label)),
            warmup=None,
            slo=slo,
            label=label_of(label),
        )
        budgets = [budget for budget in self._budgets() if budget.label in (None, label_of(label))]
        return run_sweep(
            levels_of(concurrency, rates),
            asked,
            self._run,
            budgets,
            self._recorder,
            check=lambda load: check_servable(load, self._engine),
            stop_early=stop_early,
        )

    def rounds(self, count: int = LEAST_ROUNDS, warmup: int = WARMUP) -> Iterator[int]:
        """Repeat a loop's body: `for _ in llm_client.rounds(10): my_application(llm_client)`.

        The calls of the first `warmup` rounds are left out. Calls are told apart by their place in
        the body. Yields the number of the round, negative during warm-up.
        """
        if self._smoke_rounds is not None:
            return smoke_rounds(self._recorder, self._smoke_rounds, warmup, body=True)
        return round_loop(self._recorder, count, warmup, body=True)

    def label(self, label: str) -> AbstractContextManager[None]:
        """Label the calls made inside: `with llm_client.label("plan"): agent.plan(…)`.

        Counts for calls of this client and of its SDK clients that are made in this thread or task, and
        in the tasks begun inside. The innermost block wins; `label=` of a call, or the header
        `X-LLMSpeed-Label` or body field `llmspeed_label` of an SDK call, win over it.
        """
        if not label or not isinstance(label, str):
            raise SettingsError(f"label({label!r}): a label must be a string that is not empty")
        return labelled(label)

    def check_quality(
        self,
        prompts: str | Path | None = None,
        *,
        quality_vs: str | None = None,
        max_kl: float | None = None,
        min_top1: float | None = None,
        min_score: float | None = None,
        scorer: Scorer | None = None,
    ) -> CheckedSet:
        """Ask a set of prompts and return the answers; they are judged with the test, at its end.

        `prompts` is a file of them, from the test's folder; without one that of the ini file, or the
        general set. `scorer` is a function of prompt and answer to a score. None of these requests is
        measured. Raises `SettingsError` for a file or a limit that cannot be used.
        """
        if self._quality_check is None:
            raise SettingsError("this client was made without quality checks: use the fixture llm_client")
        limits = {"quality_vs": quality_vs, "max_kl": max_kl, "min_top1": min_top1, "min_score": min_score}
        return self._quality_check(prompts, {**limits, "scorer": scorer})

    @property
    def openai(self) -> OpenAI:
        """A real `openai` client for code under test: each of its calls is measured.

        Chat, completions and (of a server) responses, streamed or not; other calls pass. A call that
        fails raises the SDK's own error, and fails the test unless an `error_rate` budget allows it.
        """
        return self._sdk.openai

    @property
    def async_openai(self) -> AsyncOpenAI:
        """The same for coroutines, in whichever asyncio loop is running."""
        return self._sdk.async_openai

    @property
    def http_client(self) -> Client:
        """The HTTP client beneath `openai`, for frameworks; they also want its `base_url` and `api_key`."""
        return self._sdk.http_client

    @property
    def async_http_client(self) -> AsyncClient:
        """The HTTP client beneath `async_openai`."""
        return self._sdk.async_http_client

    def close(self) -> None:
        """Close the SDK clients, if there are any."""
        if "_sdk" in self.__dict__:
            self._sdk.close()

    @cached_property
    def _sdk(self) -> SDKClients:
        with self._not_counted():
            from pytest_llmspeed.sdk.clients import SDKClients
        return SDKClients(self._engine, self._loop, self._recorder, TIMEOUT_S)

    def _run(self, load: Load) -> LoadResult:
        with self._recorder.turn():
            return run_load(load, self._engine, self._loop, self._recorder, self._recorder.watch)

    def _rounds_needed(self, label: str | None) -> int:
        """Return how many requests the budgets of a label need."""
        return requests_needed(self._budgets(), label, LEAST_ROUNDS)

    def _send(self, request: Request, call: CallKind, label: str | None) -> tuple[Exchange, Sample]:
        """Send one request and record it."""
        sent = self._recorder.send(request, call, label)
        try:
            exchange = self._loop.run(self._engine.exchange(request))
            return exchange, sent.finish(exchange)
        finally:
            sent.forget()

    def _warm_up(self, request: Request, count: int, label: str | None) -> None:
        """Send warm-up requests, once a shape; the first that fails is the last."""
        shape = (request.endpoint, request.model, request.limit)
        if self._recorder.in_body or shape in self._warm or count < 1:
            return
        self._warm.add(shape)
        with self._recorder.warming():
            for _ in range(count if self._smoke_rounds is None else 1):
                _, sample = self._send(request, "generate", label)
                if not sample.ok:
                    return


def _request(prompt: Prompt, options: RequestOptions) -> Request:
    """Return the request that a call's arguments describe; raises `SettingsError` for senseless ones."""
    if unknown := sorted(options.keys() - RequestOptions.__annotations__):
        known = did_you_mean(unknown[0], RequestOptions.__annotations__)
        raise SettingsError(f"a request has no option {unknown[0]!r}; {known}")
    extra_body = options.get("extra_body") or {}
    if LABEL_FIELD in extra_body:
        raise SettingsError(f"extra_body={{{LABEL_FIELD!r}: …}} is for SDK clients: here, use label=")
    request = Request(
        prompt if isinstance(prompt, str) else tuple(dict(m) for m in prompt),
        endpoint=options.get("endpoint", "chat"),
        model=options.get("model"),
        max_tokens=options.get("max_tokens", MAX_TOKENS),
        output_tokens=options.get("output_tokens"),
        temperature=options.get("temperature", 0.0),
        limit_field=options.get("token_limit_field", "max_tokens"),
        timeout_s=options.get("timeout_s", TIMEOUT_S),
        extra_body=extra_body,
    )
    if request.endpoint not in ("chat", "completions"):
        raise SettingsError(f"endpoint={request.endpoint!r}: it is 'chat' or 'completions'")
    if request.limit_field not in LIMIT_FIELDS:
        raise SettingsError(f"token_limit_field={request.limit_field!r}: it is {' or '.join(LIMIT_FIELDS)}")
    for name in ("max_tokens", "output_tokens"):
        count = getattr(request, name)
        if count is not None and count < 1:
            raise SettingsError(f"{name}={count}: at least one token is needed")
    if not request.timeout_s > 0:
        raise SettingsError(f"timeout_s={request.timeout_s}: a request needs a positive time limit")
    return request
