"""Sentences on loads whose figures are not those of the load that was asked for, or that are not compared."""

from __future__ import annotations

from pytest_llmspeed.metrics.reasons import Reason, words

ELSEWHERE = "run the tests on a separate machine, on more cores, or with less load"


@words(Reason.CONCURRENCY_NOT_REACHED)
def not_reached(peak: int, asked: int) -> str:
    """Too few requests were ever in flight at once."""
    return (
        f"only {peak} of {asked} requests were ever in flight at once: does the server, or a proxy before "
        "it, limit connections? raise its limit, or lower the load"
    )


@words(Reason.SLOTS_STAYED_EMPTY)
def took_longer(stretch: float) -> str:
    """The client left slots empty."""
    return (
        f"the load took {stretch:.2f} times as long as its answers needed: "
        f"slots stayed empty because the client was late; {ELSEWHERE}"
    )


@words(Reason.CLIENT_BUSY)
def client_busy(share: float) -> str:
    """The client had no time left."""
    return f"the client itself used {share:.0%} of a core so it may have been the bottleneck; {ELSEWHERE}"


@words(Reason.PILED_UP)
def piled_up(share: float) -> str:
    """Bytes waited for the client, so that the kernel's stamps of some were lost."""
    return f"{share:.0%} of the output events arrived before the client had read earlier ones; {ELSEWHERE}"


@words(Reason.SENT_LATE)
def sent_late(late_ms: float) -> str:
    """Requests were not sent when they were due."""
    return f"1 in 100 requests was sent more than {late_ms:.0f} ms after it was due; {ELSEWHERE}"


@words(Reason.WORKER_LOST)
def worker_lost(reason: str) -> str:
    """A worker process of the load died."""
    return f"a part of the load was lost: {reason}; run it again, and find out what killed it (memory?)"


@words(Reason.LOAD_TOO_SHORT)
def too_short(requests: int, least: int) -> str:
    """The load cannot be cut into parts that can be compared."""
    return f"a load with requests={requests} is not compared with a baseline; that needs at least {least}"


@words(Reason.TOO_FEW_ANSWERS)
def too_few_answers(answers: int, least: int) -> str:
    """The load ended before there were answers enough to compare."""
    return f"a load with {answers} answers is not compared with a baseline; that needs at least {least}"
