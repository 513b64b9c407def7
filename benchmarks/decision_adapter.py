"""Answer simulated comparisons with the product's own rule.

Reads one JSON object a line and prints its verdict as one word, "slower", "ok" or "inconclusive":

    {"baseline": [[s, ...], ...], "current": [s, ...]}
    {"suite": [{"baseline": ..., "current": ...}, ...]}      one word a test, each from that test alone
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pytest_llmspeed.core.decision import compare
from pytest_llmspeed.core.verdicts import Verdict

WORDS = {Verdict.SLOWER: "slower", Verdict.PASSED: "ok", Verdict.FASTER: "ok"}


def word(case: dict[str, Any], comparisons: int = 1) -> str:
    """The verdict on one test as one word."""
    found = compare(case["baseline"], case["current"], comparisons=comparisons)
    return WORDS.get(found.verdict, "inconclusive")


def main() -> None:
    for line in sys.stdin:
        case = json.loads(line)
        tests = case.get("suite", [case])
        print(*(word(test, comparisons=len(tests)) for test in tests))


if __name__ == "__main__":
    main()
