"""The one object of an invocation of pytest: its settings and engines, its results, and what it writes."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from pathlib import Path

from pytest_llmspeed.baselines.store import FolderStore
from pytest_llmspeed.engines.base import Engine
from pytest_llmspeed.engines.pool import Pool
from pytest_llmspeed.engines.registry import Registry
from pytest_llmspeed.errors import StoreError
from pytest_llmspeed.quality.prompt_sets import QualitySets
from pytest_llmspeed.records.record import RunRecord
from pytest_llmspeed.run.output import Output
from pytest_llmspeed.run.results import Results
from pytest_llmspeed.settings import Settings
from pytest_llmspeed.system import clock, machine
from pytest_llmspeed.system.environment import environment_name

LIBRARIES = (
    "numpy",
    "scipy.special",
    "scipy.stats",
    "pytest_llmspeed.client",
    "pytest_llmspeed.quality.probe",
)


class Run:
    """One pytest invocation, or one worker of it."""

    def __init__(self, settings: Settings, backends: Mapping[str, str], folder: Path) -> None:
        self.settings = settings
        self.folder = folder
        self.registry = Registry(backends)
        self.pool = Pool(self.registry)
        self.quality_sets = QualitySets(settings, folder)
        self._store = FolderStore(settings.store_folder)
        self._started = clock.wall()

    @cached_property
    def facts(self) -> RunRecord:
        """The facts of this run, without its tests."""
        here = machine.machine()
        return RunRecord(
            started=self._started.isoformat(),
            run_id=uuid.uuid4().hex[:8],
            job=machine.ci_job(),
            commit=machine.commit(self.folder),
            facts={
                "cpu": here.cpu,
                "cpus": here.cpus,
                "memory_mib": here.memory_mib,
                "system": here.system,
                "arch": here.arch,
                "python": here.python,
            },
            options=self.settings.shown,
        )

    @cached_property
    def results(self) -> Results:
        """The records of this run's tests, and their verdicts."""
        return Results(self.settings, self._store, self.facts, self.pool.not_counted)

    @cached_property
    def output(self) -> Output:
        """The files and lines that this run leaves."""
        return Output(self.settings, self._store, self.folder, self.results)

    @cached_property
    def store_problems(self) -> tuple[str, ...]:
        """The reasons why nothing can be compared with the store; empty if all is well."""
        named = self.settings.origin("store")
        try:
            self._store.check_readable(None if named is None or self.settings.update else named.place)
        except StoreError as error:
            return (str(error),)
        return ()

    @staticmethod
    def load_libraries() -> None:
        """Import what measuring and judging need before an engine starts, or it counts as its memory."""
        for library in LIBRARIES:
            import_module(library)

    def environment_of(self, engine: Engine) -> str:
        """The environment that a session on `engine` belongs to."""
        return environment_name(self.settings.environment, engine.hardware, machine.machine())

    def close(self) -> None:
        """Stop all engines."""
        self.pool.close()
