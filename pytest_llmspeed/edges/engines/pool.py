"""The pool owns the engines: of one device a single engine is alive, until another is leased."""

from __future__ import annotations

import warnings
from functools import cached_property

from pytest_llmspeed.core.errors import EngineError
from pytest_llmspeed.edges.engines.base import Engine, EngineSpec, is_alive
from pytest_llmspeed.edges.engines.registry import Registry
from pytest_llmspeed.edges.loop import LoopThread


class Pool:
    """Leases engines, starting and stopping them as the specs asked for demand."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._alive: dict[EngineSpec, Engine] = {}
        self._failed: dict[EngineSpec, str] = {}

    @cached_property
    def loop(self) -> LoopThread:
        """The event loop that all engines of this run answer on."""
        return LoopThread()

    def lease(self, spec: EngineSpec) -> Engine:
        """Return the running engine of a spec, started if need be.

        One that died meanwhile is started anew. Raises `EngineError`; a spec that failed to start once
        is not tried again in this run.
        """
        if spec in self._alive:
            if is_alive(self._alive[spec]):
                return self._alive[spec]
            self._stop(spec)
        if spec in self._failed:
            reason = self._failed[spec].partition("\n")[0]
            raise EngineError(f"{reason} (it failed to start before in this run)")
        self._make_room(self._registry.device(spec))
        try:
            engine = self._registry.engine(spec.backend).start(spec)
        except EngineError as error:
            self._failed[spec] = str(error)
            raise
        self._alive[spec] = engine
        return engine

    def _make_room(self, device: str | None) -> None:
        if device is None:
            return
        for spec in [spec for spec in self._alive if self._registry.device(spec) == device]:
            self._stop(spec)

    def _stop(self, spec: EngineSpec) -> None:
        self.loop.run(self._alive.pop(spec).close())

    def close(self) -> None:
        """Stop every engine and the loop; an engine that cannot be stopped does not keep the others alive."""
        try:
            for spec in list(self._alive):
                try:
                    self._stop(spec)
                except Exception as error:  # noqa: BLE001  (whatever it is, the others are stopped)
                    warnings.warn(f"the engine {spec.id!r} did not stop: {error!r}", stacklevel=2)
        finally:
            if "loop" in self.__dict__:
                self.loop.close()
