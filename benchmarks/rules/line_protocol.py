"""How a rule is asked: JSON cases in, words out, as `benchmarks/decision_adapter.py` describes it.

A naive rule sees two samples, all stored requests in one and the new ones in the other (a "duet": all
old values and all new ones of the pairs), or, if it wants them, the stored sessions apart.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

Rule = Callable[[Sequence[Sequence[float]], Sequence[float]], bool]
"""Whether the new values are slower than the stored sessions; neither is empty."""


def answer_lines(rule: Rule) -> None:
    """Answer each line of the standard input with a rule's words."""
    for line in sys.stdin:
        print(*words(json.loads(line), rule))


def words(case: dict[str, Any], rule: Rule) -> Iterator[str]:
    """Yield the word of each test of a case; a test without samples is inconclusive."""
    for baseline, new in tests(case):
        sessions = [session for session in baseline if session]
        if not sessions or not new:
            yield "inconclusive"
        else:
            yield "slower" if rule(sessions, new) else "ok"


def tests(case: dict[str, Any]) -> Iterator[tuple[list[list[float]], list[float]]]:
    """Yield stored sessions and new values of each test; the pairs of a duet are one test, pooled."""
    if "duet" in case:
        pairs = list(chain.from_iterable(case["duet"]))
        yield [[old for old, _ in pairs]], [new for _, new in pairs]
        return
    for test in case.get("suite", [case]):
        yield test["baseline"], test["current"]
