"""The options of a request: the same for every call of the client."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from helpers.scripted_engine import CrowdEngine

from pytest_llmspeed.client import LLMClient, RequestOptions
from pytest_llmspeed.engines.base import EngineSpec
from pytest_llmspeed.errors import SettingsError
from pytest_llmspeed.metrics.exchange import Exchange, Request
from pytest_llmspeed.recording.recorder import Recorder
from pytest_llmspeed.system.event_loop import LoopThread

CALLS: dict[str, Callable[..., Any]] = {
    "generate": lambda client, **options: client.generate("hi", warmup=False, **options),
    "measure": lambda client, **options: client.measure("hi", warmup=0, rounds=1, **options),
    "load": lambda client, **options: client.load("hi", concurrency=1, requests=1, warmup=0, **options),
    "sweep": lambda client, **options: client.sweep("hi", concurrency=[1, 2], requests=2, **options),
}
ALL: RequestOptions = {
    "model": "m",
    "max_tokens": 7,
    "output_tokens": 5,
    "temperature": 0.5,
    "token_limit_field": "max_completion_tokens",
    "timeout_s": 9.0,
    "endpoint": "completions",
    "extra_body": {"seed": 1},
}


class Noting(CrowdEngine):
    """Keeps the requests that it is asked."""

    async def exchange(self, request: Request, on_event: Any = None) -> Exchange:
        self.requests = [*getattr(self, "requests", ()), request]
        return await super().exchange(request, on_event)


def asked(loop: LoopThread, call: str, **options: Any) -> Request:
    """The last request that a call of the client made."""
    engine = Noting(EngineSpec.of("scripted", None, None, {}))
    CALLS[call](LLMClient(engine, loop, Recorder()), **options)
    return engine.requests[-1]


@pytest.mark.parametrize("call", CALLS)
def test_every_call_takes_all_the_options_of_a_request(loop: LoopThread, call: str) -> None:
    """Each reaches the engine under its own field."""
    request = asked(loop, call, **ALL)
    given = {**ALL, "limit_field": ALL["token_limit_field"]}
    del given["token_limit_field"]
    assert {name: getattr(request, name) for name in given} == given


@pytest.mark.parametrize("call", CALLS)
def test_an_unknown_option_names_the_nearest_one(loop: LoopThread, call: str) -> None:
    """Before anything is sent."""
    with pytest.raises(SettingsError, match="no option 'max_token'; did you mean 'max_tokens'"):
        asked(loop, call, max_token=7)


def test_the_defaults_are_those_of_the_documentation(loop: LoopThread) -> None:
    """128 tokens, greedy, two minutes, with the chat template."""
    request = asked(loop, "generate")
    assert (request.max_tokens, request.temperature, request.timeout_s) == (128, 0.0, 120.0)
    assert (request.endpoint, request.limit_field, request.extra_body) == ("chat", "max_tokens", {})


@pytest.mark.parametrize("call", CALLS)
def test_no_call_has_an_option_of_a_request_as_a_parameter_of_its_own(call: str) -> None:
    """They are written once, in `RequestOptions`."""
    assert not inspect.signature(getattr(LLMClient, call)).parameters.keys() & RequestOptions.__annotations__


def test_a_result_prints_as_sentences_whoever_made_it() -> None:
    """The client is enough: no report needs to have been written before."""
    code = (
        "import pytest_llmspeed.client; from pytest_llmspeed.metrics.reasons import Reason; "
        "print(Reason.CLIENT_BUSY(share=0.95))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.startswith("the client itself used 95% of a core")
