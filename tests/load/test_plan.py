"""Plans of loads, whole and in shares."""

from __future__ import annotations

import pytest

from pytest_llmspeed import Request, Workload
from pytest_llmspeed.load.plan import LoadPlan

ONE = Workload.of("hello")
THREE_TURNS = Workload.conversations([["a", "b", "c"]])


def places(plan: LoadPlan) -> list[int]:
    return [planned.place for planned in plan.planned()]


@pytest.mark.parametrize("workload", [ONE, THREE_TURNS, Workload.conversations([["a"], ["b", "c"]])])
@pytest.mark.parametrize("processes", [1, 2, 3])
def test_shares_send_every_request_once(workload: Workload, processes: int) -> None:
    """Together they have the places, turns, slots and warm-up requests of the whole."""
    plan = LoadPlan(workload, Request(""), slots=8, requests=50, warmup=8)
    sent = [
        (planned.place, turn)
        for share in plan.shares(processes)
        for planned in share.planned()
        for turn in range(len(planned.conversation))
    ]
    assert len(sent) == len(set(sent)) == 50
    assert sum(share.slots or 0 for share in plan.shares(processes)) == 8
    assert sum(len(list(share.warmups())) for share in plan.shares(processes)) == 8


def test_the_last_conversation_is_cut() -> None:
    """So that the number of requests is exact."""
    plan = LoadPlan(THREE_TURNS, Request(""), slots=1, requests=7)
    assert [len(planned.conversation) for planned in plan.planned()] == [3, 3, 1]


def test_an_open_plan_ends_with_its_schedule() -> None:
    """Each place is due at its own moment, in whichever share it is."""
    plan = LoadPlan(ONE, Request(""), due_s=(0.0, 0.5, 0.7))
    assert [planned.due_s for planned in plan.planned()] == [0.0, 0.5, 0.7]
    assert [places(share) for share in plan.shares(2)] == [[0, 2], [1]]


def test_a_turn_is_asked_after_what_was_said() -> None:
    """Its messages come after those before; its own limits stand before the load's."""
    workload = Workload.synthetic(input_tokens=3, output_tokens=5)
    plan = LoadPlan(workload, Request("", max_tokens=99), slots=1, requests=1)
    (planned,) = plan.planned()
    request = plan.request(planned, 0, ({"role": "user", "content": "before"},))
    assert [message["role"] for message in request.messages] == ["user", "user"]
    assert (request.max_tokens, request.output_tokens) == (None, 5)
    plain = LoadPlan(ONE, Request("", max_tokens=9), slots=1, requests=1)
    assert plain.request(next(plain.planned()), 0).max_tokens == 9


def test_warm_up_asks_what_is_not_measured() -> None:
    """Its conversations are other ones, so that it fills no prefix cache for them; one turn each."""
    workload = Workload.synthetic(input_tokens=30, output_tokens=1, turns=2)
    plan = LoadPlan(workload, Request(""), slots=4, requests=40, warmup=4)
    measured = {planned.conversation[0].prompt for planned in plan.planned()}
    warm = [planned.conversation for planned in plan.warmups()]
    assert all(len(conversation) == 1 and conversation[0].prompt not in measured for conversation in warm)
