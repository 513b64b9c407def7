"""What tests declare of their requests, and how two declarations differ."""

import pytest

from pytest_llmspeed.baselines.declared import extends, what_differs

PLAN = "sdk chat max_tokens=8 temperature=0 label=plan"
ACT = "sdk chat max_tokens=8 temperature=0 label=act"
PLAIN = "measure chat max_tokens=8 temperature=0 prompt=5aa"


@pytest.mark.parametrize(
    ("old", "new", "differs"),
    [
        ([PLAIN], [PLAIN], []),
        ([PLAIN], [PLAIN.replace("=8", "=9")], ["max_tokens 8 → 9"]),
        ([PLAIN], [PLAIN.replace("5aa", "6bb")], ["another prompt"]),
        ([PLAN, ACT], [PLAN.replace("=8", "=9"), ACT], ["max_tokens 8 → 9 of plan"]),
        ([PLAIN], [f"{PLAIN} model=big"], ["model none → big"]),
        ([PLAN], [PLAN, ACT], [f"now also {ACT}"]),
        ([PLAN, ACT], [ACT], [f"no longer {PLAN}"]),
        ([PLAIN], [PLAN], [f"{PLAIN} → {PLAN}"]),
    ],
)
def test_only_what_differs_is_named(old, new, differs):
    """Words that are the same, and hashes, tell a reader nothing."""
    assert what_differs(old, new) == differs


@pytest.mark.parametrize(
    ("old", "new", "fits"),
    [
        ([PLAN], [PLAN, ACT], True),
        ([PLAN], [PLAIN, PLAN], True),
        ([PLAN, ACT], [PLAN], False),
        ([PLAN], [PLAN.replace("=8", "=9"), ACT], False),
        ([PLAIN], [PLAIN, "generate chat max_tokens=8 temperature=0"], False),
        ([], [PLAN], False),
    ],
)
def test_calls_under_further_labels_leave_the_others_comparable(old, new, fits):
    """What is gone, or asked in another way, does not."""
    assert extends(new, old) is fits
