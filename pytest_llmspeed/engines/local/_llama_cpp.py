"""GGUF models run in this process by llama.cpp, through llama-cpp-python."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Self

from pytest_llmspeed.engines import gguf
from pytest_llmspeed.engines.backend import Backend
from pytest_llmspeed.engines.base import Engine, EngineSpec
from pytest_llmspeed.engines.local.llama_model import LlamaModel, LlamaPieces
from pytest_llmspeed.engines.local.token_stream import Answering, OnEvent, across, in_worker
from pytest_llmspeed.engines.model_files import ModelSource
from pytest_llmspeed.engines.token_scores import TokenScores
from pytest_llmspeed.errors import EngineError
from pytest_llmspeed.metrics.exchange import Exchange, Request
from pytest_llmspeed.system import clock, machine
from pytest_llmspeed.system.environment import Hardware

INSTALL = "pip install 'pytest-llmspeed[llama-cpp]'"
CONTEXT = 8192
"""The default context length in tokens, if the model supports it."""
ARGUMENTS = frozenset(
    {"n_ctx", "n_batch", "n_ubatch", "n_threads", "n_threads_batch", "n_gpu_layers", "main_gpu"}
    | {"split_mode", "tensor_split", "flash_attn", "offload_kqv", "op_offload", "swa_full", "type_k"}
    | {"type_v", "use_mmap", "use_mlock", "numa", "kv_overrides", "rope_freq_base", "rope_freq_scale"}
)
"""The arguments of `llama_cpp.Llama` that may be set as options: those that affect memory and speed."""


class LlamaCppEngine(Engine):
    """A GGUF model in this process, one request at a time.

    Options: `prefix_cache` ("cold", or "warm": what the last prompt had in common is kept), and
    arguments of `llama_cpp.Llama` by their own names. The model is on the GPU, all of it, where
    llama.cpp was built for one.
    """

    precisions: ClassVar[tuple[str, ...]] = gguf.PRECISIONS
    options: ClassVar[frozenset[str]] = ARGUMENTS | {"prefix_cache"}
    prefix_caches: ClassVar[tuple[str, ...] | None] = ("cold", "warm")
    needs_model: ClassVar[bool] = True

    def __init__(self, model: LlamaModel, backend: Backend, hardware: Hardware) -> None:
        self._model = model
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="llmspeed-llama")
        self.backend = backend
        self.hardware = hardware

    @classmethod
    def libraries(cls, spec: EngineSpec) -> tuple[str, ...]:  # noqa: ARG003  (one runs all)
        """Return the module that runs a model."""
        return ("llama_cpp",)

    @classmethod
    def check(cls, spec: EngineSpec) -> None:
        """Raise `EngineError` for a model that is not there, or not a .gguf file."""
        _source(spec)

    @classmethod
    def start(cls, spec: EngineSpec) -> Self:
        """Return the loaded model; raises `EngineError`."""
        source = _source(spec)
        path = Path(source.location, source.arguments["gguf_file"])
        precision = gguf.checked(path, spec.precision, spec.model)
        llama_cpp = _library()
        arguments = _arguments(llama_cpp, spec, path)
        cache = spec.options.get("prefix_cache", "cold")
        llama = _loaded(llama_cpp, spec, path, arguments)
        backend = Backend(
            name="llama-cpp",
            model=source.name,
            revision=source.fingerprint,
            precision=precision,
            prefix_cache=cache,
            options={**arguments, "n_threads": llama.n_threads, "n_threads_batch": llama.n_threads_batch},
            versions={"llama_cpp_python": version("llama_cpp_python")},
        )
        on_gpu = bool(arguments["n_gpu_layers"]) and llama_cpp.llama_supports_gpu_offload()
        hardware = Hardware(gpus=machine.gpus() if on_gpu else None)
        return cls(LlamaModel(llama, warm=cache == "warm"), backend, hardware)

    async def exchange(self, request: Request, on_event: OnEvent | None = None) -> Exchange:
        """Generate in a worker thread; a cancelled request has ended before this returns.

        t0 is now: where several requests are made at once, each waits its turn, and that counts.
        """
        started_s, stop = clock.now_s(), threading.Event()
        answering = Answering(
            request,
            started_s,
            stop,
            ends=self._model.ends,
            pieces=LlamaPieces(self._model),
            on_event=across(on_event),
        )
        return await in_worker(self._worker, lambda: self._model.answer(request, answering), stop)

    async def score(self, request: Request, token_ids: Sequence[int], top: int) -> TokenScores:
        """Return how likely given tokens are as the answer to a request; raises `GenerationError`.

        The prefix cache is empty after it.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._worker, self._model.score, request, token_ids, top)

    async def close(self) -> None:
        """Free the model and its memory."""
        self._worker.shutdown()
        self._model.close()


def _source(spec: EngineSpec) -> ModelSource:
    source = ModelSource.find(spec.required_model())
    if not source.is_gguf:
        raise EngineError(
            f"backend 'llama-cpp' needs a .gguf file, not {spec.model!r}: set llmspeed_model, "
            "--llmspeed-model or model= in the llm_backend mark to one"
        )
    return source


def _library() -> Any:
    try:
        import llama_cpp
    except ImportError as error:
        raise EngineError(f"llama-cpp-python is not installed: {INSTALL}") from error
    return llama_cpp


def _arguments(llama_cpp: Any, spec: EngineSpec, path: Path) -> dict[str, Any]:
    made_for = gguf.context_length(path) or CONTEXT
    own = {name: value for name, value in spec.options.items() if name in ARGUMENTS}
    layers = -1 if llama_cpp.llama_supports_gpu_offload() else 0
    return {"n_ctx": min(CONTEXT, made_for), "n_gpu_layers": layers, **own}


def _loaded(llama_cpp: Any, spec: EngineSpec, path: Path, arguments: dict[str, Any]) -> Any:
    try:
        return llama_cpp.Llama(str(path), verbose=False, **arguments)
    except (OSError, ValueError, RuntimeError, TypeError, AssertionError) as error:
        raise EngineError(
            f"model {spec.model!r} cannot be loaded by llama.cpp with {arguments}: {error}; if memory is "
            "short, set a smaller n_ctx"
        ) from error
