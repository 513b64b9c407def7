"""The fixtures that tests ask for."""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pytest_llmspeed.client import LLMClient
    from pytest_llmspeed.engines.base import Engine, EngineSpec
    from pytest_llmspeed.plugin.state import TestState
    from pytest_llmspeed.quality.answers import CheckedSet
    from pytest_llmspeed.run.run import Run
    from pytest_llmspeed.system.cpu import CPUWatch
    from pytest_llmspeed.system.lock import DeviceLock


@pytest.fixture(scope="session")
def llm_backend_options() -> dict[str, Any]:
    """Engine options known only at run time, such as the URL of a server that a fixture started.

    Override it in a conftest. Options that only other backends take are left aside; a mark's own
    options win over these.
    """
    return {}


@pytest.fixture
def _llmspeed_backend(request: pytest.FixtureRequest) -> Any:
    """The one of several backends that this run of the test is for."""
    return request.param


@pytest.fixture
def llm_backend(request: pytest.FixtureRequest, llm_backend_options: dict[str, Any]) -> Iterator[Engine]:
    """The engine of this test, leased: started if it is not running yet.

    Until the test's end no other process measures on the same device, or the same server.
    """
    from pytest_llmspeed.errors import LLMSpeedError, hides_our_frames
    from pytest_llmspeed.plugin.marks import state_of
    from pytest_llmspeed.plugin.state import DISABLED, run_of
    from pytest_llmspeed.text.harmless import harmless_lines

    __tracebackhide__ = hides_our_frames
    if request.config.option.llmspeed_disable:
        pytest.skip(DISABLED)
    run, state = run_of(request.config), state_of(request.node)
    problems, lock = list(state.plan.problems), None
    try:
        if not problems:
            try:
                spec = _spec(run, state, llm_backend_options)
                run.load_libraries()
                lock = _locked(run, spec, request, state)
                state.engine, state.leased = run.pool.lease(spec), state.plan.choice
                state.place = spec.backend, run.environment_of(state.engine)
            except LLMSpeedError as error:
                problems.append(str(error))
        if state.engine is None:  # outside of the except: the message stands alone
            pytest.fail(harmless_lines("\n".join(problems)), pytrace=False)
        yield state.engine
    finally:
        if lock is not None:
            lock.release()


def _spec(run: Run, state: TestState, run_time: dict[str, Any]) -> EngineSpec:
    from pytest_llmspeed.errors import SettingsError
    from pytest_llmspeed.settings import spec_for

    choice = state.plan.choice
    spec = spec_for(run.settings, run.registry, choice.mark, choice.backend, run_time)
    if problems := list(run.registry.problems(spec)) or run.registry.unstartable(spec):
        raise SettingsError("\n".join(problems))
    return spec


def _locked(
    run: Run, spec: EngineSpec, request: pytest.FixtureRequest, state: TestState
) -> DeviceLock | None:
    """Return the lock on what the engine is measured on, taken; None where nothing could be disturbed.

    The wait for it is not the test's time: it counts neither for pytest-timeout nor as set-up.
    """
    from time import monotonic

    from pytest_llmspeed.plugin.telling import tell_now
    from pytest_llmspeed.system.lock import DeviceLock

    device = run.registry.measured_on(spec)
    if device is None:
        return None
    lock = DeviceLock(device, owner=request.node.nodeid, limit_s=run.settings.lock_timeout_s)
    if not lock.try_acquire():
        with _timer_stopped(request.node):
            started_s = monotonic()
            try:
                lock.acquire(on_wait=partial(tell_now, request.config))
            finally:
                state.waited_s = monotonic() - started_s
    return lock


@contextmanager
def _timer_stopped(item: pytest.Item) -> Iterator[None]:
    """Stop the timer that pytest-timeout runs for a test, if it does, and start it again at the end."""
    from pytest_llmspeed.plugin.state import TIMER

    settings = item.stash.get(TIMER, None)
    if settings is None:
        yield
        return
    item.config.hook.pytest_timeout_cancel_timer(item=item)
    try:
        yield
    finally:
        item.config.hook.pytest_timeout_set_timer(item=item, settings=settings)


@pytest.fixture
def llm_client(request: pytest.FixtureRequest, llm_backend: Engine) -> Iterator[LLMClient]:
    """The instrumented client: every request that it sends until the end of the test's body is measured."""
    from pytest_llmspeed.client import LLMClient
    from pytest_llmspeed.engines.base import Engine
    from pytest_llmspeed.plugin.marks import state_of
    from pytest_llmspeed.plugin.outcome import fail_if_wrong
    from pytest_llmspeed.plugin.parametrize import identity_of
    from pytest_llmspeed.plugin.state import run_of
    from pytest_llmspeed.quality.probe import Probe
    from pytest_llmspeed.recording.recorder import Recorder
    from pytest_llmspeed.recording.turns import TestTurns, turns_of_this_process

    run, state = run_of(request.config), state_of(request.node)
    fail_if_wrong(state)
    if not isinstance(llm_backend, Engine):
        pytest.fail(
            f"llm_client needs an engine, but the llm_backend fixture of this test is not the plugin's and "
            f"returns {llm_backend!r:.80}; rename that fixture or parameter, and choose engines with "
            f'@pytest.mark.llm_backend("…")',
            pytrace=False,
        )
    identity, folder = identity_of(request.node), request.node.path.parent
    environment, history = run.environment_of(llm_backend), run.results.history
    probe = Probe(
        llm_backend,
        run.pool.loop,
        lambda plan: history.answers(environment, identity, llm_backend.backend, plan),
    )

    def quality_check(prompts: str | Path | None, asked: Mapping[str, Any]) -> CheckedSet:
        with run.pool.not_counted():
            plan = run.quality_sets.plan(prompts, folder, asked)
        with recorder.turn():
            return probe.check(plan)

    turns = TestTurns(turns_of_this_process(), identity)
    recorder = Recorder(_cpu_watch(llm_backend, run.settings.busy_share), turns)
    state.recorder, state.probe = recorder, probe
    client = LLMClient(
        llm_backend,
        run.pool.loop,
        recorder,
        lambda: state_of(request.node).budgets,
        smoke=run.settings.rounds,
        quality_check=quality_check,
        not_counted=run.pool.not_counted,
    )
    yield client
    client.close()


def _cpu_watch(engine: Engine, busy_share: float) -> CPUWatch | None:
    """Return what tells the processor time that the engine loses to others; None where it cannot be told."""
    from pytest_llmspeed.system.cpu import CPUWatch

    root = engine.root_process
    if root is None:
        return None
    return CPUWatch(None if root == os.getpid() else root, busy_share)
