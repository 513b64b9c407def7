"""Loads on an engine whose clock is its script, and what is refused before any request."""

from __future__ import annotations

import asyncio
import signal
import threading
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
from helpers.scripted_engine import CrowdEngine, ScriptedEngine

from pytest_llmspeed import EngineSpec, GenerationError, LLMClient, Rate, Trace, Workload
from pytest_llmspeed.errors import SettingsError
from pytest_llmspeed.load.trace import TraceRow
from pytest_llmspeed.recording.recorder import Recorder
from pytest_llmspeed.system.event_loop import LoopThread

TRACE = Trace.from_rows([TraceRow(place / 1000, input_tokens=3, output_tokens=2) for place in range(60)])


def client(loop: LoopThread, engine: type[ScriptedEngine] = CrowdEngine, **options: Any) -> LLMClient:
    return LLMClient(engine.start(EngineSpec.of(engine.name, "m", None, options)), loop, Recorder())


def test_a_closed_loop_keeps_its_slots_filled(loop: LoopThread) -> None:
    """So many requests are under way at any time, each begun as soon as another has ended."""
    load = client(loop).load("hello", concurrency=8)
    assert (len(load.samples), load.peak_concurrency, load.invalid) == (80, 8, ())
    assert load.warmup_requests == 8
    # answers of about 240 ms, eight at once
    assert load.requests_per_s == pytest.approx(8 / 0.24, rel=0.1)
    assert load.throughput_tps == pytest.approx(load.requests_per_s * 8, rel=0.01)
    assert load.steady_tps == pytest.approx(load.throughput_tps, rel=0.1)


def test_numbers_may_be_numpy_s(loop: LoopThread) -> None:
    """They reach reports and other processes as plain ones."""
    load = client(loop).load("hello", concurrency=np.int64(2), requests=np.int64(20))
    assert {name: type(load.asked[name]) for name in ("concurrency", "requests")} == {
        "concurrency": int,
        "requests": int,
    }


def test_what_a_load_measured_is_in_the_measurement(loop: LoopThread) -> None:
    """Its requests and its warm-up count among those of the test; a second like it has its own stratum."""
    llm_client = client(loop)
    first, second = (llm_client.load("hello", concurrency=2, label="chat") for _ in range(2))
    measurement = llm_client.measurement
    assert measurement.loads == (first, second)
    assert (len(measurement.samples), measurement.warmup_requests) == (40, 4)
    assert second.stratum == f"{first.stratum} #2"
    assert {sample.call for sample in measurement.samples} == {"load"}
    assert min(sample.started_ms for sample in measurement.samples) == 0


def test_equal_loads_are_told_apart_whatever_their_label(loop: LoopThread) -> None:
    """A label may hold what the number of a repetition begins with."""
    llm_client = client(loop)
    loads = [llm_client.load("hello", concurrency=2, label="issue #12") for _ in range(3)]
    first = loads[0].stratum
    assert [load.stratum for load in loads] == [first, f"{first} #2", f"{first} #3"]


def test_every_request_is_accounted_for_once(loop: LoopThread) -> None:
    """Also those that fail; they enter no latency."""
    load = client(loop, fail_every=10).load("hello", concurrency=5, requests=200, warmup=0)
    assert (len(load.samples), len(load.failures), load.error_rate) == (200, 20, 0.1)
    assert len(load.values("ttft_ms")) == 180
    assert len({sample.started_ms for sample in load.samples}) > 20


def test_turns_follow_each_other(loop: LoopThread) -> None:
    """The next turn is asked after the answer to the one before, with what was said."""
    prompts = []

    class Listening(CrowdEngine):
        async def exchange(self, request: Any) -> Any:
            prompts.append([message["content"] for message in request.messages])
            return await super().exchange(request)

    workload = Workload.conversations([["a", "b"]])
    load = client(loop, Listening).load(workload, concurrency=1, requests=10, warmup=0)
    assert len(load.samples) == 10
    assert prompts[0] == ["a"]
    assert prompts[1] == ["a", load.samples[0].text, "b"]


def test_a_turn_after_a_failed_one_is_not_sent_but_accounted_for(loop: LoopThread) -> None:
    """It failed too, and says why."""
    workload = Workload.conversations([["a", "b", "c"]])
    load = client(loop, fail_every=1).load(workload, concurrency=1, requests=12, warmup=0)
    assert len(load.samples) == 12
    assert sum("the turn before it" in (sample.error or "") for sample in load.samples) == 8


def test_time_ends_a_load_in_the_middle_of_a_conversation(loop: LoopThread) -> None:
    """No turn is sent after it, however many there would be; those that were not sent are no failures."""
    workload = Workload.conversations([["hello"] * 100_000])
    load = client(loop).load(workload, concurrency=2, duration_s=0.05, warmup=0)
    assert 0 < len(load.samples) < 100_000
    assert load.failures == ()


def test_loads_that_draw_otherwise_are_different_work(loop: LoopThread) -> None:
    """The values of further fields are a part of what is compared, not their names alone."""
    llm_client = client(loop)
    strata = {
        llm_client.load("hello", concurrency=1, extra_body={"top_p": top_p}).stratum for top_p in (0.1, 0.9)
    }
    assert not any(stratum.endswith("#2") for stratum in strata)
    assert len(strata) == 2


