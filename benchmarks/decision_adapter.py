"""Answer simulated comparisons with the product's own rule.

Reads one JSON object a line and prints its verdicts as words, "slower", "ok" or "inconclusive":

    {"baseline": [[s, ...], ...], "current": [s, ...]}       one word
    {"suite": [{"baseline": ..., "current": ...}, ...]}      one word a test, each from the stored
                                                             sessions and that test alone
    {"duet": [[[old, new], ...], ...]}                       one word, of blocks of interleaved pairs
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pytest_llmspeed.regression.paired_test import compare_pairs
from pytest_llmspeed.regression.session_test import compare
from pytest_llmspeed.regression.suite_test import learned_prior
from pytest_llmspeed.regression.verdicts import Comparison, Verdict

WORDS = {Verdict.SLOWER: "slower", Verdict.PASSED: "ok", Verdict.FASTER: "ok"}


def answers(case: dict[str, Any]) -> list[Comparison]:
    """The verdicts on one line."""
    if "duet" in case:
        return [compare_pairs([[(old, new) for old, new in block] for block in case["duet"]])]
    tests = case.get("suite", [case])
    prior = learned_prior([test["baseline"] for test in tests])
    return [compare(test["baseline"], test["current"], comparisons=len(tests), prior=prior) for test in tests]


def main() -> None:
    """Answer each line of the standard input."""
    for line in sys.stdin:
        print(*(WORDS.get(found.verdict, "inconclusive") for found in answers(json.loads(line))))


if __name__ == "__main__":
    main()
