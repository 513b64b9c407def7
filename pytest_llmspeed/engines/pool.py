"""The pool owns the engines: of one device a single engine is alive, until another is leased."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module

from pytest_llmspeed.engines.base import Engine, EngineSpec, ServedEngine
from pytest_llmspeed.engines.registry import Registry
from pytest_llmspeed.errors import EngineError, hides_our_frames
from pytest_llmspeed.system import clock
from pytest_llmspeed.system.event_loop import LoopThread
from pytest_llmspeed.system.memory import MemoryWatch, give_back_unused

__tracebackhide__ = hides_our_frames


@dataclass(frozen=True, slots=True)
class Running:
    """A started engine; of one that occupies something here also how long that took, and its memory."""

    engine: Engine
    load_s: float | None = None
    memory: MemoryWatch | None = None

    @property
    def peak_memory_mib(self) -> float | None:
        """The most memory that the engine held since it was leased; None where that is not known."""
        if self.memory is None:
            return None
        on_gpu = self.engine.hardware.gpus is not None
        return self.memory.gpu_peak_mib() if on_gpu else self.memory.peak_mib()


class Pool:
    """Leases engines, starting and stopping them as the specs asked for demand."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._alive: dict[EngineSpec, Running] = {}
        self._failed: dict[EngineSpec, str] = {}

    @cached_property
    def loop(self) -> LoopThread:
        """The event loop that all engines of this run answer on."""
        return LoopThread()

    def lease(self, spec: EngineSpec) -> Engine:
        """Return the running engine of a spec, started if need be; its peak of memory begins anew.

        One that died meanwhile is started anew. Raises `EngineError`; a spec that failed to start once
        is not tried again in this run.
        """
        if spec in self._alive and not self._alive[spec].engine.alive:
            self._stop(spec)
        if spec not in self._alive:
            self._alive[spec] = self._started(spec)
        running = self._alive[spec]
        if running.memory:
            running.memory.forget_peak()
        return running.engine

    def running(self, engine: Engine) -> Running:
        """Return what is known of a leased engine."""
        return next((each for each in self._alive.values() if each.engine is engine), Running(engine))

    @contextmanager
    def not_counted(self) -> Iterator[None]:
        """Keep what this process loads in the block out of the memory of every running engine."""
        with ExitStack() as uncounted:
            for running in self._alive.values():
                if running.memory:
                    uncounted.enter_context(running.memory.not_counted())
            yield

    def _started(self, spec: EngineSpec) -> Running:
        if spec in self._failed:
            reason = self._failed[spec].partition("\n")[0]
            raise EngineError(f"{reason} (it already failed to start in this run)")
        device, kind = self._registry.device(spec), self._registry.engine(spec.backend)
        self._make_room(device)
        try:
            return Running(kind.start(spec)) if device is None else _loaded(kind, spec)
        except EngineError as error:
            self._failed[spec] = str(error)
            raise

    def _make_room(self, device: str | None) -> None:
        if device is None:
            return
        for spec in [spec for spec in self._alive if self._registry.device(spec) == device]:
            self._stop(spec)

    def _stop(self, spec: EngineSpec) -> None:
        self.loop.run(self._alive.pop(spec).engine.close())

    def close(self) -> None:
        """Stop every engine and the loop; an engine that cannot be stopped does not keep the others alive.

        Ctrl-C while one stops gives that one up: the others are stopped before it goes on.
        """
        with ExitStack() as closing:
            if "loop" in self.__dict__:
                closing.callback(self.loop.close)
            for spec in list(self._alive):
                closing.callback(self._stop_or_warn, spec)

    def _stop_or_warn(self, spec: EngineSpec) -> None:
        try:
            self._stop(spec)
        except Exception as error:  # noqa: BLE001  (whatever it is, the others are stopped)
            warnings.warn(f"the engine {spec.id!r} did not stop: {error!r}", stacklevel=2)


def _loaded(kind: type[Engine], spec: EngineSpec) -> Running:
    """An engine started here: timed, and told from what this process held before.

    Its libraries are imported first: they are loaded once a run, which only its first engine would pay.
    """
    for library in kind.libraries(spec):
        with suppress(ImportError), _quiet_import():  # the start will say what to install
            import_module(library)
    memory, before_s = MemoryWatch(), clock.now_s()
    engine = kind.start(spec)
    load_s = clock.now_s() - before_s
    give_back_unused()  # what only the load needed does not count as memory of the engine at work
    is_here = not isinstance(engine, ServedEngine) or engine.root_process == os.getpid()
    return Running(engine, load_s, memory if is_here else _watch_on_server(engine))


@contextmanager
def _quiet_import() -> Iterator[None]:
    """Silence warnings and log records below ERROR, which are about the libraries, not about the test.

    pytest would show them as "Captured stderr setup" with the first test that fails.
    """
    disabled = logging.root.manager.disable
    logging.disable(max(disabled, logging.WARNING))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the user's settings may turn deprecations into errors
            yield
    finally:
        logging.disable(disabled)


def _watch_on_server(engine: Engine) -> MemoryWatch | None:
    """Return a watch on a server's own processes, so that clients and load workers here do not count.

    None if the server's processes are not known, as in a container.
    """
    return None if engine.root_process is None else MemoryWatch.of_process(engine.root_process)
