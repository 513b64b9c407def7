"""A test of this run as a session, without the detour over its file."""

from dataclasses import replace

import pytest

from pytest_llmspeed.baselines.sessions import session_of_record, sessions_of_run
from pytest_llmspeed.engines.backend import Backend
from pytest_llmspeed.metrics.load_result import LoadResult
from pytest_llmspeed.records.record import RunRecord, run_to_stored


@pytest.mark.parametrize("accepted", [None, "larger context"])
def test_a_session_of_this_run_is_the_one_that_its_file_would_give(record, samples, accepted):
    """What is judged is what is stored: rounding, left-out requests, loads, options and keys."""
    samples = (
        *samples(1.2345678),
        replace(samples()[0], error="HTTP 500"),
        replace(samples()[0], flags=frozenset({"disturbed"})),
        *(replace(sample, stratum="load 1", call="load") for sample in samples()),
    )
    load = LoadResult(
        {"concurrency": 2},
        tuple(sample for sample in samples if sample.call == "load"),
        stratum="load 1",
        throughput_tps=40.123456,
        blocks={"ttft_ms": (1.00001, 2.0)},
    )
    backend = Backend("tiny", options={"threads": 2, "odd": {1}}, versions={"torch": "2.6"})
    test = record(*samples, backend=backend, accepted=accepted)
    test = replace(test, measurement=replace(test.measurement, loads=(load,)), level="l1")
    run = RunRecord("2026-03-01T10:00:00+00:00", "r1", "job 7", "abc", {"cpu": "x", "cpus": 2}, {})
    (stored,) = sessions_of_run(run_to_stored(replace(run, tests=(test,))))
    assert session_of_record(test, run) == stored
