"""The arithmetic of loads, on answers whose times are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_llmspeed.metrics.load_figures import (
    Answered,
    blocks,
    faults,
    goodput,
    offered_per_s,
    output_tokens,
    peak_concurrency,
    send_lateness_s,
    steady_tps,
    stretch,
    window_of,
)
from pytest_llmspeed.metrics.load_result import ClientHealth, LoadResult
from pytest_llmspeed.metrics.sample import Sample

Make = Callable[..., Sample]


def answered(make: Make, start_s: float, end_s: float, **fields: Any) -> Answered:
    """An answer of eleven evenly spread tokens, the first after half of its time."""
    group = fields.pop("group", 0)
    length_ms = (end_s - start_s) * 1000
    timing = {
        "ttft_ms": length_ms / 2,
        "tpot_ms": length_ms / 20,
        "e2e_ms": length_ms,
        "itl_ms": (length_ms / 20,) * 10,
        "output_events": 11,
        "output_tokens": 11,
        "started_ms": start_s * 1000,
        "call": "load",
    }
    failed = {"started_ms": start_s * 1000, "call": "load"}
    sample = make(**({**failed, **fields} if fields.get("error") else {**timing, **fields}))
    return Answered(sample, start_s, end_s, group)


def waves(make: Make, slots: int, count: int, gap_s: float = 0.0) -> list[Answered]:
    """A closed loop: `count` answers of one second, each a little after the one before in its slot."""
    return [
        answered(make, place // slots * (1 + gap_s), place // slots * (1 + gap_s) + 1)
        for place in range(count)
    ]


def test_the_offered_rate_leaves_out_the_first_request() -> None:
    """n requests have n - 1 gaps; fewer than two, or all at one moment, have no rate."""
    assert offered_per_s([5.0, 5.5, 6.5, 6.0]) == pytest.approx(2)
    assert [offered_per_s(came_s) for came_s in ([], [5.0], [5.0, 5.0])] == [None, None, None]


def test_the_window_opens_with_the_first_request_and_closes_with_the_last_event(sample: Make) -> None:
    """Usage and [DONE], and requests that failed late, do not stretch it."""
    load = [answered(sample, 5, 6), answered(sample, 5.5, 7), answered(sample, 6, 60, error="late")]
    window = window_of(load)
    assert window is not None
    assert (window.opens_s, window.closes_s) == (5, 7)


def test_a_load_of_failures_has_no_window(sample: Make) -> None:
    """Then nothing has a value, instead of 0."""
    assert window_of([answered(sample, 0, 1, error="x")]) is None
    assert output_tokens([answered(sample, 0, 1, error="x")]) is None


def test_tokens_that_nobody_counted_are_unknown(sample: Make) -> None:
    """One answer without a count leaves the sum undefined."""
    assert output_tokens([answered(sample, 0, 1), answered(sample, 0, 1)]) == 22
    assert output_tokens([answered(sample, 0, 1), answered(sample, 0, 1, output_tokens=None)]) is None


def test_steady_throughput_leaves_out_ramp_and_tail(sample: Make) -> None:
    """Two slots, taken one after the other; the last answer runs alone, and its tokens do not count."""
    load = [answered(sample, 0, 2), answered(sample, 1, 3), answered(sample, 2, 10)]
    # both slots are taken from 1 to 3: all events of the first answer, of the second all but its last
    assert steady_tps(load, 2) == pytest.approx((11 + 10) / 2)


def test_steady_throughput_of_a_load_that_never_filled_its_slots_is_undefined(sample: Make) -> None:
    """Fewer requests than slots."""
    assert steady_tps([answered(sample, 0, 1)], 2) is None


def test_peak_concurrency(sample: Make) -> None:
    """One that begins when another ends is not beside it."""
    assert peak_concurrency([answered(sample, 0, 1), answered(sample, 1, 2), answered(sample, 1.5, 3)]) == 2


def test_goodput_is_the_share_that_kept_every_limit(sample: Make) -> None:
    """A failed request kept none; an answer of one token has no time per token to miss."""
    load = [
        answered(sample, 0, 1),
        answered(sample, 0, 2),
        answered(sample, 0, 1, error="x"),
        answered(sample, 0, 1, output_tokens=1, tpot_ms=None),
    ]
    assert goodput(load, {"e2e_ms": 1500, "tpot_ms": 60}) == 0.5
    assert goodput(load, {}) is None


def test_a_load_that_fills_its_slots_at_once_is_not_stretched(sample: Make) -> None:
    """It takes as long as its own answers need; gaps of a tenth show as a tenth."""
    assert stretch(waves(sample, 4, 40), 4) == pytest.approx(1.0)
    assert stretch(waves(sample, 4, 40, gap_s=0.1), 4) == pytest.approx(1.09)


def test_each_process_is_held_against_its_own_slots(sample: Make) -> None:
    """Answers of one process that happen to take longer leave no slot of the other's empty."""
    one = [answered(sample, place, place + 1, group=0) for place in range(10)]
    other = [answered(sample, place * 2, place * 2 + 2, group=1) for place in range(10)]
    assert stretch(one + other, 2) == pytest.approx(1.0)