def test_a_turn_after_a_cut_one_is_not_sent(loop: LoopThread) -> None:
    """Half an answer without a finish reason is a failed request, and no turn of a conversation."""
    asked = []

    class Cutting(CrowdEngine):
        async def exchange(self, request: Any) -> Any:
            asked.append(len(request.messages))
            return replace(await super().exchange(request), finish_reason=None)

    workload = Workload.conversations([["a", "b"]])
    load = client(loop, Cutting).load(workload, concurrency=1, requests=10, warmup=0)
    assert asked == [1] * 5
    assert sum("the turn before it" in (sample.error or "") for sample in load.samples) == 5


def test_answers_have_the_length_that_the_workload_wants(loop: LoopThread) -> None:
    """A turn's own length stands before that of the load."""
    forced = []

    class Listening(CrowdEngine):
        async def exchange(self, request: Any) -> Any:
            forced.append(request.output_tokens)
            return await super().exchange(request)

    workload = Workload.synthetic(input_tokens=5, output_tokens=(3, 9))
    client(loop, Listening).load(workload, concurrency=2, max_tokens=50)
    assert set(forced) <= set(range(3, 10))
    assert len(set(forced)) > 1


def test_an_engine_is_asked_for_no_more_than_it_serves(loop: LoopThread) -> None:
    """More is refused before any request, with what to do: no queue is measured in secret."""
    llm_client = client(loop, ScriptedEngine)
    with pytest.raises(SettingsError, match=r"'scripted' serves one request at a time.*its URL"):
        llm_client.load("hello", concurrency=2)
    assert llm_client.measurement.samples == ()
    assert len(llm_client.load("hello", concurrency=1).samples) == 10


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "none of them was given"),
        ({"concurrency": 2, "rate": 5}, "concurrency= and rate= was given"),
        ({"concurrency": 0}, "concurrency=0"),
        ({"concurrency": 2.5}, "concurrency=2.5: must be a whole number"),
        ({"concurrency": 2, "requests": "40"}, "requests='40': must be a whole number"),
        ({"concurrency": 2, "warmup": "few"}, "warmup='few': must be a whole number"),
        ({"concurrency": 2, "warmup": -1}, "warmup=-1: must be 0 or more"),
        ({"concurrency": 2, "duration_s": "long"}, "duration_s='long': must be a number"),
        ({"concurrency": 2, "duration_s": float("inf")}, "duration_s=inf: must be positive and finite"),
        ({"rate": "fast"}, "rate='fast': must be a number"),
        ({"rate": 0}, "rate=0"),
        ({"concurrency": 4, "requests": 0}, "requests=0: must be at least 1"),
        ({"concurrency": 4, "requests": 40, "duration_s": 3}, "not both"),
        ({"concurrency": 4, "duration_s": 0}, "duration_s=0"),
        ({"concurrency": 4, "slo": {"ttft": 3}}, "did you mean 'ttft_ms'"),
        ({"trace": TRACE, "requests": 61}, "requests=61: the trace has 60"),
    ],
)
def test_a_senseless_load_is_refused(loop: LoopThread, given: dict[str, Any], told: str) -> None:
    """The error names the argument, and a load that is too short the number that it needs."""
    with pytest.raises(SettingsError, match=told):
        client(loop).load(None if "trace" in given else "hello", **given)


def test_a_load_without_a_workload_is_refused(loop: LoopThread) -> None:
    """Only a trace brings its own."""
    with pytest.raises(SettingsError, match="the workload is empty"):
        client(loop).load(concurrency=1)


def test_a_load_of_which_no_warm_up_is_answered_does_not_begin(loop: LoopThread) -> None:
    """It would only fail, slowly."""
    llm_client = client(loop, fail_every=1)
    with pytest.raises(GenerationError, match=r"all 3 warm-up requests of the load failed.*scripted failure"):
        llm_client.load("hello", concurrency=3)


def test_an_open_load_waits_openly_for_an_engine_that_serves_one_at_a_time(loop: LoopThread) -> None:
    """The queue is measured: each request says how long it waited, and the load is valid."""

    class OneByOne(CrowdEngine):
        max_concurrency = 1

    load = client(loop, OneByOne).load("hello", rate=Rate.constant(2000), warmup=0)
    assert (len(load.samples), load.peak_concurrency) == (50, 1)
    assert all(sample.queue_ms is not None for sample in load.samples)
    assert load.offered_per_s == pytest.approx(2000, rel=0.01)


def test_a_trace_is_replayed_with_its_own_requests(loop: LoopThread) -> None:
    """It is workload and schedule in one; the number of its rows is that of its requests."""
    load = client(loop).load(trace=TRACE, warmup=0)
    assert len(load.samples) == 60
    assert load.asked["trace"] == load.asked["workload"]
    assert load.asked["rate"] == "1000/s of the trace"


def test_an_interrupted_load_keeps_what_was_measured(loop: LoopThread) -> None:
    """Ctrl-C goes on once the finished requests are recorded; those under way are cancelled, not failed."""

    calls = count()

    class Interrupting(CrowdEngine):
        async def exchange(self, request: Any) -> Any:
            if next(calls) == 20:
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
                await asyncio.Event().wait()
            return await super().exchange(request)

    llm_client = client(loop, Interrupting)
    with pytest.raises(KeyboardInterrupt):
        llm_client.load("hello", concurrency=4, warmup=0)
    (load,) = llm_client.measurement.loads
    assert len(load.values("ttft_ms")) >= 17
    assert not load.failures
    assert len(load.samples) + load.not_sent == 40
    assert sum("cancelled" in sample.flags for sample in load.samples) >= 1
