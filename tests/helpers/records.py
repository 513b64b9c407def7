"""Builders of records, their sessions and the cases that they are judged by."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import pytest_llmspeed.messages  # noqa: F401  words each reason
from pytest_llmspeed.baselines.sessions import Session, session_of_test
from pytest_llmspeed.baselines.window import window
from pytest_llmspeed.engines.backend import Backend
from pytest_llmspeed.judging.case import Case
from pytest_llmspeed.metrics.budgets import parse_budgets
from pytest_llmspeed.metrics.measurement import Measurement
from pytest_llmspeed.metrics.sample import Sample
from pytest_llmspeed.records.record import TestRecord, test_to_builtins

SHAPE = (1.0, 1.015, 0.992, 1.031, 1.007, 0.988, 1.022, 1.001, 0.996, 1.01)
LEVELS = (1.0, 1.01, 0.99, 1.02, 0.98)


@pytest.fixture
def one_sample() -> Callable[..., Sample]:
    """Make a sample of `measure`: 100 ms to the first token, 10 ms a token, but for given fields."""

    def make(**fields: Any) -> Sample:
        known: dict[str, Any] = {
            "label": None,
            "stratum": "prompt 1",
            "call": "measure",
            "ttft_ms": 100.0,
            "ttfo_ms": 100.0,
            "tpot_ms": 10.0,
            "e2e_ms": 130.0,
            "throughput_tps": 4 / 0.130,
            "itl_ms": (10.0, 10.0, 10.0),
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
        if fields.get("error"):
            known |= dict.fromkeys(("ttft_ms", "ttfo_ms", "tpot_ms", "e2e_ms", "throughput_tps"))
            known |= {
                "itl_ms": (),
                "output_events": 0,
                "output_tokens": None,
                "text": "",
                "finish_reason": None,
            }
        return Sample(**{**known, **fields})

    return make


@pytest.fixture
def samples(one_sample: Callable[..., Sample]) -> Callable[..., tuple[Sample, ...]]:
    """Make ten samples, with TTFT `slow` times and TPOT `slow_tokens` times as long as usual."""

    def make(slow: float = 1.0, slow_tokens: float = 1.0, **fields: Any) -> tuple[Sample, ...]:
        return tuple(
            one_sample(
                **{"ttft_ms": 100.0 * slow * shape, "tpot_ms": 10.0 * slow_tokens * shape}
                | {"e2e_ms": 130.0 * slow * shape}
                | fields
            )
            for shape in SHAPE
        )

    return make


@pytest.fixture
def record() -> Callable[..., TestRecord]:
    """Make the record of a test that measured these samples."""

    def make(*samples: Sample, **fields: Any) -> TestRecord:
        known: dict[str, Any] = {
            "nodeid": "test_chat.py::test_chat",
            "identity": "test_chat.py::test_chat",
            "environment": "box",
            "backend": Backend("tiny", precision="fp32", versions={"torch": "2.6"}),
            "workload": ("measure chat",),
            "measurement": Measurement(samples),
        }
        return TestRecord(**{**known, **fields})

    return make


def session(record: TestRecord, day: int, *, commit: str = "abc") -> Session:
    """The session that a record stands for, stored on a day of March."""
    run = {"started": f"2026-03-{day:02d}T10:00:00+00:00", "id": f"run{day}", "job": None, "commit": commit}
    return session_of_test(test_to_builtins(record, text=False), run)


@pytest.fixture
def case() -> Callable[..., Case]:
    """Make what a record is judged by: its budgets and the records stored on the days before."""

    def make(
        record: TestRecord,
        stored: Sequence[TestRecord] = (),
        budgets: dict[str, Any] | None = None,
        **fields: Any,
    ) -> Case:
        history = [session(each, day) for day, each in enumerate(stored, 1)]
        return Case(
            budgets=parse_budgets(budgets) if budgets else (),
            window=window(history, record.identity, record.key),
            now=session(record, 28, commit="def"),
            **fields,
        )

    return make


@pytest.fixture
def usual(
    record: Callable[..., TestRecord], samples: Callable[..., tuple[Sample, ...]]
) -> Callable[..., list[TestRecord]]:
    """Make five records of earlier days, within two percent of each other."""

    def make(**fields: Any) -> list[TestRecord]:
        return [record(*samples(level, level, **fields)) for level in LEVELS]

    return make
