"""The answered requests of a load → its result: the only arithmetic of loads.

The window opens when the first measured request is sent and closes with the last output event.

    throughput   = output tokens / window
    steady_tps   = the same from when all slots were first taken until one of them stays free
    ideal        = how long these answers take if each is asked for the moment a slot is free
    queue time   = sent - due, of an open load
    offered      = requests of an open load, the first left out / time between first and last sending
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from itertools import accumulate, pairwise
from statistics import median

from pytest_llmspeed.metrics.load_result import ClientHealth
from pytest_llmspeed.metrics.reasons import Explanation, Reason
from pytest_llmspeed.metrics.sample import Sample

BLOCKS = 10
BLOCK_MEDIANS = ("ttft_ms", "ttfo_ms", "tpot_ms", "e2e_ms")
REACHED = 0.99
"""The share of the requested concurrency that must be reached at least once."""
STRETCH = 1.05
"""A load may take so many times as long as its answers needed."""
BUSY = 0.9
"""From this share of a core on the client itself is what is measured."""
PILED_UP = 0.01
LATE_SEND_MS = 50.0


@dataclass(frozen=True, slots=True)
class Answered:
    """A request of a load: its sample, and when it was sent and over, on the monotonic clock.

    `slot_group` is the process whose slots it was sent from; `sent` is False where it never was.
    """

    sample: Sample
    started_s: float
    ended_s: float
    slot_group: int = 0
    sent: bool = True

    @property
    def counts(self) -> bool:
        """True if its answer is among the figures."""
        return self.sample.ok and "cancelled" not in self.sample.flags

    @property
    def last_event_s(self) -> float:
        """The time of its last output event."""
        return self.started_s + (self.sample.e2e_ms or 0.0) / 1000


@dataclass(frozen=True, slots=True)
class LoadWindow:
    """From the first measured request to the last output event, in seconds of the monotonic clock."""

    opens_s: float
    closes_s: float

    @property
    def length_s(self) -> float:
        """Its length."""
        return self.closes_s - self.opens_s


def window_of(answered: Sequence[Answered]) -> LoadWindow | None:
    """Return the window, None where no request was answered."""
    closes = [each.last_event_s for each in answered if each.counts]
    if not closes:
        return None
    opens_s = min(each.started_s for each in answered if each.sent)
    return LoadWindow(opens_s, max(closes)) if max(closes) > opens_s else None


def output_tokens(answered: Sequence[Answered]) -> int | None:
    """Return the output tokens of all answers, None where some were not counted by anyone."""
    counts = [each.sample.output_tokens for each in answered if each.counts]
    known = [tokens for tokens in counts if tokens is not None]
    return sum(known) if known and len(known) == len(counts) else None


def steady_tps(answered: Sequence[Answered], slots: int) -> float | None:
    """Return the output tokens per second while all slots were taken; None where they never were."""
    sent = [each for each in answered if each.sent]
    if len(sent) < slots:
        return None
    begin_s = sorted(each.started_s for each in sent)[slots - 1]
    end_s = sorted(each.ended_s for each in sent)[len(sent) - slots]
    if end_s <= begin_s or output_tokens(answered) is None:
        return None
    tokens = sum(_tokens_between(each, begin_s, end_s) for each in answered if each.counts)
    return tokens / (end_s - begin_s)


def _tokens_between(each: Answered, begin_s: float, end_s: float) -> float:
    """The tokens of an answer whose events came in a span: of each event its share of them."""
    sample = each.sample
    first_s = each.started_s + (sample.ttft_ms if sample.ttft_ms is not None else sample.e2e_ms or 0) / 1000
    if "several_choices" in sample.flags:
        return (sample.output_tokens or 0) * _share_between(first_s, each.last_event_s, begin_s, end_s)
    events_s = [*accumulate((gap / 1000 for gap in sample.itl_ms), initial=first_s)]
    inside = bisect_left(events_s, end_s) - bisect_left(events_s, begin_s)
    return (sample.output_tokens or 0) * inside / len(events_s)


def _share_between(first_s: float, last_s: float, begin_s: float, end_s: float) -> float:
    """The share of a span that lies in another: the gaps of several choices do not tell when each came."""
    if last_s <= first_s:
        return float(begin_s <= first_s < end_s)
    return max(0.0, min(last_s, end_s) - max(first_s, begin_s)) / (last_s - first_s)


def peak_concurrency(answered: Sequence[Answered]) -> int:
    """Return how many requests were under way at once at most."""
    changes = [(each.started_s, 1) for each in answered if each.sent]
    changes += [(each.ended_s, -1) for each in answered if each.sent]
    return max(accumulate(change for _, change in sorted(changes)), default=0)


def offered_per_s(came_s: Sequence[float]) -> float | None:
    """Return the rate of requests that came at these moments; None if that is undefined."""
    length_s = max(came_s, default=0.0) - min(came_s, default=0.0)
    return (len(came_s) - 1) / length_s if length_s > 0 else None


def goodput(answered: Sequence[Answered], slo: Mapping[str, float]) -> float | None:
    """Return the share of requests that kept every limit; a failed one kept none.

    An answer of one token has no time per token to miss.
    """
    if not slo or not answered:
        return None
    kept = (each.sample.ok and not _broken(each.sample, slo) for each in answered)
    return sum(kept) / len(answered)


def slo_broken(samples: Sequence[Sample], slo: Mapping[str, float]) -> dict[str, int]:
    """Return how many answers broke each limit that some broke; one may break several."""
    broken = Counter(metric for sample in samples if sample.ok for metric in _broken(sample, slo))
    return {metric: broken[metric] for metric in slo if broken[metric]}


def _broken(sample: Sample, slo: Mapping[str, float]) -> list[str]:
    """The limits that an answer did not keep; one without a value kept none, if it could have had one."""
    undefined = {"tpot_ms", "itl_ms"} if sample.output_tokens == 1 else set()
    values = {metric: sample.value(metric) for metric in slo}
    return [
        metric
        for metric, value in values.items()
        if (metric not in undefined if value is None else not value <= slo[metric])
    ]


def stretch(answered: Sequence[Answered], slots: int) -> float | None:
    """Return how many times longer the load took than its own answers need; None of nothing.

    Each process has slots of its own: its answers are laid out on as many as it had.
    """
    groups = sorted({each.slot_group for each in answered if each.sent})
    found = []
    for place, group in enumerate(groups):
        spans = sorted((e.started_s, e.ended_s) for e in answered if e.sent and e.slot_group == group)
        own = slots // len(groups) + (place < slots % len(groups))
        needed_s = _laid_out([end - start for start, end in spans], max(1, own))
        took_s = max(end for _, end in spans) - spans[0][0]
        if needed_s > 0:
            found.append(took_s / needed_s)
    return max(found, default=None)


def _laid_out(durations_s: Sequence[float], slots: int) -> float:
    """Return how long it takes to serve durations in order, each as soon as one of the slots is free."""
    free_at_s = [0.0] * min(slots, len(durations_s))
    for duration_s in durations_s:
        heapreplace(free_at_s, free_at_s[0] + duration_s)
    return max(free_at_s)


def send_lateness_s(answered: Sequence[Answered], slots: int | None) -> list[float]:
    """Return how late requests were sent: after they were due, or after a slot had become free."""
    if slots is None:
        return [e.sample.queue_ms / 1000 for e in answered if e.sample.queue_ms is not None]
    starts = sorted(each.started_s for each in answered if each.sent)[slots:]
    ends = sorted(each.ended_s for each in answered if each.sent)
    return [max(0.0, start - end) for start, end in zip(starts, ends, strict=False)]


def blocks(answered: Sequence[Answered], window: LoadWindow | None) -> dict[str, tuple[float, ...]]:
    """Return ten values of each metric: of consecutive parts of equal request count, as they ended.

    A metric that some part has no value of is left out, and all of them where there are too few answers.
    """
    ended = sorted((each for each in answered if each.counts), key=lambda each: each.last_event_s)
    if window is None or len(ended) < BLOCKS:
        return {}
    bounds = [round(place * len(ended) / BLOCKS) for place in range(BLOCKS + 1)]
    parts = [ended[low:high] for low, high in pairwise(bounds)]
    opens = [window.opens_s, *(part[-1].last_event_s for part in parts)]
    rows = [
        _block(part, part[-1].last_event_s - since_s) for part, since_s in zip(parts, opens, strict=False)
    ]
    names = [name for name in rows[0] if all(row[name] is not None for row in rows)]
    return {name: tuple(row[name] or 0.0 for row in rows) for name in names}


def _block(part: Sequence[Answered], length_s: float) -> dict[str, float | None]:
    row: dict[str, float | None] = {}
    for metric in BLOCK_MEDIANS:
        values = [value for each in part if (value := each.sample.value(metric)) is not None]
        row[metric] = median(values) if values else None
    tokens = output_tokens(part)
    row["throughput_tps"] = tokens / length_s if tokens is not None and length_s > 0 else None
    row["requests_per_s"] = len(part) / length_s if length_s > 0 else None
    return row


def faults(
    answered: Sequence[Answered],
    client: ClientHealth,
    *,
    slots: int | None,
    queues_here: bool,
    peak: int,
    lost: Sequence[str],
) -> tuple[Explanation, ...]:
    """Return why the figures are not those of the load that was asked, one explanation each.

    `queues_here`: the engine takes so many requests at a time, and the others wait openly for it.
    """
    found = [Reason.WORKER_LOST(reason=reason) for reason in lost]
    sent = sum(each.sent for each in answered)
    if slots is not None and sent >= slots and peak < REACHED * slots:
        found.append(Reason.CONCURRENCY_NOT_REACHED(peak=peak, asked=slots))
    any_answer = any(each.counts for each in answered)
    longer = stretch(answered, slots) if slots is not None and any_answer else None
    if longer is not None and longer > STRETCH:
        found.append(Reason.SLOTS_STAYED_EMPTY(stretch=longer))
    if client.cpu_share is not None and client.cpu_share > BUSY:
        found.append(Reason.CLIENT_BUSY(share=client.cpu_share))
    if client.piled_up > PILED_UP:
        found.append(Reason.PILED_UP(share=client.piled_up))
    late_ms = client.send_late_ms
    if slots is None and not queues_here and late_ms is not None and late_ms > LATE_SEND_MS:
        found.append(Reason.SENT_LATE(late_ms=late_ms))
    return tuple(found)
