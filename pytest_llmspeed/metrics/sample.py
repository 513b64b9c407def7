"""Exchange → Sample: the only latency arithmetic of the project, and the names of its metrics.

With N output tokens of which k are in the first output event, stamps s_1 … s_m and t0:

    TTFT = s_1 - t0             TTFO = first answer event - t0      E2E = s_m - t0
    TPOT = (s_m - s_1)/(N - k)  ITL  = s_2 - s_1, s_3 - s_2, …      throughput = N / E2E

A request for `n` choices has one stream of events for each. Its TPOT is that of its choices together: the
sum of their s_m - s_1 over N less the sum of their k; ITL are the gaps within each choice; TTFT is the
first event of any choice, E2E the last, and N counts the tokens of all.

What is undefined is None, never 0: so are E2E and throughput of an answer that its caller cut.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from math import isfinite
from typing import Literal

from pytest_llmspeed.metrics.exchange import Event, Exchange, TokenSource, plain_text
from pytest_llmspeed.metrics.token_counts import builtin_count, visible_tokens
from pytest_llmspeed.system.neighbours import BUSY_SHARE

Direction = Literal["lower", "higher"]
CallKind = Literal["generate", "measure", "rounds", "load", "sdk"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A measured quantity: `unit` as budget names spell it, `better` the good direction.

    One with a value `per` test or load, not per request, has no statistics.
    """

    name: str
    unit: str
    better: Direction
    about: str
    per: Literal["request", "test", "load"] = "request"

    @property
    def key(self) -> str:
        """The name with its unit, as in `ttft_ms`: the field of `Sample` and of the report."""
        return f"{self.name}_{self.unit}" if self.unit else self.name

    def worse(self, value: float, limit: float) -> bool:
        """True if `value` lies on the bad side of `limit`."""
        return value > limit if self.better == "lower" else value < limit


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("ttft", "ms", "lower", "time to first token"),
        Metric("ttfo", "ms", "lower", "time to first answer token, after any reasoning"),
        Metric("tpot", "ms", "lower", "time per output token after the first"),
        Metric("itl", "ms", "lower", "gap between output events"),
        Metric("e2e", "ms", "lower", "time to the last output token"),
        Metric("throughput", "tps", "higher", "output tokens per second of a request"),
        Metric("queue", "ms", "lower", "time from when a request of an open load was due to its sending"),
        Metric("error_rate", "", "lower", "share of requests that failed", per="test"),
        Metric("peak_memory", "mib", "lower", "highest memory of the engine", per="test"),
        Metric("requests", "per_s", "higher", "answered requests per second of a load", per="load"),
        Metric("steady", "tps", "higher", "output tokens per second at full concurrency", per="load"),
        Metric("goodput", "", "higher", "share of a load's requests that kept its slo", per="load"),
    )
}


def metric_of(key: str) -> Metric:
    """Return the metric of a key such as `ttft_ms`."""
    return next(metric for metric in METRICS.values() if metric.key == key)


TOKENS_PER_EVENT_LIMIT = 1.05
"""ITL means a gap between tokens only where events carry about one token each."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one request showed. Times in ms; None where undefined; latencies None if it failed.

    `stratum` names the samples that may be compared: one label, one prompt (or call of a repeated
    body). `itl_ms` holds the gaps between output events. `started_ms` counts from the test's
    first request. `foreign_cpu` is the share (0 to 1) of its processor time that the engine lost to
    other programs meanwhile, None where that is unknown or does not matter. `acceptance_rate` (0 to 1) and
    `tokens_per_step` are those of speculative decoding, None without it. `queue_ms` is how long after
    its due moment a request of an open load was sent.
    """

    label: str | None
    stratum: str
    call: CallKind
    ttft_ms: float | None
    ttfo_ms: float | None
    tpot_ms: float | None
    e2e_ms: float | None
    throughput_tps: float | None
    itl_ms: tuple[float, ...]
    output_events: int
    output_tokens: int | None
    prompt_tokens: int | None
    cached_tokens: int | None
    token_source: TokenSource | None
    finish_reason: str | None
    text: str
    error: str | None
    flags: frozenset[str]
    started_ms: float
    foreign_cpu: float | None = None
    acceptance_rate: float | None = None
    tokens_per_step: float | None = None
    queue_ms: float | None = None

    @property
    def quiet(self) -> bool:
        """True unless others used so much of the processor that the times say little."""
        return "disturbed" not in self.flags

    @property
    def ok(self) -> bool:
        """True if the request succeeded."""
        return self.error is None

    @property
    def one_token_events(self) -> bool:
        """True where events carry about one token each, so that ITL is a gap between tokens."""
        if self.output_tokens is None or not self.output_events:
            return False
        return self.output_tokens / self.output_events <= TOKENS_PER_EVENT_LIMIT

    def value(self, metric: str) -> float | None:
        """The request's figure of a metric by its key (`ttft_ms`); of ITL, its median gap."""
        if metric == "itl_ms":
            return _middle(self.itl_ms) if self.one_token_events else None
        figure: float | None = getattr(self, metric)
        return figure


