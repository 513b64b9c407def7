"""Engines with a real model, by the names that `--engine` gives; a missing one is an error, no skip."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.servers import transformers_serve
from helpers.smollm2_files import smollm2_folder, smollm2_gguf
from processes import children

from pytest_llmspeed import Exchange, Request
from pytest_llmspeed.engines.base import Engine, EngineSpec
from pytest_llmspeed.engines.pool import Pool
from pytest_llmspeed.engines.registry import BUILT_IN, Registry
from pytest_llmspeed.metrics.sample import Sample, sample_of

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["VLLM_NO_USAGE_STATS"] = "1"

EXECUTOR = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
"""What vLLM chooses on one GPU. On a CPU it would start a further process for the model alone."""
OPTIONS: dict[str, dict[str, Any]] = {
    "tiny": {"token_delay_ms": 5},
    "vllm": {
        "enforce_eager": True,
        "max_model_len": 1024,
        "kv_cache_memory_bytes": 2**28,
        "distributed_executor_backend": EXECUTOR,
    },
    "vllm-server": {
        "enforce_eager": True,
        "context_length": 1024,
        "cpu_kv_cache_gib": 1,
        "extra_args": ("--distributed-executor-backend", EXECUTOR),
    },
    "llama-cpp": {"n_ctx": 1024, "n_threads": 1, "n_threads_batch": 1},
    "llama-cpp-server": {"context_length": 1024},
}
"""What each engine is started with beyond its model: as small and as quickly as it can."""
FP32 = ("transformers", "vllm", "vllm-server")
"""Engines that are asked for a precision: all of them run the same weights in it."""
TOY = ("tiny",)
"""A random model says nothing right."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--engine", action="append", default=[], help="a backend to test; may be repeated")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test runs once for each engine asked for."""
    if "backend" in metafunc.fixturenames:
        metafunc.parametrize("backend", metafunc.config.getoption("--engine"), scope="session")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out those that are for other engines."""
    items[:] = [item for item in items if _fits(item)]


def _fits(item: pytest.Item) -> bool:
    kept, callspec = item.get_closest_marker("engines"), getattr(item, "callspec", None)
    one = callspec and callspec.params.get("backend")
    asked = [one] if one else item.config.getoption("--engine")
    return kept is None or any(name in kept.args for name in asked)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "engines(*names): the engines that a test is for, where not for all")
    for name in config.getoption("--engine"):
        if name not in BUILT_IN:
            raise pytest.UsageError(f"--engine={name}: there is no such backend")


@pytest.fixture(scope="session")
def spec(backend: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineSpec]:
    """What is asked of an engine."""
    options = OPTIONS.get(backend, {})
    if backend in TOY:
        yield EngineSpec.of(backend, None, None, options)
    elif backend == "openai":
        model = str(smollm2_folder())
        with transformers_serve(Path(model), tmp_path_factory.mktemp("serve") / "log") as url:
            yield EngineSpec.of(backend, model, None, {"url": url})
    else:
        precision = "fp32" if backend in FP32 else None
        model = str(smollm2_gguf() if backend.startswith("llama-cpp") else smollm2_folder())
        yield EngineSpec.of(backend, model, precision, options)


@pytest.fixture(scope="session")
def pool(spec: EngineSpec) -> Iterator[Pool]:
    """The pool of an engine; once it is closed, neither child nor grandchild is left."""
    before = children(os.getpid())
    pool = Pool(Registry(BUILT_IN))
    yield pool
    pool.close()
    assert children(os.getpid()) == before, f"{spec.backend} left processes behind"


@pytest.fixture
def engine(pool: Pool, spec: EngineSpec) -> Engine:
    """The running engine."""
    return pool.lease(spec)


@pytest.fixture
def ask(pool: Pool, engine: Engine) -> Callable[..., Exchange]:
    """Send the engine a request."""

    def send(prompt: str, **fields: Any) -> Exchange:
        return pool.loop.run(engine.exchange(Request(prompt, **fields)))

    return send


@pytest.fixture
def answer(ask: Callable[..., Exchange]) -> Callable[..., Sample]:
    """Send the engine a request; what its answer shows, which is no error."""

    def send(prompt: str, **fields: Any) -> Sample:
        sample = sample_of(ask(prompt, **fields))
        assert sample.error is None
        return sample

    return send


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say which engines ran."""
    passed = terminalreporter.getreports("passed")
    for name in config.getoption("--engine"):
        count = sum(f"[{name}" in report.nodeid for report in passed)
        terminalreporter.write_line(f"engine {name}: {count} tests of its contract passed")
