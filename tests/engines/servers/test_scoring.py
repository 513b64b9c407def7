"""Scores of given tokens from a server, as vLLM's gives them; what cannot give them is passed over aloud."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from math import log
from typing import TYPE_CHECKING, Any

import pytest
from helpers.project import shows
from helpers.servers import Play, ReplayServer

from pytest_llmspeed import EngineSpec, GenerationError, Request
from pytest_llmspeed.engines.servers._openai import OpenAIEngine
from pytest_llmspeed.engines.servers._server import VLLMServer
from pytest_llmspeed.system.event_loop import LoopThread

if TYPE_CHECKING:
    from helpers.stage import Stage

CHECK = """def test_it(self, llm_client):
                    llm_client.measure('hi', max_tokens=8, rounds=5)
                    llm_client.check_quality('prompts.jsonl')"""
BEST, OTHER = log(0.998), log(0.001)


@pytest.fixture(autouse=True)
def three_prompts(stage: Stage) -> None:
    rows = ({"prompt": word, "expect": {"contains": "w1"}} for word in ("one", "two", "three"))
    (stage.project.path / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    loop = LoopThread()
    yield loop
    loop.close()


@pytest.fixture
def server(stage: Stage, loop: LoopThread, monkeypatch: pytest.MonkeyPatch) -> Iterator[VLLMServer]:
    """A server that stands in for vLLM's."""
    monkeypatch.chdir(stage.project.path)
    engine = VLLMServer.start(EngineSpec.of("vllm-server", "m", None, {"executable": stage.program("vllm")}))
    yield engine
    loop.run(engine.close())


@contextmanager
def by_url(loop: LoopThread, url: str) -> Iterator[OpenAIEngine]:
    """An engine that knows the address alone."""
    engine = OpenAIEngine.start(EngineSpec.of("openai", None, None, {"url": url}))
    yield engine
    loop.run(engine.close())


def said(stage: Stage, rung: str) -> str:
    (found,) = stage.project.test()["quality"]["sets"]
    return next(each["sentence"] for each in found["rungs"] if each["rung"] == rung)


def check(stage: Stage, *arguments: str, backend: str = "vllm", **options: Any) -> pytest.RunResult:
    program = stage.program(backend)
    return stage.run(f"{backend}-server", CHECK, *arguments, executable=program, **options)


def test_a_check_on_the_server_of_vllm_climbs_every_rung(stage: Stage) -> None:
    """The stored tokens are scored again, three requests at once are company."""
    check(stage, "--llmspeed-update-baseline").assert_outcomes(passed=1)
    check(stage).assert_outcomes(passed=1)
    assert said(stage, "log-probabilities").startswith("over 15 stored tokens KL ")
    assert said(stage, "log-probabilities").endswith("top-1 agreement 100.0%")
    assert said(stage, "self-consistency").startswith("3 of 3 answers repeated exactly, 3 alongside up")
    assert said(stage, "divergence") == "3 of 3 answers unchanged"


def test_only_the_check_asks_for_token_ids(stage: Stage) -> None:
    """What is measured is sent as ever."""
    check(stage).assert_outcomes(passed=1)
    asking = [body for body in stage.noted("body") if "return_token_ids" in body]
    assert {body["messages"][0]["content"] for body in asking} == {"one", "two", "three"}


@pytest.mark.parametrize(("backend", "fault"), [("vllm", "no tokenizer"), ("sglang", "")])
def test_a_server_that_cannot_score_is_passed_over_aloud(stage: Stage, backend: str, fault: str) -> None:
    """One of vLLM behind something that hides its tokenizer, and one of another engine."""
    stage.fault(fault)
    result = check(stage, backend=backend)
    result.assert_outcomes(passed=1)
    shows(result, "check 3 (log-probabilities) is skipped: this backend cannot score given tokens")


def test_scores_are_those_that_the_server_lists(loop: LoopThread, server: VLLMServer) -> None:
    """Of tokens that are expected, and of one that is not; the likeliest first, without that one."""
    found = loop.run(server.score(Request("one"), (100, 7, 102), 2))
    assert found.token_ids == (100, 7, 102)
    assert found.logprobs == pytest.approx((BEST, log(0.0001), BEST))
    assert found.top[1] == ((101, pytest.approx(BEST)), (102, pytest.approx(OTHER)))


def test_the_same_server_scores_by_its_url(
    loop: LoopThread, server: VLLMServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says in its list of models what it is."""
    monkeypatch.setenv("OPENAI_API_KEY", server.target.headers["authorization"].removeprefix("Bearer "))
    with by_url(loop, server.url) as engine:
        assert engine.can_score
        found = loop.run(engine.score(Request("one"), (100, 101), 2))
    assert found.logprobs == pytest.approx((BEST, BEST))


def test_the_prompt_is_made_with_the_fields_of_its_template(
    stage: Stage, loop: LoopThread, server: VLLMServer
) -> None:
    """As the answer's was; a text that is continued has none."""
    loop.run(server.score(Request("one", extra_body={"tools": [], "top_p": 0.5}), (100,), 2))
    loop.run(server.score(Request("two", endpoint="completions"), (100,), 2))
    chat, scored, text, _ = stage.noted("body")
    assert chat.keys() == {"model", "messages", "add_generation_prompt", "tools"}
    assert text == {"model": "m", "prompt": "two"}
    assert scored["prompt"] == [*range(1, 13), 100]


def test_scores_that_are_refused_are_an_error_without_the_key(stage: Stage) -> None:
    """What the server says of it, its key hidden."""
    stage.fault("few scores")
    result = check(stage)
    result.assert_outcomes(failed=1)
    shows(result, "cannot be scored: HTTP 400: at most 5 prompt_logprobs, not for ***")


def test_scores_of_another_shape_are_an_error(loop: LoopThread) -> None:
    """Never a traceback of ours."""
    answer = Play([(0, b'{"tokens": [1], "choices": []}')], content_type="application/json")
    with (
        ReplayServer(lambda _: answer) as server,
        by_url(loop, server.url) as engine,
        pytest.raises(GenerationError, match="scores of an unknown shape"),
    ):
        loop.run(engine.score(Request("one"), (100,), 2))


def test_scores_end_at_the_time_limit(loop: LoopThread) -> None:
    """Of a server that does not answer."""
    with (
        ReplayServer(lambda _: Play(ending="hang")) as server,
        by_url(loop, server.url) as engine,
        pytest.raises(GenerationError, match=r"timed out after 0\.2 s"),
    ):
        loop.run(engine.score(Request("one", timeout_s=0.2), (100,), 2))
