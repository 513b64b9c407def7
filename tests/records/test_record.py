"""Records as builtins and back: the one shape of reports, workers and the store."""

import json
import threading
from dataclasses import replace

import execnet
import numpy as np
import pytest

from pytest_llmspeed.engines.backend import Backend
from pytest_llmspeed.metrics.budgets import BudgetCheck
from pytest_llmspeed.metrics.measurement import Measurement
from pytest_llmspeed.metrics.reasons import Reason
from pytest_llmspeed.records.record import (
    SCHEMA,
    EngineRun,
    RunRecord,
    TestRecord,
    run_to_builtins,
    test_from_builtins,
    test_to_builtins,
)
from pytest_llmspeed.regression.verdicts import Comparison, Verdict


@pytest.fixture
def record(sample):
    """A record with something in every field, its figures within the digits that are kept."""
    return TestRecord(
        nodeid="test_chat.py::test_chat[tiny]",
        identity="test_chat.py::test_chat",
        environment="box",
        outcome="failed",
        backend=Backend("tiny", "m", "r1", "fp32", "cold", {"seed": 3}, {"torch": "2.6"}, 3.5),
        side=EngineRun("test_chat.py::test_chat", "tiny-fp32", 1),
        workload=("generate chat", "measure chat"),
        measurement=Measurement(
            (
                sample(label="chat", flags=frozenset({"new_connection", "k_assumed"})),
                sample(error="HTTP 500"),
            ),
            2,
            612.5,
        ),
        budgets=(
            BudgetCheck("ttft_ms", 300.0, 20.5, True, (19.0, None)),
            BudgetCheck("itl_p99_ms", 9.0, None, False, None, "chat", Reason.AS_WRITTEN(text="too few")),
        ),
        comparisons=(
            Comparison(
                Verdict.SLOWER,
                Reason.AS_WRITTEN(text="why"),
                "ttft_ms",
                "chat",
                "prompt 1",
                10.5,
                20.5,
                1.95238,
                (1.5, 2.5),
                0.001,
                0.0025,
                1.25,
                ((1.2, 3), (1.1, None)),
                4,
            ),
            Comparison(Verdict.NO_BASELINE),
        ),
        verdict=Verdict.SLOWER,
        problems=(Reason.SLOWER(comparison=Comparison(Verdict.SLOWER, metric="ttft_ms"), changed=["torch"]),),
        advice=(Reason.FAILS_BY_OPTION(option="x", because=Reason.HOW_TO_ACCEPT()),),
        accepted="larger context",
        partial=True,
    )


def run_of(*tests):
    return RunRecord("2026-03-01T10:00:00+00:00", "r1", None, "abc", {"cpu": "x"}, {"strict": True}, tests)


def only_builtins(value):
    """True if a value holds exact builtin types all the way down."""
    if type(value) is dict:
        return all(type(key) is str and only_builtins(item) for key, item in value.items())
    if type(value) is list:
        return all(only_builtins(item) for item in value)
    return value is None or type(value) in (str, int, float, bool)


def test_a_record_comes_back_as_it_was(record):
    """Nothing is lost between a worker and the controller."""
    assert test_from_builtins(test_to_builtins(record, text=True)) == record


def test_a_record_of_nothing_comes_back_as_it_was():
    """A test without engine, samples or verdict is carried too."""
    empty = TestRecord("a::b", "a::b")
    assert test_from_builtins(test_to_builtins(empty, text=True)) == empty


def test_a_record_comes_back_from_json_as_it_was(record):
    """JSON changes nothing of it."""
    carried = json.loads(json.dumps(test_to_builtins(record, text=True), allow_nan=False))
    assert test_from_builtins(carried) == record


def test_nothing_but_builtins_comes_out(record):
    """No enum, tuple, set or dataclass is left in a run's record."""
    assert only_builtins(run_to_builtins(run_of(record), text=True))


def test_what_comes_out_crosses_to_another_process(record):
    """execnet, which carries reports between workers, accepts it and gives the same back."""
    shown = test_to_builtins(record, text=True)
    assert execnet.loads(execnet.dumps(shown)) == shown


def test_numpy_floats_come_out_as_builtins(record, sample):
    """Figures that NumPy made, in samples, budgets or comparisons, cross as well."""
    odd = replace(
        record,
        measurement=Measurement((sample(ttft_ms=np.float64(20.0), itl_ms=(np.float64(5.0),)),)),
        budgets=(BudgetCheck("ttft_ms", 300.0, np.float64(20.5), True, (np.float64(19.0), None)),),
        comparisons=(
            replace(record.comparisons[0], p_session=np.float64(0.5), ci=(np.float64(1), np.float64(2))),
        ),
    )
    shown = test_to_builtins(odd, text=True)
    assert only_builtins(shown)
    execnet.dumps(shown)


@pytest.mark.parametrize(
    ("option", "shown"),
    [
        (("a", 1), ["a", 1]),
        ({"b": {2: None}}, {"b": {"2": None}}),
        (frozenset({1}), [1]),
        (Verdict.SLOWER, repr(Verdict.SLOWER)),
        (np.float64(0.5), repr(np.float64(0.5))),
        (object, repr(object)),
    ],
    ids=["tuple", "mapping", "set", "enum", "numpy", "class"],
)
def test_options_of_an_engine_are_shown_as_builtins(record, option, shown):
    """What a user hands an engine may be anything; it is shown, not carried."""
    odd = replace(record, backend=replace(record.backend, options={"option": option}))
    carried = test_to_builtins(odd, text=True)
    assert carried["backend"]["options"] == {"option": shown}
    execnet.dumps(carried)


