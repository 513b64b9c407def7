"""pytest-llmspeed: the speed of LLM inference as a tested property.

Tests use the fixtures `llm_client`, `llm_backend` and `llm_backend_options`; the names here are
for annotations, for `except` clauses and for engines of your own.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_llmspeed.core.arrivals import Rate as Rate
    from pytest_llmspeed.core.curves import Capacity as Capacity
    from pytest_llmspeed.core.curves import Curve as Curve
    from pytest_llmspeed.core.environment import Hardware as Hardware
    from pytest_llmspeed.core.errors import EngineError as EngineError
    from pytest_llmspeed.core.errors import GenerationError as GenerationError
    from pytest_llmspeed.core.errors import LLMSpeedError as LLMSpeedError
    from pytest_llmspeed.core.exchange import Event as Event
    from pytest_llmspeed.core.exchange import Exchange as Exchange
    from pytest_llmspeed.core.exchange import Request as Request
    from pytest_llmspeed.core.exchange import Usage as Usage
    from pytest_llmspeed.core.load_result import LoadResult as LoadResult
    from pytest_llmspeed.core.measurement import Answer as Answer
    from pytest_llmspeed.core.measurement import Measurement as Measurement
    from pytest_llmspeed.core.metrics import Sample as Sample
    from pytest_llmspeed.core.quality.answers import CheckedAnswer as CheckedAnswer
    from pytest_llmspeed.core.quality.answers import CheckedSet as CheckedSet
    from pytest_llmspeed.core.quality.scores import TokenScores as TokenScores
    from pytest_llmspeed.core.record import Backend as Backend
    from pytest_llmspeed.core.synthetic import Lengths as Lengths
    from pytest_llmspeed.core.traces import Trace as Trace
    from pytest_llmspeed.core.workloads import Workload as Workload
    from pytest_llmspeed.edges.engines.base import Engine as Engine
    from pytest_llmspeed.edges.engines.base import EngineSpec as EngineSpec
    from pytest_llmspeed.edges.engines.base import TokenScorer as TokenScorer
    from pytest_llmspeed.edges.workload_files import read_trace as read_trace
    from pytest_llmspeed.edges.workload_files import read_workload as read_workload
    from pytest_llmspeed.measuring.client import LLMClient as LLMClient
    from pytest_llmspeed.outcome import PerformanceFailure as PerformanceFailure

__version__ = "0.1.0"

_HOMES = {
    "Answer": "core.measurement",
    "Backend": "core.record",
    "Capacity": "core.curves",
    "CheckedAnswer": "core.quality.answers",
    "CheckedSet": "core.quality.answers",
    "Curve": "core.curves",
    "Engine": "edges.engines.base",
    "EngineError": "core.errors",
    "EngineSpec": "edges.engines.base",
    "Event": "core.exchange",
    "Exchange": "core.exchange",
    "GenerationError": "core.errors",
    "Hardware": "core.environment",
    "LLMClient": "measuring.client",
    "LLMSpeedError": "core.errors",
    "Lengths": "core.synthetic",
    "LoadResult": "core.load_result",
    "Measurement": "core.measurement",
    "PerformanceFailure": "outcome",
    "Rate": "core.arrivals",
    "Request": "core.exchange",
    "Sample": "core.metrics",
    "TokenScorer": "edges.engines.base",
    "TokenScores": "core.quality.scores",
    "Trace": "core.traces",
    "Usage": "core.exchange",
    "Workload": "core.workloads",
    "read_trace": "edges.workload_files",
    "read_workload": "edges.workload_files",
}

__all__ = [*_HOMES, "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    """Load a public name from its home when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