def sample_of(
    exchange: Exchange,
    *,
    label: str | None = None,
    stratum: str = "",
    call: CallKind = "generate",
    origin_s: float | None = None,
    foreign_cpu: float | None = None,
    busy_share: float = BUSY_SHARE,
    due_s: float | None = None,
) -> Sample:
    """Return the figures of one exchange; `origin_s` is the monotonic zero of `started_ms`.

    `due_s` is when it was due, of a request of an open load.
    """
    error = exchange.failure
    timing = _timing(exchange) if exchange.events and not error else _Timing()
    usage = exchange.usage
    tokens, _ = visible_tokens(exchange)
    speculation = exchange.speculation
    is_disturbed = foreign_cpu is not None and foreign_cpu >= busy_share
    disturbed = frozenset({"disturbed"} if is_disturbed else ())
    return Sample(
        label=label,
        stratum=stratum,
        call=call,
        ttft_ms=_finite(timing.ttft_ms),
        ttfo_ms=_finite(timing.ttfo_ms),
        tpot_ms=_finite(timing.tpot_ms),
        e2e_ms=_finite(timing.e2e_ms),
        throughput_tps=_finite(timing.throughput_tps),
        itl_ms=timing.itl_ms if all(map(isfinite, timing.itl_ms)) else (),
        output_events=len(exchange.events),
        output_tokens=tokens,
        prompt_tokens=builtin_count(usage.prompt_tokens) if usage else None,
        cached_tokens=builtin_count(usage.cached_tokens) if usage else None,
        token_source=exchange.token_source if tokens is not None else None,
        finish_reason=plain_text(exchange.finish_reason),
        text=exchange.joined("text"),
        error=error,
        flags=_flags(exchange, failed=error is not None) | disturbed,
        foreign_cpu=foreign_cpu,
        acceptance_rate=speculation.acceptance_rate if speculation else None,
        tokens_per_step=speculation.tokens_per_step if speculation else None,
        queue_ms=None if due_s is None else _ms(max(0.0, exchange.started_s - due_s)),
        started_ms=_ms(exchange.started_s - (origin_s if origin_s is not None else exchange.started_s)),
    )


@dataclass(frozen=True, slots=True)
class _Timing:
    ttft_ms: float | None = None
    ttfo_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None
    throughput_tps: float | None = None
    itl_ms: tuple[float, ...] = ()


def _timing(exchange: Exchange) -> _Timing:
    events, t0 = exchange.events, exchange.started_s
    tokens, _ = visible_tokens(exchange)
    e2e_s = float(events[-1].stamp_s - t0)
    whole = "cancelled" not in exchange.notes  # the caller ended it: its length says nothing
    throughput = tokens / e2e_s if tokens and e2e_s > 0 and whole else None
    e2e_ms = _ms(e2e_s) if whole else None
    if not exchange.streamed:
        return _Timing(e2e_ms=e2e_ms, throughput_tps=throughput)
    answer = next((event.stamp_s for event in events if event.is_answer), None)
    buffered = _is_buffered(exchange)
    return _Timing(
        ttft_ms=_ms(events[0].stamp_s - t0),
        ttfo_ms=None if answer is None else _ms(answer - t0),
        tpot_ms=None if buffered else _tpot_ms(exchange, tokens),
        e2e_ms=e2e_ms,
        throughput_tps=throughput,
        itl_ms=() if buffered else _gaps_ms(exchange),
    )


def _tpot_ms(exchange: Exchange, tokens: int | None) -> float | None:
    """The time from first to last event over the tokens after the first event; of all choices together."""
    streams = _streams(exchange)
    if tokens is None or max(map(len, streams)) < 2:
        return None
    first = [builtin_count(events[0].tokens) for events in streams]
    after_first = tokens - sum(1 if count is None else count for count in first)
    if after_first < 1:
        return None
    return _ms(sum(events[-1].stamp_s - events[0].stamp_s for events in streams) / after_first)


def _gaps_ms(exchange: Exchange) -> tuple[float, ...]:
    """The gaps between the events of a choice, one choice after the other."""
    gaps = (pairwise(event.stamp_s for event in events) for events in _streams(exchange))
    return tuple(_ms(late - early) for early, late in chain.from_iterable(gaps))


def _streams(exchange: Exchange) -> list[Sequence[Event]]:
    """The events of each choice: answers to one request that are written side by side."""
    events = exchange.events
    if not any(event.choice for event in events):
        return [events]
    streams = defaultdict[int, list[Event]](list)
    for event in events:
        streams[event.choice].append(event)
    return [*streams.values()]


def _is_buffered(exchange: Exchange) -> bool:
    """True if more than one token was streamed, and all of it came in one read."""
    events = exchange.events
    if not exchange.streamed or not events or events[0].stamp_s != events[-1].stamp_s:
        return False
    tokens, _ = visible_tokens(exchange)
    return len(events) > 1 or (tokens or 0) > 1


def _flags(exchange: Exchange, *, failed: bool) -> frozenset[str]:
    tokens, hidden = visible_tokens(exchange)
    forced = exchange.request.forced_tokens
    several = len(exchange.events) > 1 and tokens is not None
    conditions = {
        "new_connection": exchange.new_connection,
        "non_streaming": not exchange.streamed,
        "hidden_reasoning": hidden,
        "several_choices": any(event.choice != exchange.events[0].choice for event in exchange.events),
        "no_answer": not failed and not any(event.is_answer for event in exchange.events),
        "buffered": not failed and _is_buffered(exchange),
        "k_assumed": not failed and several and exchange.events[0].tokens is None,
        "short": not failed and forced is not None and tokens is not None and tokens < forced,
    }
    return exchange.notes | {flag for flag, holds in conditions.items() if holds}


def _middle(values: tuple[float, ...]) -> float | None:
    if not values:
        return None
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _ms(seconds: float) -> float:
    return float(seconds) * 1000


def _finite(figure: float | None) -> float | None:
    """A figure, None where an engine's stamps are not numbers: what is not known is not fast."""
    return figure if figure is not None and isfinite(figure) else None
