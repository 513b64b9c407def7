"""Token ids and log-probabilities that no server should send: each is one sentence about its own request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.servers import Play, ReplayServer, event

from pytest_llmspeed import EngineSpec, GenerationError, Request
from pytest_llmspeed.engines.servers._openai import OpenAIEngine
from pytest_llmspeed.metrics.sample import sample_of
from pytest_llmspeed.system.event_loop import LoopThread

GOOD = {"100": {"logprob": -0.1, "rank": 1}, "7": {"logprob": -3.0, "rank": 2}}
PYTHON_WORDS = ("Error(", "object is not", "object has no", "Traceback", "unpack", "subscriptable")
IDS = {
    "a negative id": [-1],
    "a fraction": [1.5],
    "a string": ["7"],
    "a nested list": [[1, 2]],
    "a huge number": [10**400],
    "NaN": [float("nan")],
    "None": [None],
    "a truth value": [True],
    "a number for the list": 3,
    "a text for the list": "12",
    "an object for the list": {"a": 1},
}
LISTED: dict[str, Any] = {
    "a negative id": [{"-100": {"logprob": -0.1, "rank": 1}}],
    "an id that is a fraction": [{"1.5": {"logprob": -0.1, "rank": 1}}],
    "an id that is a word": [{"hundred": {"logprob": -0.1, "rank": 1}}],
    "an id of 5,000 digits": [{"9" * 5000: {"logprob": -0.1, "rank": 1}}],
    "another token alone": [{"7": {"logprob": -0.1, "rank": 1}}],
    "a log-probability above 0": [{"100": {"logprob": 3.0, "rank": 1}}],
    "NaN": [{"100": {"logprob": float("nan"), "rank": 1}}],
    "None for a log-probability": [{"100": {"logprob": None, "rank": 1}}],
    "a list for a log-probability": [{"100": {"logprob": [1], "rank": 1}}],
    "a log-probability of 400 digits": [{"100": {"logprob": 10**400, "rank": 1}}],
    "no log-probability": [{"100": {"rank": 1}}],
    "no rank": [{"100": {"logprob": -0.1}}],
    "a negative rank": [{"100": {"logprob": -0.1, "rank": -1}}],
    "a rank that is a text": [{"100": {"logprob": -0.1, "rank": "1"}}],
    "a number for a token": [{"100": -0.1}],
    "a list for a place": [[1, 2]],
    "None for a place": [None],
    "a place too many": [GOOD, GOOD],
    "no place": [],
}
WHOLE: dict[str, Any] = {
    "no choices": {},
    "an empty list of choices": {"choices": []},
    "choices that are a number": {"choices": 3},
    "no log-probabilities": {"choices": [{}]},
    "log-probabilities that are None": {"choices": [{"prompt_logprobs": None}]},
    "log-probabilities that are an object": {"choices": [{"prompt_logprobs": {"a": 1, "b": 2}}]},
    "a list": [1],
    "a text": "scores",
    "None": None,
}


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    loop = LoopThread()
    yield loop
    loop.close()


def score_of(loop: LoopThread, tokens: Any, answer: Any) -> Any:
    """The scores of token 100 after a prompt of these tokens, of a server that answers so."""

    def play(asked: dict[str, Any]) -> Play:
        body = answer if "prompt_logprobs" in asked else tokens
        return Play([(0, json.dumps(body).encode())], content_type="application/json")

    with ReplayServer(play) as server:
        engine = OpenAIEngine.start(EngineSpec.of("openai", "m", None, {"url": server.url}))
        try:
            return loop.run(engine.score(Request("one", timeout_s=10), (100,), 1))
        finally:
            loop.run(engine.close())


def listing(places: Any) -> dict[str, Any]:
    return {"choices": [{"prompt_logprobs": [None, *places]}]}


def is_one_sentence(text: str) -> bool:
    return len(text) < 300 and "\n" not in text and not any(word in text for word in PYTHON_WORDS)


def test_good_scores_are_read(loop: LoopThread) -> None:
    """So that what follows fails for its own reason."""
    found = score_of(loop, {"tokens": [1]}, listing([GOOD]))
    assert (found.logprobs, found.top) == ((-0.1,), (((100, -0.1),),))


ANSWERS = [
    *(pytest.param({"tokens": ids}, listing([GOOD]), id=f"prompt: {kind}") for kind, ids in IDS.items()),
    *(pytest.param({"tokens": [1]}, listing(places), id=f"place: {kind}") for kind, places in LISTED.items()),
    *(pytest.param({"tokens": [1]}, answer, id=f"answer: {kind}") for kind, answer in WHOLE.items()),
    *(pytest.param(answer, listing([GOOD]), id=f"tokens: {kind}") for kind, answer in WHOLE.items()),
]


@pytest.mark.parametrize(("tokens", "answer"), ANSWERS)
def test_scores_that_cannot_be_read_are_one_sentence(loop: LoopThread, tokens: Any, answer: Any) -> None:
    """Whatever the server sends in their place."""
    with pytest.raises(GenerationError) as caught:
        score_of(loop, tokens, answer)
    assert is_one_sentence(str(caught.value)), str(caught.value)


@pytest.mark.parametrize("kind", IDS)
def test_token_ids_that_cannot_be_read_fail_their_own_answer(loop: LoopThread, kind: str) -> None:
    """The request has failed, in one sentence; the next one is answered."""
    choice = {"index": 0, "delta": {"content": "a"}, "finish_reason": None}
    bad = event({"choices": [{**choice, "token_ids": IDS[kind]}]})
    good = event({"choices": [{**choice, "token_ids": [5], "finish_reason": "stop"}]})
    plays = iter([Play([(0, bad + good)]), Play([(0, good)])])
    with ReplayServer(lambda _: next(plays)) as server:
        engine = OpenAIEngine.start(EngineSpec.of("openai", "m", None, {"url": server.url}))
        first, second = (loop.run(engine.exchange(Request("x", timeout_s=10))) for _ in range(2))
        loop.run(engine.close())
    error = sample_of(first).error
    assert error is not None
    assert is_one_sentence(error), error
    assert (sample_of(second).error, second.token_ids) == (None, (5,))