def test_lateness_of_sends(sample: Make) -> None:
    """Of a closed loop, from a slot's end to the next request; of an open one, from when it was due."""
    assert send_lateness_s(waves(sample, 2, 6, gap_s=0.25), 2) == pytest.approx([0.25] * 4)
    assert send_lateness_s([answered(sample, 0, 1, queue_ms=30.0)], None) == [0.03]


def test_ten_blocks_of_equal_count(sample: Make) -> None:
    """Each has its tokens by its duration, and its medians; there are ten, or none."""
    load = waves(sample, 4, 80)
    found = blocks(load, window_of(load))
    assert {metric: len(values) for metric, values in found.items()} == dict.fromkeys(found, 10)
    assert found["ttft_ms"] == pytest.approx([500] * 10)
    assert found["throughput_tps"] == pytest.approx([44] * 10)
    assert found["requests_per_s"] == pytest.approx([4] * 10)
    assert blocks(load[:9], window_of(load[:9])) == {}


def told(load: list[Answered], slots: int | None, client: ClientHealth | None = None, **more: Any) -> str:
    settings = {"queues_here": False, "peak": peak_concurrency(load), "lost": (), **more}
    return " / ".join(map(str, faults(load, client or ClientHealth(), slots=slots, **settings)))


def test_a_sound_load_has_no_faults(sample: Make) -> None:
    """All slots taken, in the time that the answers need, by a client that has time."""
    assert told(waves(sample, 4, 40), 4, ClientHealth(cpu_share=0.5, send_late_ms=1.0)) == ""


@pytest.mark.parametrize(
    ("client", "fault"),
    [
        (ClientHealth(cpu_share=0.95), "the client itself used 95% of a core"),
        (ClientHealth(piled_up=0.2), "20% of the output events arrived before the client had read"),
    ],
)
def test_a_client_that_is_the_bottleneck_is_told(sample: Make, client: ClientHealth, fault: str) -> None:
    """With what to do about it."""
    assert fault in told(waves(sample, 4, 40), 4, client)
    assert "more cores" in told(waves(sample, 4, 40), 4, client)


def test_a_load_that_is_not_the_asked_one_is_told(sample: Make) -> None:
    """Too few at once, too long, too late, or a part of it lost."""
    assert "only 4 of 8 requests were ever in flight" in told(waves(sample, 4, 40), 8)
    assert "took 1.09 times as long" in told(waves(sample, 4, 40, gap_s=0.1), 4)
    late = ClientHealth(send_late_ms=80.0)
    assert "sent more than 80 ms after it was due" in told(waves(sample, 4, 40), None, late)
    assert told(waves(sample, 4, 40), None, late, queues_here=True) == ""
    assert "signal 9" in told(waves(sample, 4, 40), 4, lost=["its worker process died (signal 9)"])


def test_latency_from_schedule_stands_beside_latency_from_send(sample: Make) -> None:
    """A request that waited is as late for its user as it was for the client."""
    samples = [sample(queue_ms=float(place), ttft_ms=100.0, tpot_ms=5.0) for place in range(10)]
    load = LoadResult(asked={}, samples=tuple(samples))
    assert load.summary("ttft_ms").mean == 100.0
    assert load.summary("ttft_ms", since="schedule").mean == pytest.approx(104.5)
    assert load.summary("tpot_ms", since="schedule").mean == 5.0


def test_a_cancelled_request_is_no_latency_and_no_failure(sample: Make) -> None:
    """What was cut off by Ctrl-C stays out of the figures."""
    load = LoadResult(asked={}, samples=(sample(), sample(flags=frozenset({"cancelled"}), ttft_ms=1.0)))
    assert load.values("ttft_ms") == [20.0]
    assert load.error_rate == 0