def test_an_option_that_cannot_be_copied_is_shown_all_the_same(record):
    """An open file, a lock or a device among the options is no internal error."""
    lock = threading.Lock()
    odd = replace(record, backend=replace(record.backend, options={"lock": lock}))
    assert test_to_builtins(odd, text=True)["backend"]["options"] == {"lock": repr(lock)}


def test_answers_can_be_left_out(record):
    """Without text no answer is anywhere in the record, and it reads back with empty ones."""
    shown = test_to_builtins(record, text=False)
    assert "an answer" not in json.dumps(shown)
    assert "an answer" in json.dumps(test_to_builtins(record, text=True))
    assert [s.text for s in test_from_builtins(shown).measurement.samples] == ["", ""]


def test_times_are_cut_to_a_tenth_of_a_microsecond(record, sample):
    """Four decimals of a ms are kept of times."""
    exact = replace(record, measurement=Measurement((sample(ttft_ms=1.23456789, itl_ms=(2.00004999,)),)))
    (request,) = test_to_builtins(exact, text=True)["measurement"]["requests"]
    assert request["ttft_ms"] == 1.2346
    assert request["itl_ms"] == [2.0]


def test_p_values_keep_their_magnitude(record):
    """A p value of 1e-9 is not rounded to zero."""
    tiny = replace(record, comparisons=(replace(record.comparisons[0], p_session=1.23456789e-9),))
    assert test_to_builtins(tiny, text=True)["comparisons"][0]["p_session"] == 1.23457e-9


def test_missing_is_null_and_not_zero(record):
    """A failed request shows null where it has no figure."""
    failed = test_to_builtins(record, text=True)["measurement"]["requests"][1]
    assert (failed["ttft_ms"], failed["output_tokens"], failed["error"]) == (None, None, "HTTP 500")


def test_summaries_stand_beside_the_samples(record):
    """n and quantiles of each metric that was given; a quantile of too few is null."""
    summary = test_to_builtins(record, text=True)["measurement"]["summary"]
    assert summary["ttft_ms"] == {
        "n": 1,
        "p50": 20.0,
        "p90": None,
        "p95": None,
        "p99": None,
        "mean": 20.0,
        "min": 20.0,
        "max": 20.0,
    }


def test_a_metric_that_nobody_gave_has_no_summary(record, sample):
    """Its key is absent."""
    silent = replace(record, measurement=Measurement((sample(ttfo_ms=None),)))
    assert "ttfo_ms" not in test_to_builtins(silent, text=True)["measurement"]["summary"]


def test_flags_come_out_sorted(record):
    """The same record is the same bytes."""
    (request, _) = test_to_builtins(record, text=True)["measurement"]["requests"]
    assert request["flags"] == ["k_assumed", "new_connection"]


def test_a_run_is_what_the_report_promises(record):
    """Schema, run facts and tests stand under their promised names."""
    shown = run_to_builtins(run_of(record), text=True)
    assert shown["schema"] == SCHEMA == "llmspeed/2"
    assert shown["run"] == {
        "started": "2026-03-01T10:00:00+00:00",
        "id": "r1",
        "job": None,
        "commit": "abc",
        "environment": {"cpu": "x"},
        "options": {"strict": True},
        "suite_verdict": None,
    }
    (test,) = shown["tests"]
    promised = {
        "nodeid",
        "identity",
        "outcome",
        "backend",
        "measurement",
        "budgets",
        "comparisons",
        "quality",
    }
    assert promised <= test.keys()
    assert {"name", "model", "precision", "options"} <= test["backend"].keys()
    assert {"requests", "warmup_requests", "loads", "summary"} <= test["measurement"].keys()


def test_each_part_of_the_report_has_its_promised_fields(record):
    """Requests, budgets and comparisons can be read by the names."""
    shown = test_to_builtins(record, text=True)
    request = {
        "label",
        "ttft_ms",
        "ttfo_ms",
        "tpot_ms",
        "e2e_ms",
        "itl_ms",
        "output_tokens",
        "prompt_tokens",
        "token_source",
        "finish_reason",
        "text",
        "error",
        "flags",
        "started_ms",
    }
    comparison = {"metric", "label", "verdict", "delta", "ci", "p_samples", "p_session", "visible", "reason"}
    assert request <= shown["measurement"]["requests"][0].keys()
    assert {"name", "limit", "observed", "ci", "kept"} <= shown["budgets"][0].keys()
    assert comparison <= shown["comparisons"][0].keys()


def test_the_key_holds_what_must_agree(record):
    """Backend, model, revision, precision, prefix cache and workload; neither versions nor options."""
    assert record.key == {
        "backend": "tiny",
        "model": "m",
        "revision": "r1",
        "precision": "fp32",
        "prefix_cache": "cold",
        "workload": ["generate chat", "measure chat"],
    }
