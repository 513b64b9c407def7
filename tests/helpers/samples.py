"""Builders of samples and of measured sessions, shared by the tests of the core."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import pytest_llmspeed.messages  # noqa: F401  words each reason
from pytest_llmspeed.metrics.measurement import Measurement
from pytest_llmspeed.metrics.sample import Sample

if TYPE_CHECKING:
    pass

PLAIN = Sample(
    label=None,
    stratum="prompt 1",
    call="measure",
    ttft_ms=20.0,
    ttfo_ms=20.0,
    tpot_ms=5.0,
    e2e_ms=35.0,
    throughput_tps=100.0,
    itl_ms=(5.0, 5.0, 5.0),
    output_events=4,
    output_tokens=4,
    prompt_tokens=12,
    cached_tokens=None,
    token_source="usage",
    finish_reason="stop",
    text="an answer",
    error=None,
    flags=frozenset(),
    started_ms=0.0,
)
FAILED: dict[str, Any] = {
    "ttft_ms": None,
    "ttfo_ms": None,
    "tpot_ms": None,
    "e2e_ms": None,
    "throughput_tps": None,
    "itl_ms": (),
    "output_events": 0,
    "output_tokens": None,
    "finish_reason": None,
    "text": "",
}


@pytest.fixture
def sample() -> Callable[..., Sample]:
    """Make a sample: plain, but for the fields that are given; a failed one has no figures."""

    def make(**fields: Any) -> Sample:
        return replace(PLAIN, **({**FAILED, **fields} if fields.get("error") else fields))

    return make


@pytest.fixture
def measured(sample: Callable[..., Sample]) -> Callable[..., Measurement]:
    """Make a measurement of one sample for each value of a metric."""

    def make(values: Sequence[float | None], metric: str = "ttft_ms", **fields: Any) -> Measurement:
        return Measurement(tuple(sample(**{metric: value, **fields}) for value in values))

    return make


@pytest.fixture
def noisy_sessions() -> Callable[..., list[list[float]]]:
    """Make sessions of log-normal values about `level`, of which each has a mood of its own."""

    import numpy as np

    def make(
        rng: np.random.Generator,
        count: int,
        requests: int = 20,
        *,
        level: float = 100.0,
        between: float = 0.02,
        within: float = 0.03,
    ) -> list[list[float]]:
        moods = rng.normal(0.0, between, count)
        return [(level * np.exp(m + rng.normal(0.0, within, requests))).tolist() for m in moods]

    return make
