"""Warm-up and rounds: the only loop of single requests."""

import pytest

from pytest_llmspeed.errors import SettingsError
from pytest_llmspeed.metrics.exchange import Event, Exchange, Request
from pytest_llmspeed.recording.recorder import Recorder
from pytest_llmspeed.recording.rounds import rounds


@pytest.fixture
def recorder():
    return Recorder()


def send(recorder, prompt="hello"):
    recorder.record(
        Exchange(Request(prompt), 1.0, (Event(1.1, text="a"),), finish_reason="stop"), "generate", None
    )


def test_warm_up_rounds_are_negative_and_come_first(recorder):
    """The number tells them apart."""
    assert list(rounds(recorder, 3, 2, body=False)) == [-2, -1, 0, 1, 2]


def test_warm_up_rounds_are_left_out_of_the_measurement(recorder):
    """Two warm-up requests are counted, three are measured."""
    for _ in rounds(recorder, 3, 2, body=True):
        send(recorder)
    assert (recorder.count, recorder.measurement.warmup_requests) == (3, 2)


@pytest.mark.parametrize("warmup", [0, 1, 3])
def test_a_body_is_one_body_whatever_its_warm_up(recorder, warmup):
    """Warm-up opens the body, measured rounds go on with it."""
    for number in rounds(recorder, 2, warmup, body=True):
        send(recorder, f"first {number}")
        send(recorder, f"second {number}")
    assert [s.stratum for s in recorder.measurement.samples] == ["call 1", "call 2"] * 2


def test_two_loops_are_two_bodies(recorder):
    """Each loop of a test has strata of its own."""
    for _ in range(2):
        for _ in rounds(recorder, 1, 1, body=True):
            send(recorder)
    assert [s.stratum for s in recorder.measurement.samples] == ["call 1", "body 2 call 1"]


def test_without_a_body_calls_are_told_apart_by_prompt(recorder):
    """A repeated request is no repeated body."""
    for _ in rounds(recorder, 2, 0, body=False):
        assert not recorder.in_body
        send(recorder)
    assert [s.stratum for s in recorder.measurement.samples] == ["prompt 1"] * 2


@pytest.mark.parametrize("leave_at", [-1, 0])
def test_a_loop_that_is_left_early_leaves_nothing_on(recorder, leave_at):
    """After a break, in warm-up too, requests are measured and outside of any body."""
    for number in rounds(recorder, 3, 1, body=True):
        if number == leave_at:
            break
    assert not recorder.in_body
    before = recorder.count
    send(recorder)
    assert recorder.count == before + 1


def test_a_body_that_raises_leaves_nothing_on(recorder):
    """The test's own error ends the loop and its warm-up."""

    def broken():
        for _ in rounds(recorder, 3, 1, body=True):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        broken()
    send(recorder)
    assert recorder.count == 1
    assert not recorder.in_body


@pytest.mark.parametrize(("count", "warmup"), [(0, 2), (-1, 0), (3, -1)])
def test_senseless_numbers_are_refused(recorder, count, warmup):
    """At least one round, no negative warm-up; the message shows the call."""
    with pytest.raises(SettingsError, match=rf"rounds\({count}, warmup={warmup}\)"):
        list(rounds(recorder, count, warmup, body=True))
