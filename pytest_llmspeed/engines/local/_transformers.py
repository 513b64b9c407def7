"""Models run in this process by Hugging Face transformers: a hub id, a folder or a GGUF file."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, ClassVar, Self

from pytest_llmspeed.engines.backend import Backend
from pytest_llmspeed.engines.base import Engine, EngineSpec
from pytest_llmspeed.engines.local import precision
from pytest_llmspeed.engines.local.token_stream import OnEvent, across, in_worker
from pytest_llmspeed.engines.local.transformers_generation import Generation, encoded, set_aside_defaults
from pytest_llmspeed.engines.local.transformers_scoring import score
from pytest_llmspeed.engines.model_files import ModelSource
from pytest_llmspeed.engines.token_scores import TokenScores
from pytest_llmspeed.errors import EngineError, GenerationError, did_you_mean
from pytest_llmspeed.metrics.exchange import Exchange, Request
from pytest_llmspeed.system import clock, machine
from pytest_llmspeed.system.environment import Hardware

DEVICES = ("cpu", "cuda", "mps", "xpu", "hpu", "npu", "mtia", "xla", "privateuseone")
"""The kinds of devices that a model can be on."""
INSTALL = "pip install 'pytest-llmspeed[transformers]'"


class TransformersEngine(Engine):
    """A causal language model in this process, one request at a time.

    Options: `device` (default: cuda where there is one, else cpu), `attn_implementation`, `revision`,
    `threads` (of torch, on the CPU), `trust_remote_code` (off unless asked), `prefix_cache` (always
    "cold": `generate` begins each request without one).
    """

    precisions: ClassVar[tuple[str, ...]] = (*precision.DTYPES, *precision.QUANTISED)
    options: ClassVar[frozenset[str]] = frozenset(
        {"device", "attn_implementation", "prefix_cache", "revision", "threads", "trust_remote_code"}
    )
    prefix_caches: ClassVar[tuple[str, ...] | None] = ("cold",)
    needs_model: ClassVar[bool] = True

    def __init__(self, name: str, model: Any, tokenizer: Any, spec: EngineSpec, revision: str | None) -> None:
        self._model, self._tokenizer = model, tokenizer
        set_aside_defaults(model)
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="llmspeed-generate")
        self._threads_before = set_threads(spec.options.get("threads"))
        self.backend = Backend(
            name=name,
            model=spec.model,
            revision=revision,
            precision=precision.checked(model, spec.precision, spec.model),
            prefix_cache="cold",
            options=spec.options,
            versions=_versions(self.libraries(spec)),
        )
        self.hardware = Hardware(gpus=_gpu_name(model.device))

    @classmethod
    def libraries(cls, spec: EngineSpec) -> tuple[str, ...]:
        """Return the modules that run a model of `spec`, its first imports included."""
        used = ("transformers.modeling_utils", "transformers.generation.utils")
        return ("torch", "transformers", *used, *precision.LIBRARIES.get(spec.precision, ()))

    @classmethod
    def check(cls, spec: EngineSpec) -> None:
        """Raise `EngineError` for a model that is not there, and for a device that cannot be."""
        _check_device(spec.options.get("device"))
        ModelSource.find(spec.required_model())

    @classmethod
    def start(cls, spec: EngineSpec) -> Self:
        """Return the loaded model; raises `EngineError`."""
        source = ModelSource.find(spec.required_model())
        torch, transformers = import_libraries()
        model, tokenizer = _load(torch, transformers, source, spec)
        revision = source.fingerprint or getattr(model.config, "_commit_hash", None)
        options = {**spec.options, **_weights_of_file(source)}
        shown = EngineSpec.of(spec.backend, source.name, spec.precision, options)
        return cls("transformers", model, tokenizer, shown, revision)

    async def exchange(self, request: Request, on_event: OnEvent | None = None) -> Exchange:
        """Generate in a worker thread; a cancelled request has ended before this returns.

        t0 is now: where several requests are made at once, each waits its turn, and that counts.
        """
        started_s, stop = clock.now_s(), threading.Event()
        generation = Generation(
            self._model, self._tokenizer, request, started_s=started_s, stop=stop, on_event=across(on_event)
        )
        return await in_worker(self._worker, generation.run, stop)

    async def score(self, request: Request, token_ids: Sequence[int], top: int) -> TokenScores:
        """Return how likely given tokens are as the answer to a request; raises `GenerationError`."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._worker, self._scored, request, token_ids, top)

    def _scored(self, request: Request, token_ids: Sequence[int], top: int) -> TokenScores:
        try:
            return score(self._model, encoded(self._model, self._tokenizer, request), token_ids, top)
        except (RuntimeError, ValueError, MemoryError, IndexError) as error:
            raise GenerationError(f"{type(error).__name__}: {first_line(error)}") from error

    async def close(self) -> None:
        """Drop the model and give its memory back."""
        import gc

        import torch

        self._worker.shutdown()
        set_threads(self._threads_before)
        self._model = self._tokenizer = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def import_libraries() -> tuple[Any, Any]:
    """Return the modules torch and transformers; raises `EngineError` that says what to install."""
    try:
        import torch
        import transformers
    except ImportError as error:
        raise EngineError(f"{error.name or 'a library'} is not installed: {INSTALL}") from error
    return torch, transformers


