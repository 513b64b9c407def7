"""`--llmspeed-confirm`: after a run, tests in doubt are measured beside another side."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_llmspeed.experiments import EXPERIMENT
from pytest_llmspeed.plugin.telling import tell_now

if TYPE_CHECKING:
    from pytest_llmspeed.experiments.confirm import ThisRun
    from pytest_llmspeed.experiments.side import Side
    from pytest_llmspeed.run.run import Run
    from pytest_llmspeed.settings import Settings


def confirm(run: Run, config: pytest.Config, exitstatus: int) -> tuple[int, list[str]]:
    """Replace the records of tests in doubt.

    Return the exit status of the run without what was cleared, and a sentence for each test that passed and
    was found slower since. A run that an experiment has started confirms nothing.
    """
    if EXPERIMENT in os.environ:
        return exitstatus, []
    from pytest_llmspeed.experiments.confirm import confirmation
    from pytest_llmspeed.experiments.side import Side

    results = run.results
    run.close()  # the engines of this run would be in the way
    before = dict(results.records)
    after = confirmation(
        before,
        Side.parse_text(run.settings.confirm or ""),
        _this_run(config, run.settings),
        lambda line: tell_now(config, f"llmspeed: {line}"),
    )
    results.records |= after
    cleared = {name for name, record in after.items() if before[name].problems and not record.problems}
    others = {*results.failed_bodies, *results.failed} - cleared
    if exitstatus == pytest.ExitCode.TESTS_FAILED and cleared and not others:
        exitstatus = pytest.ExitCode.OK
    newly_failed = (record for record in after.values() if record.problems and record.outcome == "passed")
    return exitstatus, [f"{record.nodeid}: {record.problems[0]}" for record in newly_failed]


def check(text: str, folder: Path) -> None:
    """Raise `UsageError` for a side that is wrong, or a revision that is not there: not after an hour."""
    from pytest_llmspeed.errors import LLMSpeedError
    from pytest_llmspeed.experiments.checkouts import Repository
    from pytest_llmspeed.experiments.side import Side

    try:
        side = Side.parse_text(text)
        if side.ref is not None:
            Repository.around(folder).commit(side.ref)
    except LLMSpeedError as error:
        raise pytest.UsageError(f"--llmspeed-confirm: {error}") from error


def _this_run(config: pytest.Config, settings: Settings) -> ThisRun:
    from pytest_llmspeed.experiments.confirm import ThisRun

    return ThisRun(_settings_of(settings), tuple(_arguments(config)), config.rootpath)


def _settings_of(settings: Settings) -> Side:
    """The settings of this run's command line, as a side has them."""
    from pytest_llmspeed.experiments.side import Side

    named = {"model": settings.model, "precision": settings.precision, "url": settings.url}
    backend = {"backend": settings.backends[0]} if len(settings.backends) == 1 else {}
    options = dict(word.split("=", 1) for word in settings.options)
    return Side(
        settings={**backend, **{key: value for key, value in named.items() if value}}, options=options
    )


def _arguments(config: pytest.Config) -> list[str]:
    """What the same tests need of this run's command line: its plugins, its configuration."""
    option = config.option
    plugins = [word for plugin in option.plugins for word in ("-p", plugin)]
    overrides = [word for override in option.override_ini or () for word in ("-o", override)]
    inifile = ["-c", os.path.relpath(config.inipath, config.rootpath)] if config.inipath else []
    several = option.llmspeed_backend if len(option.llmspeed_backend) > 1 else []
    backends = [f"--llmspeed-backend={name}" for name in several]
    return [*plugins, *overrides, *inifile, "--rootdir=.", *backends]
