"""Models run by vLLM's asynchronous engine: its scheduler and its processes, without a server."""

from __future__ import annotations

import asyncio
import gc
import logging
import warnings
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from itertools import count
from typing import Any, ClassVar, Self

from pytest_llmspeed.engines.backend import Backend
from pytest_llmspeed.engines.base import ANY_OPTION, Engine, EngineSpec
from pytest_llmspeed.engines.local.child_output import ChildOutput
from pytest_llmspeed.engines.local.child_watchdog import ChildWatchdog
from pytest_llmspeed.engines.local.token_stream import too_long
from pytest_llmspeed.engines.local.vllm_arguments import (
    PRECISIONS,
    argument_problem,
    arguments,
    precision_that_runs,
    prefix_cache_that_runs,
    reason,
)
from pytest_llmspeed.engines.local.vllm_output import VLLMAnswer, prompt_tokens, sampling, scores, scoring
from pytest_llmspeed.engines.model_files import ModelSource
from pytest_llmspeed.engines.token_scores import TokenScores
from pytest_llmspeed.errors import EngineError, GenerationError
from pytest_llmspeed.metrics.exchange import Event, Exchange, Request
from pytest_llmspeed.system import clock
from pytest_llmspeed.system.environment import Hardware

INSTALL = "pip install 'pytest-llmspeed[vllm]'"
END_S = 10.0
"""The longest the engine's processes may take to exit when asked to."""


class VLLMEngine(Engine):
    """A model in vLLM, as many requests at once as its scheduler takes (`max_concurrency`).

    Options: `prefix_cache` ("cold", the default, or "warm"), and every argument of vLLM's engine by
    its own name. `alive` is False once the engine's process has died, `root_process` is its number.
    """

    precisions: ClassVar[tuple[str, ...]] = PRECISIONS
    options: ClassVar[frozenset[str]] = ANY_OPTION
    prefix_caches: ClassVar[tuple[str, ...] | None] = ("cold", "warm")
    needs_model: ClassVar[bool] = True

    def __init__(self, output: ChildOutput, watchdog: ChildWatchdog, engine: Any, backend: Backend) -> None:
        config = engine.vllm_config
        self._output, self._watchdog = output, watchdog
        self._engine, self.backend = engine, backend
        self._tokenizer = engine.get_tokenizer()
        self._processes = engine.engine_core.resources.engine_manager.processes
        self._request_ids = count()
        self._one_token_a_yield = (
            not config.speculative_config and config.scheduler_config.stream_interval == 1
        )
        self._context: int = config.model_config.max_model_len
        self._max_logprobs: int = config.model_config.max_logprobs
        self.max_concurrency = config.scheduler_config.max_num_seqs
        self.hardware = Hardware(gpus=_gpus(config.parallel_config.world_size))

    @classmethod
    def libraries(cls, spec: EngineSpec) -> tuple[str, ...]:  # noqa: ARG003  (one runs all)
        """Return the module that runs a model."""
        return ("vllm.v1.engine.async_llm",)

    @classmethod
    def check(cls, spec: EngineSpec) -> None:
        """Raise `EngineError` for a model that vLLM cannot load."""
        _source(spec)

    @classmethod
    def start(cls, spec: EngineSpec) -> Self:
        """Return the engine, its model loaded; raises `EngineError` with what its processes said."""
        source = _source(spec)
        with _quiet_libraries(), ChildOutput() as output:
            library, watchdog = _library(), ChildWatchdog()
            try:
                # vLLM's engine gets no name here: libraries keep the frames of their first import, and so it
                engine = cls(output, watchdog, *_loaded(library, spec, source, output))
            except BaseException:
                watchdog.kill()
                raise
            watchdog.settled()
            return engine

    @property
    def alive(self) -> bool:
        """False once a process of the engine has died, or after `close`."""
        return self._engine is not None and not self._engine.errored

    @property
    def root_process(self) -> int | None:
        """The process whose descendants do the work, None where there are several."""
        return self._processes[0].pid if len(self._processes) == 1 else None

    async def exchange(self, request: Request, on_event: Callable[[Event], None] | None = None) -> Exchange:
        """Answer one request; one that is cancelled or runs out of time is aborted in the engine."""
        answer = VLLMAnswer(request, self._tokenizer, clock.now_s(), self._one_token_a_yield, on_event)
        try:
            async with asyncio.timeout(request.timeout_s):
                async with aclosing(await self._outputs(request)) as outputs:
                    async for output in outputs:
                        answer.take(clock.now_s(), output)
        except TimeoutError:
            return answer.timed_out()
        except Exception as error:  # noqa: BLE001  (whatever vLLM raises, it is this request that failed)
            return answer.exchange().failed(reason(error) if self.alive else self._death())
        return answer.exchange()

    async def _outputs(self, request: Request) -> AsyncGenerator[Any, None]:
        params = sampling(request)
        return self._generate(await self._prompt_tokens(request), params)

    async def _prompt_tokens(self, request: Request) -> list[int]:
        return await asyncio.to_thread(prompt_tokens, self._tokenizer, request)

    def _generate(self, tokens: list[int], params: Any) -> AsyncGenerator[Any, None]:
        from vllm import TokensPrompt

        if len(tokens) >= self._context:
            raise too_long(len(tokens), "max_model_len", self._context)
        prompt = TokensPrompt(prompt_token_ids=tokens)
        name = f"llmspeed-{next(self._request_ids)}"
        outputs: AsyncGenerator[Any, None] = self._engine.generate(prompt, params, name)
        return outputs

    async def score(self, request: Request, token_ids: Sequence[int], top: int) -> TokenScores:
        """Return how likely given tokens are as the answer to a request; raises `GenerationError`."""
        try:
            async with asyncio.timeout(request.timeout_s):
                return await self._scored(request, token_ids, top)
        except TimeoutError as error:
            raise GenerationError(f"timed out after {request.timeout_s:g} s") from error
        except Exception as error:  # whatever vLLM raises, it is this request that failed
            raise GenerationError(reason(error) if self.alive else self._death()) from error

    async def _scored(self, request: Request, token_ids: Sequence[int], top: int) -> TokenScores:
        params = scoring(top, self._max_logprobs)
        prompt = await self._prompt_tokens(request)
        async with aclosing(self._generate([*prompt, *token_ids], params)) as outputs:
            (output,) = [output async for output in outputs]
        return scores(output.prompt_logprobs, token_ids, top)

    def _death(self) -> str:
        return f"the vLLM engine died: {self._output.cause(self._processes) or 'it logged no error'}"

    async def close(self) -> None:
        """End the engine with its processes, those by force that take too long."""
        engine, self._engine, self._tokenizer = self._engine, None, None
        if engine.output_handler is not None:
            engine.output_handler.cancel()  # else it would log the end of the engine as its death
        with _only_errors_logged():
            await asyncio.to_thread(engine.shutdown, END_S)
        del engine
        gc.collect()
        for process in self._processes:
            await asyncio.to_thread(process.join, END_S)
        left = [process.pid for process in self._processes if process.is_alive()]
        (self._watchdog.kill if left else self._watchdog.release)()
        self._output.close()


