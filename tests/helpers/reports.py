"""Runs made by hand: tests with given times, as the plugin would write them."""

from typing import Any

from pytest_llmspeed.engines.backend import Backend
from pytest_llmspeed.metrics.budgets import BudgetCheck
from pytest_llmspeed.metrics.measurement import Measurement
from pytest_llmspeed.metrics.sample import Sample
from pytest_llmspeed.records.record import RunRecord, TestRecord
from pytest_llmspeed.regression.verdicts import Verdict

SHAPE = (1.0, 1.015, 0.992, 1.031, 1.007, 0.988, 1.022, 1.001, 0.996, 1.01)
CHAT = "test_chat.py::test_chat"


def a_sample(slow: float, **fields: Any) -> Sample:
    """A request of 100 ms to the first token and 10 ms a token, times `slow`."""
    known: dict[str, Any] = {
        "label": None,
        "stratum": "prompt 1",
        "call": "measure",
        "ttft_ms": 100.0 * slow,
        "ttfo_ms": 100.0 * slow,
        "tpot_ms": 10.0 * slow,
        "e2e_ms": 130.0 * slow,
        "throughput_tps": 30.0 / slow,
        "itl_ms": (10.0 * slow,) * 3,
        "output_events": 4,
        "output_tokens": 4,
        "prompt_tokens": 100,
        "cached_tokens": None,
        "token_source": "usage",
        "finish_reason": "stop",
        "text": "an answer",
        "error": None,
        "flags": frozenset(),
        "started_ms": 0.0,
    }
    return Sample(**{**known, **fields})


def a_test(
    identity: str = CHAT, slow: float = 1.0, shape=SHAPE, precision="fp32", **fields: Any
) -> TestRecord:
    """A test that was measured so slowly."""
    known: dict[str, Any] = {
        "environment": "box",
        "backend": Backend("tiny", precision=precision, versions={"torch": "2.6"}),
        "workload": ("measure chat",),
        "measurement": Measurement(tuple(a_sample(slow * each) for each in shape)),
        "verdict": Verdict.PASSED,
    }
    return TestRecord(identity, identity, **{**known, **fields})


def a_run(day: int, *tests: TestRecord, job=None, commit=None, updated=True) -> RunRecord:
    """A run on a day of March."""
    return RunRecord(
        started=f"2026-03-{day:02d}T10:00:00+00:00",
        run_id=f"run{day:02d}",
        job=job,
        commit=commit or f"c{day}",
        facts={"cpu": "a cpu"},
        options={"update_baseline": True} if updated else {},
        tests=tests or (a_test(),),
    )


def a_missed_budget(name: str = "e2e_ms") -> BudgetCheck:
    return BudgetCheck(name, 100.0, 130.0, kept=False)
