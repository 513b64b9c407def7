"""One load: what was asked → a plan, run by worker processes or by the engine here → its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf
from operator import index
from typing import Any

from pytest_llmspeed.engines.base import Engine, ServedEngine
from pytest_llmspeed.errors import LLMSpeedError, SettingsError, did_you_mean, hides_our_frames
from pytest_llmspeed.load.arrivals import Rate
from pytest_llmspeed.load.client_health import health_of
from pytest_llmspeed.load.plan import LoadPlan, Planned
from pytest_llmspeed.load.send_loop import EngineSender, LoadRequest, LoadRunner
from pytest_llmspeed.load.trace import Trace
from pytest_llmspeed.load.worker_pool import Outcome, run_watched, warm_or_raise, workers_for
from pytest_llmspeed.load.workload import Workload
from pytest_llmspeed.metrics.exchange import Exchange, Request
from pytest_llmspeed.metrics.load_figures import (
    BLOCKS,
    Answered,
    blocks,
    faults,
    goodput,
    offered_per_s,
    output_tokens,
    peak_concurrency,
    steady_tps,
    window_of,
)
from pytest_llmspeed.metrics.load_result import LoadResult, request_metrics
from pytest_llmspeed.metrics.reasons import Explanation, Reason
from pytest_llmspeed.metrics.sample import sample_of
from pytest_llmspeed.recording.recorder import Recorder
from pytest_llmspeed.recording.series import declared_sampling
from pytest_llmspeed.system import clock
from pytest_llmspeed.system.cpu import CPUWatch
from pytest_llmspeed.system.event_loop import LoopThread
from pytest_llmspeed.transport.recorded_response import RecordedResponse

__tracebackhide__ = hides_our_frames

LEAST_OPEN = 5 * BLOCKS
"""An open load has at least so many requests: five for each of its ten blocks."""
MOST_WARMUP = 64
"""An open load warms up with as many requests as come in a second, and no more than this."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a call of `load` asks, checked. Not `compared`: no baseline is held against it."""

    plan: LoadPlan
    asked: Mapping[str, Any]
    declared: str
    slo: Mapping[str, float]
    label: str | None = None
    counted: bool = True
    compared: bool = True
    too_short: Explanation | None = None
    """Why it has too few requests for a baseline; it is measured all the same."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """How requests come: the three that exclude each other, as the call named them."""

    concurrency: int | None = None
    rate: float | Rate | None = None
    trace: Trace | None = None

    def __post_init__(self) -> None:
        """Refuse none of them, or several; a whole number of NumPy is one as any other."""
        given = [name for name in ("concurrency", "rate", "trace") if getattr(self, name) is not None]
        if len(given) != 1:
            names = " and ".join(f"{name}=" for name in given) or "none of them"
            raise SettingsError(f"load takes one of concurrency=, rate= and trace=; {names} was given")
        if self.concurrency is not None:
            object.__setattr__(self, "concurrency", _whole("concurrency", self.concurrency))
            if self.concurrency < 1:
                raise SettingsError(
                    f"concurrency={self.concurrency}: a load needs at least one request in flight"
                )


def _whole(name: str, value: Any) -> int:
    try:
        return index(value)
    except TypeError as error:
        raise SettingsError(f"{name}={value!r}: must be a whole number") from error


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"{name}={value!r}: must be a number") from error


def ask_load(
    workload: Workload,
    template: Request,
    arrivals: Arrivals,
    *,
    requests: int | None,
    duration_s: float | None,
    least_requests: int,
    warmup: int | None,
    slo: Mapping[str, float] | None,
    label: str | None,
) -> Load:
    """Return the load that a call asks for; raises `SettingsError` naming what is senseless."""
    duration_s = None if duration_s is None else _number("duration_s", duration_s)
    requests = None if requests is None else _whole("requests", requests)
    requests = _requests(arrivals, requests, duration_s, least_requests)
    too_short = _too_short(arrivals, requests)
    due_s = None if arrivals.concurrency else _due_s(arrivals, requests, duration_s)
    warmup = _warmup(arrivals) if warmup is None else _whole("warmup", warmup)
    if warmup < 0:
        raise SettingsError(f"warmup={warmup}: must be 0 or more")
    plan = LoadPlan(workload, template, arrivals.concurrency, due_s, requests, duration_s, warmup)
    _check_endpoint(plan)
    limits = dict(slo or {})
    for metric, limit in limits.items():
        if metric not in request_metrics():
            raise SettingsError(f"slo={{{metric!r}: {limit}}}: {did_you_mean(metric, request_metrics())}")
    asked = {
        "concurrency": arrivals.concurrency,
        "rate": _shown_rate(arrivals),
        "trace": None if arrivals.trace is None else arrivals.trace.hash,
        "requests": plan.requests,
        "duration_s": duration_s,
        "workload": workload.hash,
    }
    return Load(plan, asked, _declared(asked, template, label), limits, label, too_short=too_short)


def _check_endpoint(plan: LoadPlan) -> None:
    """Refuse messages that would be asked as a text to be continued."""
    first = plan.workload.conversation(0)
    if plan.request(Planned(0, first), 0).endpoint != "completions":
        return
    if not isinstance(first[0].prompt, str) or len(first) > 1:
        raise SettingsError("endpoint='completions' continues a text: chat messages need endpoint='chat'")


def _rate(arrivals: Arrivals) -> Rate | None:
    rate = arrivals.rate
    return rate if isinstance(rate, Rate | None) else Rate(_number("rate", rate))


def _shown_rate(arrivals: Arrivals) -> str | None:
    """The rate that is asked, also that of a trace."""
    if arrivals.trace is not None:
        per_s = arrivals.trace.per_s
        return None if per_s is None else f"{per_s:.6g}/s of the trace"
    rate = _rate(arrivals)
    return None if rate is None else str(rate)


def _warmup(arrivals: Arrivals) -> int:
    if arrivals.concurrency is not None:
        return arrivals.concurrency
    rate = _rate(arrivals)
    return 2 if rate is None else min(max(2, ceil(rate.per_s)), MOST_WARMUP)


def _requests(arrivals: Arrivals, requests: int | None, duration_s: float | None, least: int) -> int | None:
    """Return how many requests are sent, None where the time decides."""
    if requests is not None and duration_s is not None:
        raise SettingsError("load takes requests= or duration_s=, not both")
    if duration_s is not None:
        if not 0 < duration_s < inf:
            raise SettingsError(f"duration_s={duration_s}: must be positive and finite")
        return None
    if requests is None:
        needed = _comparable(arrivals)
        requests = len(arrivals.trace.rows) if arrivals.trace is not None else max(needed, least)
    if requests < 1:
        raise SettingsError(f"requests={requests}: must be at least 1")
    if arrivals.trace is not None and requests > len(arrivals.trace.rows):
        rows = len(arrivals.trace.rows)
        raise SettingsError(
            f"requests={requests}: the trace has {rows}; use at most that many, or omit requests="
        )
    return requests


def _comparable(arrivals: Arrivals) -> int:
    """Return how many requests a baseline needs: ten for each slot, or five arrivals in each part."""
    return LEAST_OPEN if arrivals.concurrency is None else BLOCKS * arrivals.concurrency


def _too_short(arrivals: Arrivals, requests: int | None) -> Explanation | None:
    needed = _comparable(arrivals)
    if requests is None or requests >= needed:
        return None
    return Reason.LOAD_TOO_SHORT(requests=requests, least=needed)


def _due_s(arrivals: Arrivals, requests: int | None, duration_s: float | None) -> tuple[float, ...]:
    if arrivals.trace is not None:
        due_s = arrivals.trace.offsets_s[:requests]
        return due_s if duration_s is None else tuple(each for each in due_s if each < duration_s)
    rate = _rate(arrivals)
    assert rate is not None
    return rate.first(requests or 0) if duration_s is None else rate.within(duration_s)


def _declared(asked: Mapping[str, Any], template: Request, label: str | None) -> str:
    """One line that says what was asked, its number of requests aside."""
    keyed = {name: value for name, value in asked.items() if name not in ("requests", "duration_s")}
    if asked["trace"] is not None:
        del keyed["rate"]  # the hash of the trace holds its times
    shape = [f"{name}={value}" for name, value in keyed.items() if value is not None]
    if "rate" in keyed and keyed["rate"] is not None:
        shape.append("gaps=scaled")  # those of older stores were not, and offered another rate
    parts = ["load", template.endpoint, *shape, *declared_sampling(template)]
    return " ".join([*parts, *([f"label={label}"] if label else [])])


def check_servable(load: Load, engine: Engine) -> None:
    """Raise `SettingsError` if the engine cannot serve as many requests at once as the load has."""
    slots, limit = load.plan.slots, engine.max_concurrency
    if slots is not None and limit is not None and slots > limit:
        many = "one request" if limit == 1 else f"{limit} requests"
        raise SettingsError(
            f"concurrency={slots}: the backend {engine.backend.name!r} serves {many} at a time, so the "
            f"others would only wait in a queue; use at most {limit}, or start the model in a server and use "
            f"its URL"
        )


def run_load(
    load: Load,
    engine: Engine,
    loop: LoopThread,
    recorder: Recorder,
    watch: CPUWatch | None,
    *,
    processes: int | None = None,
) -> LoadResult:
    """Run a load, record it, and return its result.

    An interruption (Ctrl-C, a time limit of the test) goes on once what was measured is recorded.
    Raises `SettingsError` where the engine cannot serve as many at once, `GenerationError` where no
    warm-up request was answered.
    """
    check_servable(load, engine)
    limit = engine.max_concurrency
    if isinstance(engine, ServedEngine):
        outcome = run_watched(load.plan, engine.target, processes or workers_for(load.plan), watch)
    else:
        outcome = _run_here(load.plan, EngineSender(engine, limit, watch), loop)
    exchanges = [_read(sent, load.plan) for sent in outcome.sent]
    if isinstance(engine, ServedEngine):
        exchanges = loop.run(_completed(engine, exchanges))
    result = result_of(load, outcome, exchanges, recorder, queues_here=limit is not None)
    recorder.record_load(result, load.declared)
    if outcome.interrupted is not None:
        raise outcome.interrupted
    return result


def _run_here(plan: LoadPlan, sender: EngineSender, loop: LoopThread) -> Outcome:
    outcome = Outcome()
    runner = LoadRunner(plan, sender, outcome.sent.append)

    async def run() -> None:
        warm_or_raise(await runner.warm_up(), plan.warmup)
        runner.prepare()
        outcome.start_s = clock.now_s()
        await runner.run(outcome.start_s)

    try:
        loop.run(run())
    except LLMSpeedError:
        raise
    except BaseException as interruption:  # noqa: BLE001  (it goes on once what was measured is kept)
        outcome.interrupted = interruption
        handed_back = {(sent.place, sent.turn) for sent in outcome.sent}
        outcome.not_sent = sum(each not in handed_back for each in plan.certain())
    return outcome


def _read(sent: LoadRequest, plan: LoadPlan) -> Exchange:
    """The answer to a request that was sent, or that should have been."""
    request = sent.request or plan.template
    if isinstance(sent.answer, RecordedResponse):
        return sent.answer.exchange(request)
    if sent.answer is not None:
        return sent.answer
    error = sent.error or "it was cancelled before it was sent"
    return Exchange(request, sent.due_s or clock.now_s(), error=error)


async def _completed(engine: ServedEngine, exchanges: Sequence[Exchange]) -> list[Exchange]:
    """The answers with what their engine adds to those that came over the wire: token counts, reasons."""
    return [await engine.completed(found) for found in exchanges]


def result_of(
    load: Load, outcome: Outcome, exchanges: Sequence[Exchange], recorder: Recorder, *, queues_here: bool
) -> LoadResult:
    """Return what a load showed; `exchanges` are those of `outcome.sent`, in that order."""
    stratum = recorder.series_of_load(load.declared, load.label)
    first_s = min((found.started_s for found in exchanges), default=outcome.start_s)
    origin_s = recorder.origin_s(first_s)
    answered = sorted(
        (
            _answered(load, sent, found, stratum, origin_s, busy_share=recorder.busy_share)
            for sent, found in zip(outcome.sent, exchanges, strict=True)
        ),
        key=lambda each: each.started_s,
    )
    slots, window = load.plan.slots, window_of(answered)
    client = health_of(outcome, exchanges, answered, slots)
    peak, length_s = peak_concurrency(answered), window.length_s if window else None
    tokens, succeeded = output_tokens(answered), sum(each.counts for each in answered)
    parts = blocks(answered, window) if load.compared and not load.too_short else {}
    return LoadResult(
        asked=load.asked,
        samples=tuple(each.sample for each in answered),
        warmup_requests=load.plan.warmup,
        window_s=length_s,
        throughput_tps=tokens / length_s if tokens is not None and length_s else None,
        steady_tps=None if slots is None else steady_tps(answered, slots),
        requests_per_s=succeeded / length_s if length_s else None,
        peak_concurrency=peak,
        slo=load.slo,
        goodput=goodput(answered, load.slo),
        label=load.label,
        stratum=stratum,
        client=client,
        blocks=parts,
        not_compared=_not_compared(load, parts, succeeded),
        invalid=faults(answered, client, slots=slots, queues_here=queues_here, peak=peak, lost=outcome.lost),
        counted=load.counted,
        not_sent=outcome.not_sent,
        notes=load.plan.workload.notes,
        offered_per_s=offered_per_s(_came_s(outcome.sent, exchanges, queues_here)),
    )


def _came_s(sent: Sequence[LoadRequest], exchanges: Sequence[Exchange], queues_here: bool) -> list[float]:
    """Return when the first turns of an open load were sent, or joined the queue for an engine here."""
    return [
        each.due_s if queues_here else found.started_s
        for each, found in zip(sent, exchanges, strict=True)
        if each.due_s is not None
    ]


def _not_compared(load: Load, parts: Mapping[str, Sequence[float]], answers: int) -> Explanation | None:
    """Return why no baseline can be held against a load that should have one; a sweep's have none."""
    if load.too_short or not load.compared or parts:
        return load.too_short
    return Reason.TOO_FEW_ANSWERS(answers=answers, least=BLOCKS)


def _answered(
    load: Load, sent: LoadRequest, found: Exchange, stratum: str, origin_s: float, *, busy_share: float
) -> Answered:
    """A request of the load as the figures see it."""
    sample = sample_of(
        found,
        label=load.label,
        stratum=stratum,
        call="load",
        origin_s=origin_s,
        foreign_cpu=sent.foreign_cpu,
        busy_share=busy_share,
        due_s=sent.due_s,
    )
    ended_s = _ended_s(sent.answer, found)
    return Answered(sample, found.started_s, ended_s, sent.process, sent=sent.error is None)


def _ended_s(answer: RecordedResponse | Exchange | None, exchange: Exchange) -> float:
    if isinstance(answer, RecordedResponse):
        return answer.ended_s
    return exchange.events[-1].stamp_s if exchange.events else exchange.started_s
