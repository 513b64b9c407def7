"""The plugin: collect → set up → wrap the call → report → finish. Loads nothing heavy."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import pytest

from pytest_llmspeed.plugin import hookspecs, options, outcome
from pytest_llmspeed.plugin.fixtures import (
    _llmspeed_backend,
    llm_backend,
    llm_backend_options,
    llm_client,
)
from pytest_llmspeed.plugin.state import (
    DISABLED,
    LLM,
    PLUGIN,
    STATE,
    TIMER,
    TestState,
    is_worker,
    state_or_none,
    uses_plugin,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_llmspeed.run.run import Run

__all__ = ["_llmspeed_backend", "llm_backend", "llm_backend_options", "llm_client"]

NARROWING = ("lf", "keyword", "markexpr", "deselect", "ignore", "ignore_glob")
"""Options of pytest that leave tests out."""
COLLECTED = "llmspeed_collected"
"""The key under which a worker reports the tests it collected."""
MARKERS = (
    "llm_backend(name, model=, precision=, **engine_options): the engine that a test runs on",
    "llm_budget(**limits): limits such as ttft_ms=300, tpot_p95_ms=40, throughput_tps=25, error_rate=0",
    "llm_quality(prompts, max_kl=, min_top1=, min_score=, quality_vs=, scorer=): check the answers",
    "llm: set by pytest-llmspeed on each test that uses it; select with -m llm",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hookspecs)


def pytest_llmspeed_backends() -> dict[str, str]:
    from pytest_llmspeed.engines.registry import BUILT_IN

    return BUILT_IN


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    if not is_worker(config):
        options.check(config)
    config.pluginmanager.register(LLMSpeed(config), PLUGIN)


class LLMSpeed:
    """The one object registered for a run: its hooks, and its `Run`, made when a test first needs it."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self._deselected = False
        self._interrupted = False
        self._backends: dict[Path, Mapping[str, str]] = {}
        self._mistakes: list[str] = []
        self._is_plain = False
        self._failures: list[str] = []

    @cached_property
    def run(self) -> Run:
        from pytest_llmspeed.run.run import Run

        return Run(options.read(self.config), {}, self.config.rootpath)

    def backends_of(self, item: pytest.Item) -> Mapping[str, str]:
        """The backends that plugins and the conftests above a test give: name → "module:Class"."""
        folder = item.path.parent
        if folder not in self._backends:
            found: dict[str, str] = {}
            for targets in reversed(item.ihook.pytest_llmspeed_backends(config=self.config)):
                found |= targets
            self._backends[folder] = found
            self.run.registry.learn(found)
        return self._backends[folder]

    @property
    def is_used(self) -> bool:
        """True once a test needed the run."""
        return "run" in self.__dict__

    @property
    def is_full_run(self) -> bool:
        """True if nothing narrows the run, as far as this process knows: no paths, no selection."""
        given = (self.config.getoption(name, None) for name in NARROWING)
        by_paths = self.config.args_source is pytest.Config.ArgsSource.ARGS and not is_worker(self.config)
        return not (by_paths or any(given) or self._deselected)

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self._deselected = self._deselected or bool(items)

    @pytest.hookimpl(trylast=True)
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if uses_plugin(metafunc.definition):
            from pytest_llmspeed.plugin.parametrize import run_on_each_backend

            run_on_each_backend(metafunc, self.run)

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        if uses_plugin(item):
            item.add_marker(LLM)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.config.option.llmspeed_second_look is not None:
            self._keep_those_wanted_again(items)
        ours = [item for item in items if uses_plugin(item)]
        if self.config.option.llmspeed_disable:
            for item in ours:
                item.add_marker(pytest.mark.skip(reason=DISABLED))
        elif ours and self.config.getini("llmspeed_group_by_engine"):
            from pytest_llmspeed.plugin.grouping import grouped_by_engine
            from pytest_llmspeed.plugin.marks import needed_engines

            items[:] = grouped_by_engine(items, needed_engines(ours, self.run))

    def _keep_those_wanted_again(self, items: list[pytest.Item]) -> None:
        """Deselect what the first job has decided."""
        wanted = self.run.results.wanted_again
        others = [item for item in items if item.nodeid not in wanted]
        items[:] = [item for item in items if item.nodeid in wanted]
        if others:
            self.config.hook.pytest_deselected(items=others)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        items = [item for item in session.items if uses_plugin(item)]
        if not items:
            return
        from pytest_llmspeed.plugin.marks import mistakes, state_of
        from pytest_llmspeed.plugin.parametrize import identity_of

        self.run.results.count_selected(sum(state_of(item).plan.comparisons for item in items))
        if self.is_full_run and not session.testsfailed:
            self._note_collected(sorted(map(identity_of, session.items)))
        self._mistakes = mistakes(items)
        if self._mistakes and self._stops_at_mistakes:
            raise pytest.UsageError("\n".join(["pytest-llmspeed cannot run these tests:", *self._mistakes]))

    @property
    def _stops_at_mistakes(self) -> bool:
        """True if wrong marks end the run; else they fail their own tests, in the set-up."""
        option = self.config.option
        return not (is_worker(self.config) or option.collectonly or option.continue_on_collection_errors)

    def _note_collected(self, identities: list[str]) -> None:
        """Keep what was collected; of a worker it goes to the controller, which collects nothing itself."""
        if is_worker(self.config):
            self.config.workeroutput[COLLECTED] = identities  # type: ignore[attr-defined]
        else:
            self.run.output.collected = set(identities)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        identities = getattr(node, "workeroutput", {}).get(COLLECTED)
        if identities and self.is_full_run:
            self._note_collected(identities)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        __tracebackhide__ = True
        if state := state_or_none(item):
            item.stash[STATE] = TestState(state.plan, state.marks, tuple(item.own_markers))
        returned = yield
        if state := state_or_none(item):
            outcome.fail_if_wrong(state)
        return returned

    @pytest.hookimpl(wrapper=True, optionalhook=True)
    def pytest_timeout_set_timer(
        self, item: pytest.Item, settings: object
    ) -> Generator[None, object, object]:
        """Note how pytest-timeout times a test, so that a wait for the device can stop that timer."""
        if uses_plugin(item):
            item.stash[TIMER] = settings
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        __tracebackhide__ = True
        try:
            returned = yield
            outcome.check_quality(item)
        except (KeyboardInterrupt, pytest.exit.Exception):
            outcome.note_interrupted(item)
            raise
        except BaseException:
            outcome.conclude(item, body_passed=False)
            raise
        outcome.conclude(item, body_passed=True)
        outcome.fail_on_problems(item)
        return returned

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        __tracebackhide__ = True
        if call.excinfo is not None and self.is_used and not self.config.getoption("fulltrace", False):
            outcome.show_only_the_users_lines(call.excinfo)
        report = yield
        if call.excinfo is not None:
            outcome.point_at_the_test(report, item, call.excinfo)
        outcome.without_wait(report, item)
        outcome.attach(report, item)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self.is_used or hasattr(report, "llmspeed"):
            each_worker = getattr(self.config.option, "dist", "no") == "each"
            outcome.collect(report, self.run, each_worker=each_worker)

    def pytest_keyboard_interrupt(self) -> None:
        self._interrupted = True

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(
        self, session: pytest.Session, exitstatus: int
    ) -> Generator[None, object, object]:
        """Write reports and baselines; stop engines once the fixtures of an interrupted test have ended."""
        __tracebackhide__ = True
        self._is_plain = not self.is_used  # to write a report makes a run
        if self._has_nothing_to_look_at(exitstatus):
            exitstatus = session.exitstatus = pytest.ExitCode.OK
        try:
            if self._writes:
                complete = outcome.is_complete(exitstatus) and not self._interrupted
                if complete and self.is_used and self.config.option.llmspeed_confirm is not None:
                    exitstatus = session.exitstatus = self._confirmed(exitstatus)
                self._failures += outcome.finish(self.run, complete=complete)
                if self._failures:
                    session.exitstatus = exitstatus or pytest.ExitCode.TESTS_FAILED
            return (yield)
        finally:
            if self.is_used:
                self.run.close()

    def _has_nothing_to_look_at(self, exitstatus: int) -> bool:
        """True if no test ran because the first job left none to this one."""
        none_ran = exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED
        second = self.config.option.llmspeed_second_look is not None and not is_worker(self.config)
        return none_ran and second and not self.run.results.wanted_again

    def _confirmed(self, exitstatus: int) -> int:
        """The exit status once the tests in doubt were measured beside another side."""
        from pytest_llmspeed.plugin import confirming

        exitstatus, self._failures = confirming.confirm(self.run, self.config, exitstatus)
        return exitstatus

    @property
    def _writes(self) -> bool:
        """True if this process writes reports: where no test was measured only those that were asked for."""
        if is_worker(self.config) or self.config.option.collectonly:
            return False
        return self.is_used or options.reports_asked(self.config)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._is_plain and self.config.option.llmspeed_update_baseline:
            options.show_unused(terminalreporter)
        if self.is_used:
            wrong = self._mistakes if self.config.option.collectonly else []
            options.show(self.run, terminalreporter, wrong)
        if self._failures:
            options.count_as_errors(terminalreporter, self._failures)

    def pytest_unconfigure(self) -> None:
        if self.is_used:
            self.run.close()
