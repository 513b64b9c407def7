"""`openai` SDK clients in tests: applications under test, blocking and in the loops of other plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from helpers.project import shows
from helpers.servers import Play, ReplayServer, chunk, tokens

if TYPE_CHECKING:
    from helpers.project import Project

APPLICATION = """
    import asyncio

    import pytest

    MESSAGES = [{"role": "user", "content": "hi"}]

    def ask(client, **more):
        stream = client.chat.completions.create(
            model="gpt-9", messages=MESSAGES, max_tokens=4, stream=True, **more
        )
        return "".join(chunk.choices[0].delta.content or "" for chunk in stream)

    async def ask_async(client):
        stream = await client.chat.completions.create(
            model="gpt-9", messages=MESSAGES, max_tokens=4, stream=True
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    """


def requests_of(project: Project, name: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = project.test(name)["measurement"]["requests"]
    return found


def test_an_application_is_measured_budgeted_and_compared(project: Project) -> None:
    """Its calls in a repeated body are held together by their place; slower ones fail the test."""
    project.write(
        APPLICATION
        + """
    @pytest.mark.llm_budget(ttft_ms=300, tpot_ms=50)
    def test_it(llm_client):
        for _ in llm_client.rounds(10, warmup=2):
            assert ask(llm_client.openai) == "scripted answer w2 w3 "
            ask(llm_client.openai)
    """
    )
    project.record(5)
    project.script(factor=1.0, seed=1)
    project.run().assert_outcomes(passed=1)
    assert {request["stratum"] for request in requests_of(project)} == {"call 1", "call 2"}
    assert {request["call"] for request in requests_of(project)} == {"sdk"}
    assert project.test()["measurement"]["warmup_requests"] == 4
    project.script(factor=1.6)
    result = project.run()
    result.assert_outcomes(failed=1)
    assert project.verdicts()["ttft_ms"] == "slower"


def test_a_missed_budget_fails_the_test(project: Project) -> None:
    """As of our own calls."""
    project.write(
        APPLICATION
        + """
    @pytest.mark.llm_budget(ttft_ms=50)
    def test_it(llm_client): ask(llm_client.openai)
    """
    )
    result = project.run()
    result.assert_outcomes(failed=1)
    shows(result, "ttft_ms")


@pytest.mark.parametrize(("budget", "outcome"), [("ttft_ms=300", "failed"), ("error_rate=0.6", "passed")])
def test_failed_calls_fail_the_test_unless_allowed(project: Project, budget: str, outcome: str) -> None:
    """Also where the application catches them."""
    project.script(fail_every=2)
    project.write(
        APPLICATION
        + f"""
    import openai

    @pytest.mark.llm_budget({budget})
    def test_it(llm_client):
        for _ in range(4):
            try: ask(llm_client.openai)
            except openai.InternalServerError: pass
    """
    )
    result = project.run()
    result.assert_outcomes(**{outcome: 1})
    if outcome == "failed":
        shows(result, "2 of 4 requests failed, the last with: scripted failure")


def test_calls_that_were_all_at_once_are_told_to_be_undecided(project: Project) -> None:
    """Nothing that could be compared is left: that is said, not passed over."""
    project.write(
        APPLICATION
        + """
    @pytest.mark.asyncio
    async def test_it(llm_client):
        client = llm_client.async_openai
        await asyncio.gather(ask_async(client), ask_async(client))
    """
    )
    with ReplayServer(lambda _: Play(tokens(4, 50, 10))) as server:
        result = project.run("--llmspeed-backend=openai", f"--llmspeed-url={server.url}")
    result.assert_outcomes(passed=1)
    shows(result, "ttft_ms is undecided: all requests overlapped with others")


def test_a_stream_left_unread_is_recorded_as_cancelled(project: Project) -> None:
    """The measurement ends with the body; what was under way is cut off there, and is no failure."""
    pieces = [(5.0, chunk({"content": "a"}))]
    with ReplayServer(lambda _: Play(pieces, ending="hang")) as server:
        project.write(
            APPLICATION
            + f"""
    @pytest.mark.llm_backend("openai", url={server.url!r})
    def test_it(llm_client, request):
        request.config.kept = stream = llm_client.openai.chat.completions.create(
            model="m", messages=MESSAGES, stream=True
        )
        next(stream)
    """
        )
        project.run().assert_outcomes(passed=1)
    (request,) = requests_of(project)
    assert (request["error"], request["text"], request["e2e_ms"]) == (None, "a", None)
    assert "cancelled" in request["flags"]


ASYNC_TESTS = {
    "asyncio": """
    @pytest.mark.asyncio
    @pytest.mark.parametrize("number", range(3))
    async def test_it(llm_client, number):
        client = llm_client.async_openai
        assert await ask_async(client) == ANSWER
        assert await asyncio.gather(*(ask_async(client) for _ in range(4))) == [ANSWER] * 4
        assert ask(llm_client.openai) == ANSWER
    """,
    "anyio": """
    @pytest.fixture
    def anyio_backend(): return "asyncio"

    @pytest.fixture
    async def application(llm_client): return llm_client.async_openai

    @pytest.mark.anyio
    @pytest.mark.parametrize("number", range(3))
    async def test_it(application, llm_client, number):
        import anyio

        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(ask_async, application)
        with anyio.move_on_after(20):
            assert await ask_async(application) == ANSWER
            assert await anyio.to_thread.run_sync(ask, llm_client.openai) == ANSWER
    """,
}


@pytest.mark.parametrize("where", ["in process", "on a server"])
@pytest.mark.parametrize("plugin", ["asyncio", "anyio"])
def test_coroutines_in_the_loops_of_other_plugins(project: Project, plugin: str, where: str) -> None:
    """Each test has a loop of its own; no warning is left behind by any, in a suite that forbids them."""
    with ReplayServer(lambda _: Play(tokens(4, 5, 5))) as server:
        answer = "scripted answer w2 w3 " if where == "in process" else "w0 w1 w2 w3 "
        project.write(f"{APPLICATION}\n    ANSWER = {answer!r}\n{ASYNC_TESTS[plugin]}")
        remote = (
            () if where == "in process" else ("--llmspeed-backend=openai", f"--llmspeed-url={server.url}")
        )
        result = project.run("-Werror", *remote)
    result.assert_outcomes(passed=3)
    assert len(requests_of(project, "[2]")) == 6
    assert all(request["error"] is None for request in requests_of(project, "[2]"))


def test_a_coroutine_that_stops_reading_leaves_no_warning(project: Project) -> None:
    """Its connection is closed with its loop, and the request is cancelled."""
    pieces = [(5.0, chunk({"content": "a"}))]
    with ReplayServer(lambda _: Play(pieces, ending="hang")) as server:
        project.write(
            APPLICATION
            + """
    @pytest.mark.asyncio
    @pytest.mark.parametrize("number", range(2))
    async def test_it(llm_client, number):
        stream = await llm_client.async_openai.chat.completions.create(
            model="m", messages=MESSAGES, stream=True
        )
        async for _ in stream:
            break
    """
        )
        arguments = ("--llmspeed-backend=openai", f"--llmspeed-url={server.url}")
        result = project.pytester.runpytest_subprocess("-Werror", "--llmspeed-json=report.json", *arguments)
    result.assert_outcomes(passed=2)
    assert "cancelled" in requests_of(project, "[1]")[0]["flags"]


def test_a_real_engine_streams_to_an_application(project: Project) -> None:
    """The embedded one, under a blocking and an async application."""
    project.write(
        APPLICATION
        + """
    @pytest.mark.asyncio
    @pytest.mark.llm_backend("tiny")
    @pytest.mark.llm_budget(ttft_ms=20_000, tpot_ms=20_000)
    async def test_it(llm_client):
        assert ask(llm_client.openai, temperature=0)
        assert await ask_async(llm_client.async_openai)
    """
    )
    result = project.pytester.runpytest_subprocess("-Werror", "--llmspeed-json=report.json")
    result.assert_outcomes(passed=1)
    assert [request["output_tokens"] for request in requests_of(project)] == [4, 4]
    assert all(request["tpot_ms"] > 0 for request in requests_of(project))
