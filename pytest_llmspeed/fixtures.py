"""The fixtures that tests ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_llmspeed.edges.engines.base import Engine
    from pytest_llmspeed.measuring.client import LLMClient


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
def llm_backend(request: pytest.FixtureRequest, llm_backend_options: dict[str, Any]) -> Engine:
    """The engine of this test, leased: started if it is not running yet."""
    from pytest_llmspeed.core.errors import LLMSpeedError
    from pytest_llmspeed.marks import state_of
    from pytest_llmspeed.state import run_of

    run, state = run_of(request.config), state_of(request.node)
    problems = list(state.plan.problems)
    if not problems:
        try:
            state.engine = _leased(run, state, llm_backend_options)
            return state.engine
        except LLMSpeedError as error:
            problems.append(str(error))
    pytest.fail("\n".join(problems), pytrace=False)  # outside of the except: the message stands alone


def _leased(run: Any, state: Any, run_time: dict[str, Any]) -> Engine:
    from pytest_llmspeed.app.settings import spec_for
    from pytest_llmspeed.core.errors import SettingsError

    choice = state.plan.choice
    spec = spec_for(run.settings, run.registry, choice.mark, choice.backend, run_time)
    if problems := list(run.registry.problems(spec)):
        raise SettingsError("\n".join(problems))
    engine: Engine = run.pool.lease(spec)
    return engine


@pytest.fixture
def llm_client(request: pytest.FixtureRequest, llm_backend: Engine) -> LLMClient:
    """The instrumented client: every request that it sends until the test's end is measured."""
    from pytest_llmspeed.core.budgets import requests_needed
    from pytest_llmspeed.edges.telemetry.cpu import CPUWatch
    from pytest_llmspeed.marks import state_of
    from pytest_llmspeed.measuring.client import LLMClient
    from pytest_llmspeed.measuring.recorder import Recorder
    from pytest_llmspeed.measuring.rounds import LEAST_ROUNDS
    from pytest_llmspeed.state import run_of

    run, state = run_of(request.config), state_of(request.node)
    state.recorder = Recorder()
    return LLMClient(
        llm_backend,
        run.pool.loop,
        state.recorder,
        lambda label: requests_needed(state.plan.budgets, label, LEAST_ROUNDS),
        CPUWatch() if llm_backend.hardware.is_this_cpu else None,
    )
