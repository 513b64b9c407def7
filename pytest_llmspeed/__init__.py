"""pytest-llmspeed: the speed of LLM inference as a tested property.

Tests use the fixtures `llm_client`, `llm_backend` and `llm_backend_options`; the names here are
for annotations, for `except` clauses and for engines of your own.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_llmspeed.client import LLMClient as LLMClient
    from pytest_llmspeed.engines.backend import Backend as Backend
    from pytest_llmspeed.engines.base import Engine as Engine
    from pytest_llmspeed.engines.base import EngineSpec as EngineSpec
    from pytest_llmspeed.engines.token_scores import TokenScores as TokenScores
    from pytest_llmspeed.errors import EngineError as EngineError
    from pytest_llmspeed.errors import GenerationError as GenerationError
    from pytest_llmspeed.errors import LLMSpeedError as LLMSpeedError
    from pytest_llmspeed.load.arrivals import Rate as Rate
    from pytest_llmspeed.load.files import read_trace as read_trace
    from pytest_llmspeed.load.files import read_workload as read_workload
    from pytest_llmspeed.load.synthetic import Lengths as Lengths
    from pytest_llmspeed.load.trace import Trace as Trace
    from pytest_llmspeed.load.workload import Workload as Workload
    from pytest_llmspeed.metrics.exchange import Event as Event
    from pytest_llmspeed.metrics.exchange import Exchange as Exchange
    from pytest_llmspeed.metrics.exchange import Request as Request
    from pytest_llmspeed.metrics.exchange import Usage as Usage
    from pytest_llmspeed.metrics.load_curve import Capacity as Capacity
    from pytest_llmspeed.metrics.load_curve import Curve as Curve
    from pytest_llmspeed.metrics.load_result import LoadResult as LoadResult
    from pytest_llmspeed.metrics.measurement import Answer as Answer
    from pytest_llmspeed.metrics.measurement import Measurement as Measurement
    from pytest_llmspeed.metrics.sample import Sample as Sample
    from pytest_llmspeed.plugin.outcome import PerformanceFailure as PerformanceFailure
    from pytest_llmspeed.quality.answers import CheckedAnswer as CheckedAnswer
    from pytest_llmspeed.quality.answers import CheckedSet as CheckedSet
    from pytest_llmspeed.system.environment import Hardware as Hardware

__version__ = "0.1.0"

_HOMES = {
    "Answer": "metrics.measurement",
    "Backend": "engines.backend",
    "Capacity": "metrics.load_curve",
    "CheckedAnswer": "quality.answers",
    "CheckedSet": "quality.answers",
    "Curve": "metrics.load_curve",
    "Engine": "engines.base",
    "EngineError": "errors",
    "EngineSpec": "engines.base",
    "Event": "metrics.exchange",
    "Exchange": "metrics.exchange",
    "GenerationError": "errors",
    "Hardware": "system.environment",
    "LLMClient": "client",
    "LLMSpeedError": "errors",
    "Lengths": "load.synthetic",
    "LoadResult": "metrics.load_result",
    "Measurement": "metrics.measurement",
    "PerformanceFailure": "plugin.outcome",
    "Rate": "load.arrivals",
    "Request": "metrics.exchange",
    "Sample": "metrics.sample",
    "TokenScores": "engines.token_scores",
    "Trace": "load.trace",
    "Usage": "metrics.exchange",
    "Workload": "load.workload",
    "read_trace": "load.files",
    "read_workload": "load.files",
}

__all__ = [*_HOMES, "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    """Load a public name from its home when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
