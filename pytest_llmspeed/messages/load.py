"""What to do about a load whose figures are not those of the load that was asked, or that nobody can run."""

from __future__ import annotations

from collections.abc import Mapping

ELSEWHERE = "run the tests on a separate machine, on more cores, or with less load"


def not_reached(peak: int, asked: int) -> str:
    """Too few requests were ever in flight at once."""
    return (
        f"only {peak} of {asked} requests were ever in flight at once: does the server, or a proxy before "
        "it, limit connections? raise its limit, or lower the load"
    )


def took_longer(stretch: float) -> str:
    """The client left slots empty."""
    return (
        f"the load took {stretch:.2f} times as long as its answers needed: "
        f"slots stayed empty because the client was late; {ELSEWHERE}"
    )


def client_busy(share: float) -> str:
    """The client had no time left."""
    return f"the client itself used {share:.0%} of a core so it may have been the bottleneck; {ELSEWHERE}"


def piled_up(share: float) -> str:
    """Bytes waited for the client, so that the kernel's stamps of some were lost."""
    return f"{share:.0%} of the output events arrived before the client had read earlier ones; {ELSEWHERE}"


def sent_late(late_ms: float) -> str:
    """Requests were not sent when they were due."""
    return f"1 in 100 requests was sent more than {late_ms:.0f} ms after it was due; {ELSEWHERE}"


def worker_lost(reason: str) -> str:
    """A worker process of the load died."""
    return f"a part of the load was lost: {reason}; run it again, and find out what killed it (memory?)"


def too_much_at_once(asked: int, served: int, backend: str) -> str:
    """The engine cannot serve as many at once."""
    many = "one request" if served == 1 else f"{served} requests"
    return (
        f"concurrency={asked}: the backend {backend!r} serves {many} at a time, so the others would only "
        f"wait in a queue; use at most {served}, or start the model in a server and use its URL"
    )


def too_short(requests: int, least: int) -> str:
    """The load cannot be cut into parts that can be compared."""
    return f"a load with requests={requests} is not compared with a baseline; that needs at least {least}"


def too_few_answers(answers: int, least: int) -> str:
    """The load ended before there were answers enough to compare."""
    return f"a load with {answers} answers is not compared with a baseline; that needs at least {least}"


def trace_too_short(requests: int, rows: int) -> str:
    """More requests than a trace has."""
    return f"requests={requests}: the trace has {rows}; use at most that many, or omit requests="


def no_load(metric: str) -> str:
    """A budget on what only loads have."""
    return f"{metric} exists only for loads: use llm_client.load(…)"


def slo_missed(broken: Mapping[str, int], slo: Mapping[str, float], failed: int) -> str:
    """Return which limits of an slo were broken, and in how many requests."""
    limits = [f"{metric} > {slo[metric]:g} in {_requests(count)}" for metric, count in broken.items()]
    return ", ".join([*limits, *([f"{_requests(failed)} failed"] if failed else [])])


def _requests(count: int) -> str:
    return f"{count} request{'' if count == 1 else 's'}"


def no_slo() -> str:
    """Goodput without limits to keep."""
    return "the load has no slo: say what a good request is, as in load(…, slo={'ttft_ms': 300})"


def no_load_figure(metric: str) -> str:
    """A load without a figure."""
    if metric == "steady_tps":
        return "the load never had all its slots taken, or it is not a closed loop; send more requests"
    return f"no request of the load gave a value of {metric}: they failed or came without token counts"
