"""What a run writes and says at its end: baselines, reports, the step summary, the closing section."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from pytest_llmspeed.baselines import update
from pytest_llmspeed.baselines.store import FolderStore
from pytest_llmspeed.errors import StoreError
from pytest_llmspeed.judging.deferring import is_deferred
from pytest_llmspeed.messages import run as run_messages
from pytest_llmspeed.messages import store
from pytest_llmspeed.messages.confirming import second_look
from pytest_llmspeed.records.record import run_to_builtins
from pytest_llmspeed.reports.files import append_lines, write_lines, write_report
from pytest_llmspeed.reports.markdown import markdown
from pytest_llmspeed.reports.terminal import closing_section
from pytest_llmspeed.run.results import Results
from pytest_llmspeed.settings import Settings


class Output:
    """The files and lines that a run leaves."""

    def __init__(self, settings: Settings, folder_store: FolderStore, folder: Path, results: Results) -> None:
        self._settings = settings
        self._store = folder_store
        self._folder = folder
        self._results = results
        self.collected: set[str] | None = None
        self.stored_files: list[Path] = []
        self._write_problems: list[str] = []
        self._not_stored: str | None = None

    def write(self, *, may_store: bool) -> list[str]:
        """Write baselines, if asked for and allowed, and the reports; return a sentence on each that failed.

        The GitHub step summary is best effort: failing to write it is reported, not fatal.
        """
        if self._settings.update:
            self._not_stored = self._what_is_not_stored() if may_store else store.update_stopped()
        writers = [self._write_baselines] if self._settings.update and may_store else []
        writers += [self._write_json, self._write_markdown, self._write_html, self._write_deferred]
        for writer in writers:
            self._try(writer)
        failures = list(self._write_problems)
        self._try(self._add_to_step_summary)
        return failures

    def _what_is_not_stored(self) -> str | None:
        """The line on an update that stores less than all of its tests, None if it stores them all."""
        refused = update.refused(self._results.finished)
        if self._results.skipped:
            refused["skipped"] = sorted(self._results.skipped | set(refused.get("skipped", ())))
        stored = len(self._results.records.keys() - {test for tests in refused.values() for test in tests})
        return store.update_outcome(stored, refused) if refused or not stored else None

    def _try(self, writer: Callable[[], None]) -> None:
        """Write something; if that fails, keep the reason for the reports."""
        try:
            writer()
        except StoreError as error:
            self._write_problems.append(str(error))

    def _write_baselines(self) -> None:
        self.stored_files = update.write(update.plan(self._results.finished), self._store)

    def _write_json(self) -> None:
        if path := self._settings.json_file:
            write_report(path, run_to_builtins(self._results.finished, text=self._settings.json_text))

    def _write_markdown(self) -> None:
        if path := self._settings.markdown_file:
            write_lines(path, self.markdown())

    def _write_html(self) -> None:
        if path := self._settings.html_file:
            from pytest_llmspeed.reports.html.page import html_report

            run, stored = self._results.finished, self._results.stored_sides()
            write_lines(path, [html_report(run, stored, self._problems)])

    def _write_deferred(self) -> None:
        """Write the tests that want a second look, and tell GitHub whether there are any."""
        path = self._settings.defer_file
        if path is None:
            return
        run = self._results.finished
        waiting = tuple(filter(is_deferred, run.tests))
        write_report(path, run_to_builtins(replace(run, tests=waiting, suite=None), text=False))
        if output := self._settings.github_output:
            append_lines(self._folder / output, [f"second_look={str(bool(waiting)).lower()}"])

    def _add_to_step_summary(self) -> None:
        if self._results.records and self._settings.step_summary:
            append_lines(self._folder / self._settings.step_summary, ["", *self.markdown()])

    def markdown(self) -> Iterator[str]:
        """The lines of the markdown report."""
        return markdown(
            self._results.finished.tests,
            suite=self._results.suite,
            stored=self.stored_files,
            problems=self._problems,
        )

    def closing_section(self, *, verbose: bool) -> Iterator[str]:
        """The lines of the closing section; none where no test was measured."""
        return closing_section(
            self._results.finished.tests,
            suite=self._results.suite,
            verbose=verbose,
            stored=self.stored_files,
            problems=self._problems,
        )

    @property
    def _problems(self) -> list[str]:
        """Sentences on files that could not be read or written, and on stored tests that are gone."""
        sentences = [store.gone(lost)] if (lost := self._gone()) else []
        if self.stored_files and (repeats := self._results.repeats()):
            sentences.append(run_messages.same_job(repeats, self._results.facts.job))
        if self._settings.defer is not None:
            waiting = [test.nodeid for test in self._results.finished.tests if is_deferred(test)]
            sentences.append(second_look(waiting, self._settings.defer))
        if self._settings.rounds is not None and self._results.records:
            sentences.append(run_messages.smoke_run(self._settings.rounds))
        untold = [self._not_stored] if self._not_stored and not self._write_problems else []
        return [*self._results.history.problems, *self._write_problems, *untold, *sentences]

    def _gone(self) -> list[str]:
        """The stored tests that no longer exist; of a file that was not looked into nothing is known."""
        collected = self.collected or set()
        files = {identity.partition("::")[0] for identity in collected}
        lost = ((identity, identity.partition("::")[0]) for identity in self._results.history.gone(collected))
        return [
            test for test, file in lost if collected and (file in files or not (self._folder / file).exists())
        ]
