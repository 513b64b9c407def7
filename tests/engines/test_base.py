"""What an engine of one's own gets from the base class, and what it has to bring."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, Self

import pytest
from helpers.scripted_engine import CrowdEngine, ScoringEngine, ScriptedEngine

from pytest_llmspeed import Backend, Engine, EngineError, EngineSpec, Exchange, Hardware, Request
from pytest_llmspeed.engines.registry import BUILT_IN, Registry

SPEC = EngineSpec.of("ours", None, None, {})


class Smallest(Engine):
    """All that has to be written."""

    def __init__(self) -> None:
        self.backend, self.hardware = Backend("smallest"), Hardware()

    @classmethod
    def start(cls, spec: EngineSpec) -> Self:
        return cls()

    async def exchange(self, request: Request, on_event: Any = None) -> Exchange:
        return Exchange(request, 0.0, error="no answer")


class NamedModel(Smallest):
    """One that cannot run without a model."""

    needs_model = True


class LooksLikeAnEngine:
    """Has the methods, but not the base class."""

    start, exchange = Smallest.start, Smallest.exchange


def registry(kind: type) -> Registry:
    return Registry({"ours": f"{__name__}:{kind.__name__}"})


def test_two_methods_make_an_engine() -> None:
    """Everything else has the default of an engine in this process that serves one request at a time."""
    engine = Smallest.start(SPEC)
    assert (engine.max_concurrency, engine.device, engine.alive) == (1, "local", True)
    assert engine.root_process == os.getpid()
    assert not engine.can_score
    assert (engine.libraries(SPEC), engine.prefix_caches) == ((), None)


def test_the_processes_of_an_engine_elsewhere_are_unknown() -> None:
    """The processor time that it loses cannot be seen from here."""
    engine = Smallest.start(SPEC)
    engine.hardware = replace(engine.hardware, remote="elsewhere")
    assert engine.root_process is None


def test_an_engine_that_implements_score_can_score() -> None:
    """Nothing else has to be declared."""
    assert ScoringEngine(SPEC).can_score
    assert not ScriptedEngine(SPEC).can_score


def test_the_limit_of_requests_at_once_is_a_member() -> None:
    """A number, or None for an engine without a limit of its own."""
    assert (ScoringEngine.max_concurrency, CrowdEngine.max_concurrency) == (16, None)


def test_an_engine_without_its_methods_cannot_be_made() -> None:
    """Python names what is missing."""

    class Unfinished(Engine):
        pass

    with pytest.raises(TypeError, match="exchange"):
        Unfinished()  # type: ignore[abstract]


def test_a_class_that_is_not_an_engine_is_refused_when_it_is_loaded() -> None:
    """In one sentence that says what to derive it from."""
    problems = list(registry(LooksLikeAnEngine).problems(SPEC))
    assert problems == [
        f"backend 'ours': '{__name__}:LooksLikeAnEngine' is not a subclass of pytest_llmspeed.Engine; derive "
        "it from that class"
    ]


def test_a_missing_model_is_refused_before_the_start() -> None:
    """By the class's own word that it needs one; a named model passes."""
    ours = registry(NamedModel)
    (problem,) = ours.unstartable(SPEC)
    assert problem.startswith("backend 'ours' needs a model: set llmspeed_model, --llmspeed-model or model=")
    assert ours.unstartable(replace(SPEC, model="org/m")) == []
    assert registry(Smallest).unstartable(SPEC) == []


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_built_in_engine_derives_from_the_base_class(name: str) -> None:
    """And refuses a missing model at collection where it needs one."""
    built_in = Registry(BUILT_IN)
    assert issubclass(built_in.engine(name), Engine)
    needs = {"transformers", "vllm", "llama-cpp", *(each for each in BUILT_IN if each.endswith("-server"))}
    if name in needs:
        with pytest.raises(EngineError, match=f"backend '{name}' needs a model"):
            built_in.engine(name).start(EngineSpec.of(name, None, None, {}))
    assert built_in.engine(name).needs_model is (name in needs)
