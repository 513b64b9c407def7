"""Command-line options and ini settings of the plugin."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_llmspeed.run.run import Run
    from pytest_llmspeed.settings import Settings

STEP_SUMMARY, GITHUB_OUTPUT = "GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"

INI: dict[str, tuple[str, Any, str]] = {
    "backend": ("string", None, "default backend"),
    "model": ("string", None, "model: a hub id, a folder or a .gguf file"),
    "precision": ("string", None, "precision of the model, as in bf16"),
    "url": ("string", None, "address of a server, as in http://127.0.0.1:8000/v1"),
    "store": ("string", None, "folder of the baselines (default .llmspeed/baselines)"),
    "environment": ("string", None, "name of the runner class, which keys baselines instead of the hardware"),
    "budget": ("linelist", [], "budgets for all tests, one line per mark, as in ttft_ms=300 tpot_ms=40"),
    "json_text": ("bool", True, "include the answers in the JSON report"),
    "quality": ("string", None, "default prompt file for quality checks"),
    "group_by_engine": ("bool", True, "run the tests of one engine together, so that few engines start"),
    "lock_timeout_s": ("float", 1800.0, "how long to wait for another measurement on the same device"),
    "busy_share": ("float", 0.1, "a request that lost more than this share of processor time is disturbed"),
    "store_text": ("bool", True, "store the answers of quality checks, to compare later ones with"),
}


def add(parser: pytest.Parser) -> None:
    """Declare the options and ini settings."""
    group = parser.getgroup("llmspeed", "speed of LLM inference")
    value = group.addoption
    value(
        "--llmspeed-backend",
        action="append",
        default=[],
        metavar="NAME",
        help="run on this backend (repeat it to run each test once per backend)",
    )
    value("--llmspeed-model", metavar="MODEL", help="hub id, folder or .gguf file")
    value("--llmspeed-precision", metavar="NAME", help="precision of the model, as in bf16")
    value("--llmspeed-url", metavar="URL", help="address of a server, as in http://127.0.0.1:8000/v1")
    value(
        "--llmspeed-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the engine, before those of marks, as in max_num_seqs=64 (repeatable)",
    )
    value("--llmspeed-store", metavar="DIR", help="folder of the baselines")
    value(
        "--llmspeed-update-baseline",
        action="store_true",
        help="store this run's sessions as baselines",
    )
    value(
        "--llmspeed-accept",
        metavar="REASON",
        help="when updating: accept slower tests, and say why",
    )
    value("--llmspeed-require-baseline", action="store_true", help="fail tests that have no baseline")
    value("--llmspeed-strict", action="store_true", help="fail inconclusive and suspect tests too")
    value(
        "--llmspeed-defer",
        metavar="FILE",
        help="first job: leave what one job cannot decide to a second one, and name it in this file",
    )
    value(
        "--llmspeed-second-look",
        metavar="FILE",
        help="second job: run the tests that a first job deferred, and decide by both",
    )
    value(
        "--llmspeed-confirm",
        metavar="SIDE",
        help="after the run, measure what became slower or is undecided beside this side, as in ref=v1.4",
    )
    value(
        "--llmspeed-rounds",
        metavar="N",
        type=int,
        help="smoke run: N rounds per measurement, nothing compared, nothing stored",
    )
    value("--llmspeed-disable", action="store_true", help="skip the tests that use an LLM; start nothing")
    value("--llmspeed-json", metavar="FILE", help="write a JSON report")
    value("--llmspeed-report", metavar="FILE.html", help="write a report to look at in a browser")
    value("--llmspeed-markdown", metavar="FILE", help="write a markdown report")
    for name, (kind, default, about) in INI.items():
        parser.addini(f"llmspeed_{name}", about, type=kind, default=default)  # type: ignore[arg-type]


def check(config: pytest.Config) -> None:
    """Raise `UsageError` for options and ini values that are wrong, or cannot be carried out."""
    given = config.option
    configured = _ini(config)
    _check_smoke_run(given)
    if given.llmspeed_report is not None:
        _check_settings(read(config))
    if any((given.llmspeed_option, given.llmspeed_confirm, given.llmspeed_defer, given.llmspeed_second_look)):
        _check_settings(read(config))
    if given.llmspeed_second_look is not None:
        _check_first_job(read(config))
    if given.llmspeed_confirm is not None:
        from pytest_llmspeed.plugin import confirming

        confirming.check(given.llmspeed_confirm, config.rootpath)
    if given.llmspeed_update_baseline or given.llmspeed_accept is not None:
        _check_update(config)
    elif given.llmspeed_store is not None:
        _check_store(read(config))
    elif any(configured[name] != default for name, (_, default, _) in INI.items()):
        _check_settings(read(config))
    if reports_asked(config) and not given.collectonly:
        _check_reports(read(config))


def _check_settings(settings: Settings) -> None:
    if problems := settings.problems():
        raise pytest.UsageError("\n".join(problems))


def _check_reports(settings: Settings) -> None:
    """Raise `UsageError` for a report that could not be written."""
    from pytest_llmspeed.errors import StoreError
    from pytest_llmspeed.reports.files import check_writable

    try:
        for report in (settings.json_file, settings.markdown_file, settings.html_file, settings.defer_file):
            if report is not None:
                check_writable(report)
    except StoreError as error:
        raise pytest.UsageError(str(error)) from error


def _check_first_job(settings: Settings) -> None:
    """Raise `UsageError` if the file of the first job cannot be read."""
    from pytest_llmspeed.baselines.run_file import read_run_file
    from pytest_llmspeed.errors import StoreError

    assert settings.second_look_file is not None
    try:
        read_run_file(settings.second_look_file)
    except StoreError as error:
        raise pytest.UsageError(f"--llmspeed-second-look: {error}") from error


def _check_store(settings: Settings) -> None:
    """Raise `UsageError` for a store on the command line that is not a readable folder."""
    from pytest_llmspeed.baselines.store import FolderStore
    from pytest_llmspeed.errors import StoreError

    try:
        FolderStore(settings.store_folder).check_readable("--llmspeed-store")
    except StoreError as error:
        raise pytest.UsageError(str(error)) from error


def _check_update(config: pytest.Config) -> None:
    from pytest_llmspeed.baselines.store import FolderStore
    from pytest_llmspeed.errors import StoreError

    given, settings = config.option, read(config)
    if problems := settings.problems():
        raise pytest.UsageError("\n".join(problems))
    if given.collectonly:
        raise pytest.UsageError(
            "--llmspeed-update-baseline stores what tests measured; with --collect-only none runs"
        )
    if getattr(given, "dist", "no") == "each":
        raise pytest.UsageError(
            "--llmspeed-update-baseline stores one session of each test, and with --dist each every worker "
            "measures all of them: store without --dist each"
        )
    try:
        FolderStore(settings.store_folder).check_writable()
    except StoreError as error:
        raise pytest.UsageError(str(error)) from error


def _check_smoke_run(given: argparse.Namespace) -> None:
    """Raise `UsageError` for a run that is to store, but measures too little for it or nothing."""
    rounds = given.llmspeed_rounds
    if rounds is not None and rounds < 1:
        raise pytest.UsageError(f"--llmspeed-rounds={rounds}: at least one round is needed")
    if given.llmspeed_update_baseline and (rounds is not None or given.llmspeed_disable):
        which = "--llmspeed-disable" if given.llmspeed_disable else f"--llmspeed-rounds={rounds}"
        raise pytest.UsageError(
            f"--llmspeed-update-baseline stores whole measurements, and {which} makes none: leave one out"
        )


def reports_asked(config: pytest.Config) -> bool:
    """True if a report is to be written as a file, whatever ran."""
    option = config.option
    return any(
        (option.llmspeed_json, option.llmspeed_markdown, option.llmspeed_report, option.llmspeed_defer)
    )


def _ini(config: pytest.Config) -> dict[str, Any]:
    """The ini values by name; raises `UsageError` for one of a wrong type."""
    values = {}
    for name, (kind, _, _) in INI.items():
        try:
            values[name] = config.getini(f"llmspeed_{name}")
        except (TypeError, ValueError, pytest.UsageError) as error:
            wanted = {"bool": "true or false", "string": "a text"}.get(kind, kind)
            place = config.inipath.name if config.inipath else "the configuration"
            raise pytest.UsageError(f"llmspeed_{name} in {place} takes {wanted}: {error}") from None
    return values


def show(run: Run, terminal: pytest.TerminalReporter, mistakes: Sequence[str] = ()) -> None:
    """Write the closing section, if there is anything to say."""
    from pytest_llmspeed.text.harmless import harmless_lines

    lines = list(run.output.closing_section(verbose=terminal.verbosity > 0))
    if mistakes:
        lines = ["These tests cannot run:", *mistakes, *lines]
    if lines:
        terminal.section("llmspeed")
        for line in lines:
            terminal.write_line(harmless_lines(line))


def count_as_errors(terminal: pytest.TerminalReporter, failures: Sequence[str]) -> None:
    """Have pytest's last line count what failed the run although no test may have failed.

    It is too late for a report that other plugins see: JUnit has been written.
    """
    from pytest_llmspeed.text.harmless import harmless_lines

    for failure in failures:
        report = pytest.TestReport(
            nodeid="pytest-llmspeed",
            location=("", None, ""),
            keywords={},
            outcome="failed",
            longrepr=harmless_lines(failure),
            when="teardown",
        )
        terminal.stats.setdefault("error", []).append(report)


def show_unused(terminal: pytest.TerminalReporter) -> None:
    """Write that an update had nothing to store: none of the tests uses the plugin."""
    from pytest_llmspeed.messages import store

    terminal.section("llmspeed")
    terminal.write_line(store.update_outcome(0, {}))


def read(config: pytest.Config) -> Settings:
    """Return the settings of a run."""
    from pytest_llmspeed.settings import Settings

    given = config.option
    return Settings(
        backends=tuple(dict.fromkeys(given.llmspeed_backend)),
        model=given.llmspeed_model,
        precision=given.llmspeed_precision,
        url=given.llmspeed_url,
        options=tuple(given.llmspeed_option),
        store=given.llmspeed_store,
        update=given.llmspeed_update_baseline,
        accept=given.llmspeed_accept,
        require_baseline=given.llmspeed_require_baseline,
        strict=given.llmspeed_strict,
        json=given.llmspeed_json,
        markdown=given.llmspeed_markdown,
        report=given.llmspeed_report,
        confirm=given.llmspeed_confirm,
        defer=given.llmspeed_defer,
        second_look=given.llmspeed_second_look,
        rounds=given.llmspeed_rounds,
        step_summary=os.environ.get(STEP_SUMMARY) or None,
        github_output=os.environ.get(GITHUB_OUTPUT) or None,
        ini=_ini(config),
        cwd=Path(config.invocation_params.dir),
        ini_folder=config.inipath.parent if config.inipath else config.rootpath,
    )
