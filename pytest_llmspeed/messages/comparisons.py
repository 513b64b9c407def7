"""Why a comparison has its verdict: the part of a sentence that follows its figures."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_llmspeed.messages.figures import counted, size
from pytest_llmspeed.messages.speed import UPDATE
from pytest_llmspeed.metrics.reasons import Reason, words

TAKE_TEN = "measure ten with llm_client.measure(…) or rounds(10)"


@words(Reason.COULD_BE_CHANCE)
def could_be_chance() -> str:
    """Return why a slowdown that shows is a suspect only."""
    return "it could be chance"


@words(Reason.WITH_EARLIER_SUSPECTS)
def with_earlier_suspects(suspects: int) -> str:
    """Return what a slowdown rests on that one run alone does not show beyond chance."""
    return f"on average of this run and the {counted(suspects, 'suspect run')} before it"


@words(Reason.SESSIONS_DIFFER)
def sessions_differ() -> str:
    """Return why slower requests are not called slower."""
    return "its requests are slower, but sessions of unchanged code have differed as much"


@words(Reason.CANNOT_RULE_OUT)
def cannot_rule_out(slowdown: float | None) -> str:
    """Return why the data do not show that nothing became slower."""
    if slowdown is None:
        return "how much slower it could be is not known"
    return f"it could be up to {size(slowdown)} slower"


@words(Reason.ONLY_THE_MEDIAN_MOVED)
def only_the_median_moved(slowdown: float) -> str:
    """Return why a shift of the median alone decides nothing."""
    return f"its median is {size(slowdown)} slower, but its fastest requests are not"


@words(Reason.TAIL_GREW)
def tail_grew(slow: int, total: int) -> str:
    """Return why a run of usual speed is not passed all the same."""
    return f"{slow} of {counted(total, 'request')} took longer than nearly all before"


@words(Reason.TOO_FEW_REQUESTS)
def too_few_requests(requests: int, least: int) -> str:
    """Return why so few requests are not compared."""
    were = "was" if requests == 1 else "were"
    return f"{counted(requests, 'request')} {were} measured, at least {least} are needed; {TAKE_TEN}"


@words(Reason.NO_FULL_SESSION)
def no_full_session(least: int) -> str:
    """Return why stored sessions of fewer requests are not compared with."""
    return f"no stored session has {least} requests; {TAKE_TEN}, then store that: pytest {UPDATE}"


@words(Reason.NO_SESSION)
def no_session() -> str:
    """Return why a series that is new in its test is not compared."""
    return "no session is stored for it yet"


@words(Reason.SLOWER_TWICE)
def slower_twice() -> str:
    """Return how a second look decided."""
    return "in both jobs"


@words(Reason.MORE_SPELLS)
def more_spells(rise: float) -> str:
    """Return how part of the requests became slower."""
    return f"in both jobs more requests are far slower than the others than usual (+{rise * 100:.0f} points)"


@words(Reason.SECOND_LOOK_OPEN)
def second_look_open() -> str:
    """Return why a second look does not call a test slower."""
    return "the first job was doubtful; both together do not show a slowdown"


@words(Reason.SECOND_LOOK_WANTED)
def second_look_wanted() -> str:
    """Return why a comparison of a first job is left open."""
    return "one job cannot decide it: a second one will"


@words(Reason.TOO_FEW_PAIRS)
def too_few_pairs() -> str:
    """Return why old and new side by side decide nothing."""
    return "fewer than two blocks of five pairs"


@words(Reason.TOO_FEW_BLOCKS)
def too_few_blocks() -> str:
    """Return why runs of old and new decide nothing."""
    return "fewer than two blocks in which both sides measured five requests"


@words(Reason.NO_TIME)
def no_time() -> str:
    """Return why a test whose answers have no time at all is not compared."""
    return "no request gave a time that can be compared"


@words(Reason.ALL_AT_ONCE)
def all_at_once() -> str:
    """Return why a test whose requests were all on their way together is not compared."""
    return "all requests overlapped with others; such times are checked against budgets and not compared"


@words(Reason.NOTHING_TO_COMPARE)
def nothing_to_compare() -> str:
    """Return why a test with requests is not compared in the command."""
    return "none of its requests are compared: those of sweeps and of loads that are too short never are"


@words(Reason.BASELINE_DIFFERS)
def baseline_differs(differs: Sequence[str]) -> str:
    """Return why figures cannot be compared with a baseline of something else."""
    return "; ".join(differs)


@words(Reason.LENGTHS_DIFFER)
def lengths_differ(before: float, now: float) -> str:
    """Return why a figure that follows the length of the answers is not compared."""
    return f"answers had {before:g} tokens, now {now:g}"


@words(Reason.CREPT)
def crept(since: str) -> str:
    """Return why a test is suspect that no single session made slower."""
    return f"it crept up in small steps since {since}"


@words(Reason.ANSWERS_ARE_WORSE)
def answers_are_worse() -> str:
    """Return why a speed says nothing."""
    return "the answers are worse"
