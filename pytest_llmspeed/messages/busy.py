"""Sentences on times that are not the engine's alone: other programs, this process, a warm prefix cache."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_llmspeed.metrics.reasons import Reason, words
from pytest_llmspeed.regression.verdicts import Comparison
from pytest_llmspeed.text.harmless import harmless


@words(Reason.OTHER_PROGRAMS)
def other_programs(disturbed: int, total: int, culprits: Sequence[tuple[str, float]] = ()) -> str:
    """Return why nothing was decided on a busy machine."""
    return (
        f"machine busy: other programs took processor time from the engine in {disturbed} of {total} "
        f"requests{_cores_used(culprits)}"
    )


def _cores_used(culprits: Sequence[tuple[str, float]]) -> str:
    """Name programs with the cores that each used, the busiest first; empty if none is known."""
    shown = (f"{harmless(name, 60)} {cores:.2g} of a core" for name, cores in culprits)
    return f" ({', '.join(shown)})" if culprits else ""


@words(Reason.DISTURBED)
def disturbed(count: int, total: int, culprits: Sequence[tuple[str, float]], *, again: bool) -> str:
    """Return what was done about requests that other programs disturbed."""
    done = ", and extra rounds replaced them" if again else ""
    return (
        f"{count} of {total} requests lost processor time to other programs{_cores_used(culprits)}: they "
        f"are left out{done}"
    )


@words(Reason.MACHINE_BUSY)
def machine_busy(comparison: Comparison, *, again: bool = False) -> str:
    """Return what to do about a busy machine; `again` if rounds were taken again in vain."""
    return f"{comparison.reason}: too few are left to compare{_what_to_do(again=again)}"


def busy_tests(*, again: bool) -> str:
    """Return the same for several tests, whose disturbed requests differ in number."""
    return (
        "machine busy: other programs took processor time from the engine in so many requests that too few "
        f"are left to compare{_what_to_do(again=again)}"
    )


def _what_to_do(*, again: bool) -> str:
    tried = ", although twice as many rounds were taken" if again else ""
    return (
        f"{tried}; run it again when the machine is quiet, or give the engine fewer threads than there are "
        "cores (this run is not stored)"
    )


@words(Reason.CLIENT_LAG)
def client_lag(lagged: int, total: int) -> str:
    """Return what to do where this process was late to take the engine's tokens."""
    return (
        f"client lag: in {lagged} of {total} requests several tokens were ready before this process took the "
        "first: times between tokens are partly its own; leave it a core, and run less beside it"
    )


@words(Reason.CACHE_NOT_COLD)
def cache_not_cold(hit_rate: float) -> str:
    """Return what to do where a prefix cache that was said to be cold was not."""
    return (
        f"the prefix cache should be cold, but {hit_rate:.0%} of the prompt tokens came from it: times to "
        'the first token are too short; turn it off in the server, or declare prefix_cache="warm"'
    )


@words(Reason.CACHE_WARM_UNDECLARED)
def cache_warm_undeclared(hit_rate: float) -> str:
    """Return what to do where a prefix cache that nobody declared answers for most of the prompt."""
    return (
        f"{hit_rate:.0%} of the prompt tokens came from the prefix cache, so TTFT is that of a warm cache; "
        'to have it cold, set prefix_cache="cold" in the llm_backend mark (or turn it off in the server); '
        'if warm is meant, declare prefix_cache="warm"'
    )
