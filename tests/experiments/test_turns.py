"""Turns: who may send, in which order, and what happens to a side that is alone."""

import threading
from contextlib import closing

import pytest

from pytest_llmspeed.experiments.turns import Turns, TurnServer, Waiting
from pytest_llmspeed.recording.turns import TestTurns, TurnConnection

OLD, NEW = 0, 1


@pytest.fixture
def turns():
    return Turns()


def asks(turns, side, test="t"):
    turns.ask(side, Waiting(test, lambda: None))


def goes(turns):
    """The side that goes next, None if nobody does."""
    found = turns.next()
    return None if found is None else found[0]


def played(turns, rounds):
    """The order in which two sides send that ask again as soon as they have sent."""
    order = []
    for side in (OLD, NEW):
        asks(turns, side)
    for _ in range(rounds):
        side = goes(turns)
        order.append(side)
        turns.give(side)
        asks(turns, side)
    return order


def test_the_order_flips_from_pair_to_pair(turns):
    """So that neither side is always the first of a pair."""
    assert played(turns, 8) == [OLD, NEW, NEW, OLD, OLD, NEW, NEW, OLD]


def test_nobody_goes_while_somebody_sends(turns):
    """Requests of both sides never overlap."""
    asks(turns, OLD)
    asks(turns, NEW)
    assert goes(turns) == OLD
    assert goes(turns) is None
    turns.give(OLD)
    assert goes(turns) == NEW


def test_the_first_waits_for_the_other_side(turns):
    """An engine that starts slowly is waited for."""
    asks(turns, NEW)
    assert goes(turns) is None
    asks(turns, OLD)
    assert goes(turns) == OLD


def test_a_side_that_is_gone_is_not_waited_for(turns):
    """It ended, or it was killed."""
    asks(turns, NEW)
    turns.leave(OLD)
    assert goes(turns) == NEW


def test_a_side_that_is_killed_while_it_sends_gives_its_turn_back(turns):
    """The other goes on."""
    asks(turns, OLD)
    asks(turns, NEW)
    assert goes(turns) == OLD
    turns.leave(OLD)
    assert goes(turns) == NEW


def test_a_side_that_is_behind_catches_up_alone(turns):
    """The old one took more rounds of a test that the new one has ended."""
    for side in (OLD, NEW):
        asks(turns, side, "first")
    for _ in range(2):
        turns.give(goes(turns))
    asks(turns, NEW, "second")
    asks(turns, OLD, "first")
    assert goes(turns) == OLD
    turns.give(OLD)
    assert goes(turns) is None
    asks(turns, OLD, "second")
    assert goes(turns) == OLD


def test_a_test_that_one_side_skips_does_not_stop_either(turns):
    """Both wait in tests that the other has not reached: one of them goes on."""
    asks(turns, OLD, "only old")
    asks(turns, NEW, "both")
    assert goes(turns) == OLD
    turns.give(OLD)
    asks(turns, OLD, "both")
    assert goes(turns) == OLD


def test_two_processes_send_in_turn():
    """Over the sockets, with the half that runs in pytest: pairs in the order AB BA."""
    order = []

    def send(address, name):
        with closing(TurnConnection(address)) as turns:
            own = TestTurns(turns, "a test")
            for _ in range(6):
                own.begin()
                order.append(name)
                own.end()

    with TurnServer() as server:
        senders = [threading.Thread(target=send, args=(server.address(side), side)) for side in (OLD, NEW)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join(30)
    assert order == [OLD, NEW, NEW, OLD] * 3


def test_requests_that_overlap_share_one_turn():
    """It is given back when the last of them has ended."""
    with TurnServer() as server, closing(TurnConnection(server.address(OLD))) as turns:
        own = TestTurns(turns, "a test")
        server.ended(NEW)
        own.begin()
        own.begin()
        own.end()
        assert server.turns.holder == OLD
        own.end()
        own.begin()  # it comes only once the turn was given back
        assert server.turns.holder == OLD


def test_a_run_whose_other_end_is_gone_goes_on():
    """Nobody waits for a parent that was killed."""
    with TurnServer() as server:
        turns = TurnConnection(server.address(OLD))
        own = TestTurns(turns, "a test")
        server.ended(NEW)
        own.begin()
        own.end()
    own.begin()
    own.end()
    turns.close()
