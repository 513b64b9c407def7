"""How the client itself fared under a load: its processor time, and how late it read and sent."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import isnan

from pytest_llmspeed.load.worker_pool import Outcome
from pytest_llmspeed.metrics.exchange import Exchange
from pytest_llmspeed.metrics.load_figures import Answered, output_tokens, send_lateness_s
from pytest_llmspeed.metrics.load_result import ClientHealth
from pytest_llmspeed.metrics.summary import quantile
from pytest_llmspeed.transport.recorded_response import RecordedResponse

LATE_READ_S = 0.0005
"""Output events that share a read were lumped by the client if that read came so late, else by the server.

That is beyond the time for which what has come is let lie on purpose.
"""


def health_of(
    outcome: Outcome, exchanges: Sequence[Exchange], answered: Sequence[Answered], slots: int | None
) -> ClientHealth:
    """Return how the client fared; `exchanges` are those of `outcome.sent`, in that order."""
    kept = [
        (sent.answer, found)
        for sent, found in zip(outcome.sent, exchanges, strict=True)
        if isinstance(sent.answer, RecordedResponse)
    ]
    late_s = [late for answer, _ in kept for late in answer.late_s if not isnan(late)]
    events = sum(len(found.events) for _, found in kept)
    tokens = output_tokens(answered)
    cpu_s = sum(done.cpu_s for done in outcome.done)
    gathered_s = max((done.gathered_s for done in outcome.done), default=0.0)
    shares = [done.cpu_s / done.elapsed_s for done in outcome.done if done.elapsed_s > 0]
    return ClientHealth(
        processes=len(outcome.done),
        cpu_share=max(shares, default=None),
        cpu_s_per_1000_tokens=cpu_s / tokens * 1000 if shares and tokens else None,
        read_late_ms=_p99_ms(late_s),
        send_late_ms=_p99_ms(send_lateness_s(answered, slots)),
        piled_up=sum(_piled_up(answer, found, gathered_s) for answer, found in kept) / events
        if events
        else 0.0,
        stamps="engine" if not kept else "kernel" if late_s else "read",
    )


def _piled_up(kept: RecordedResponse, exchange: Exchange, gathered_s: float) -> int:
    """The output events without a stamp of their own, because more came before they were read."""
    together = [late.stamp_s for early, late in pairwise(exchange.events) if early.stamp_s == late.stamp_s]
    if not together:
        return 0
    late_s = dict(zip(kept.stamps_s, kept.late_s, strict=True))
    return sum(late_s.get(stamp_s, 0.0) > gathered_s + LATE_READ_S for stamp_s in together)


def _p99_ms(values_s: Sequence[float]) -> float | None:
    """The 99 % quantile in ms, of fewer than 100 values the largest."""
    if not values_s:
        return None
    return (quantile(values_s, 0.99) if len(values_s) >= 100 else max(values_s)) * 1000