def _source(spec: EngineSpec) -> ModelSource:
    """Return where the model is; raises `EngineError` for one that vLLM cannot take."""
    source = ModelSource.find(spec.required_model())
    if "gguf_file" in source.arguments:
        raise EngineError(
            f"model {source.name!r} is a GGUF file, which vLLM does not read: give a folder of "
            "save_pretrained or a hub id, or use the backend 'llama-cpp' or 'transformers'"
        )
    return source


def _library() -> tuple[type[Any], type[Any]]:
    """The classes of vLLM's engine arguments and of its engine; raises `EngineError`."""
    try:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM
    except ImportError as error:
        raise EngineError(f"{error.name or 'a library'} is not installed: {INSTALL}") from error
    return AsyncEngineArgs, AsyncLLM


def _loaded(
    library: tuple[type[Any], type[Any]], spec: EngineSpec, source: ModelSource, output: ChildOutput
) -> tuple[Any, Backend]:
    """A running engine, and what it runs; raises `EngineError` if that is not what was asked for."""
    arguments_class, engine_class = library
    if problem := argument_problem(spec, arguments_class):
        raise EngineError(problem)
    try:
        asked = arguments_class(**arguments(spec, source.location))
        config = asked.create_engine_config()
        backend = _backend(config, spec, source)  # before a process is started and the model is loaded
        logs = {name: getattr(asked, name) for name in ("disable_log_stats", "enable_log_requests")}
        return engine_class.from_vllm_config(config, **logs), backend
    except EngineError:
        raise
    except Exception as error:  # vLLM, torch and the hub raise what they like; it ends here, as one sentence
        where = "" if source.is_local else ", which is not a local folder"
        what = f"vLLM did not start with model {spec.model!r}{where}"
        raise EngineError(f"{what}: {output.cause() or reason(error)}") from error


def _backend(config: Any, spec: EngineSpec, source: ModelSource) -> Backend:
    import torch
    import vllm

    return Backend(
        name=spec.backend,
        model=source.name,
        revision=source.fingerprint or getattr(config.model_config.hf_config, "_commit_hash", None),
        precision=precision_that_runs(config, spec),
        prefix_cache=prefix_cache_that_runs(config, spec),
        options=spec.options,
        versions={"vllm": vllm.__version__, "torch": torch.__version__},
    )


@contextmanager
def _quiet_libraries() -> Iterator[None]:
    """The deprecations of libraries are not the user's, whose settings may make them errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _only_errors_logged() -> Iterator[None]:
    """The last engine ends after the report: the steps of its end, one by one, are not to follow that."""
    logger = logging.getLogger("vllm")
    level = logger.level
    logger.setLevel(max(level, logging.ERROR))
    try:
        yield
    finally:
        logger.setLevel(level)


def _gpus(number: int) -> str | None:
    from vllm.platforms import current_platform as platform

    if platform.is_cpu():
        return None
    product = f"{platform.get_device_name()} {platform.get_device_total_memory() // 2**30}GiB"
    return product if number == 1 else f"{number}x {product}"