def set_threads(count: int | None) -> int | None:
    """Let torch use `count` threads (None: leave it) and return what to set to undo it."""
    if count is None:
        return None
    import torch

    before: int = torch.get_num_threads()
    try:
        torch.set_num_threads(int(count))
    except (TypeError, ValueError, RuntimeError) as error:
        raise EngineError(f"threads={count!r}: must be a whole number, 1 or more") from error
    return before


def _load(torch: Any, transformers: Any, source: ModelSource, spec: EngineSpec) -> tuple[Any, Any]:
    where: dict[str, Any] = dict(source.arguments)
    where["trust_remote_code"] = bool(spec.options.get("trust_remote_code", False))
    if revision := spec.options.get("revision"):
        where["revision"] = revision
    how: dict[str, Any] = {"dtype": precision.load_dtype(torch, spec.precision)}
    if source.is_gguf and (gguf := getattr(transformers, "GgufConfig", None)):
        how["quantization_config"] = gguf(dequantize=True)  # older versions know no other way
    if attention := spec.options.get("attn_implementation"):
        how["attn_implementation"] = attention
    try:
        with _progress_on_terminals_only(transformers):
            tokenizer = transformers.AutoTokenizer.from_pretrained(source.location, **where)
            model = transformers.AutoModelForCausalLM.from_pretrained(source.location, **where, **how)
        model = model.to(_device(torch, spec)).eval()
    except ImportError as error:
        raise EngineError(f"model {spec.model!r} needs another library: {first_line(error)}") from error
    except Exception as error:
        raise EngineError(_load_failure(spec, source, error)) from error
    if spec.precision in precision.QUANTISED:
        precision.quantise(model, spec.precision)
    return model, tokenizer


@contextmanager
def _progress_on_terminals_only(transformers: Any) -> Iterator[None]:
    """Hide progress bars where output is captured: pytest would show them with the first failing test."""
    logging = transformers.utils.logging
    if sys.stderr.isatty() or not logging.is_progress_bar_enabled():
        yield
        return
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.enable_progress_bar()


def _weights_of_file(source: ModelSource) -> dict[str, str]:
    """Return what is recorded of a .gguf file: its weights become plain ones when they are loaded here."""
    return {"weights": f"{source.gguf_type()}, dequantised"} if source.is_gguf else {}


def _check_device(device: object) -> None:
    """Raise `EngineError` for a device of no kind that torch has, or beyond the last GPU of this machine.

    It is looked at without torch: where the GPUs cannot be counted so, torch itself will say.
    """
    if not device:
        return
    kind, colon, index = str(device).partition(":")
    if kind not in DEVICES:
        raise EngineError(f"device={device!r}: torch has no such device; {did_you_mean(kind, DEVICES)}")
    if colon and not (index.isascii() and index.isdecimal()):
        raise EngineError(f"device={device!r}: after the colon stands a number, as in '{kind}:0'")
    count = machine.gpu_count() if kind == "cuda" else None
    if count is not None and int(index or 0) >= count:
        has = f"{count} GPU{'s' if count > 1 else ''}, numbered from 0"
        raise EngineError(f"device={device!r}: this machine has {has}; see CUDA_VISIBLE_DEVICES")


def _device(torch: Any, spec: EngineSpec) -> str:
    return str(spec.options.get("device") or ("cuda" if torch.cuda.is_available() else "cpu"))


def _load_failure(spec: EngineSpec, source: ModelSource, error: Exception) -> str:
    if source.is_local:
        return f"model {spec.model!r} cannot be loaded: {first_line(error)}"
    return (
        f"model {spec.model!r} is not a local file or folder, and could not be loaded from the hub: "
        f"{first_line(error)}; check the name, the network, or download it beforehand"
    )


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, with what it introduces, or its type where it has none."""
    lines = [line.strip() for line in str(error).strip().splitlines()]
    if not lines:
        return type(error).__name__
    return " ".join(lines) if lines[0].endswith(":") else lines[0]


def _versions(modules: Iterable[str]) -> dict[str, str]:
    return {name: version(name) for name in dict.fromkeys(each.partition(".")[0] for each in modules)}


def _gpu_name(device: Any) -> str | None:
    if device.type != "cuda":
        return None
    import torch

    properties = torch.cuda.get_device_properties(device)
    return f"{properties.name} {properties.total_memory // 2**30}GiB"
