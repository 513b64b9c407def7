"""What only llama.cpp in this process has: its prompts, caches, samplers, and the file's own precision."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.smollm2_files import smollm2_gguf

from pytest_llmspeed import EngineError, Event, Exchange, GenerationError, Request
from pytest_llmspeed.engines.base import EngineSpec
from pytest_llmspeed.engines.local._llama_cpp import LlamaCppEngine
from pytest_llmspeed.engines.token_scores import TokenScores
from pytest_llmspeed.metrics.sample import sample_of
from pytest_llmspeed.system import clock
from pytest_llmspeed.system.memory import MemoryWatch

pytestmark = pytest.mark.engines("llama-cpp")

SUM = "What is 2+3?"
PROMPTS = json.loads(Path(__file__).with_name("prompt_tokens.json").read_text(encoding="utf-8"))
ONE_THREAD = {"n_threads": 1, "n_threads_batch": 1}


@pytest.fixture(autouse=True)
def only_of_this_engine(backend: str) -> None:
    """Run where this backend is asked for."""


def started(precision: str | None = None, **options: Any) -> LlamaCppEngine:
    return LlamaCppEngine.start(
        EngineSpec.of("llama-cpp", str(smollm2_gguf()), precision, {**ONE_THREAD, **options})
    )


def answer(engine: LlamaCppEngine, prompt: Any = SUM, on_event: Any = None, **request: Any) -> Exchange:
    async def run() -> Exchange:
        return await engine.exchange(Request(prompt, **request), on_event=on_event)

    return asyncio.run(run())


def scored(engine: LlamaCppEngine, tokens: Sequence[int], prompt: Any = SUM, top: int = 20) -> TokenScores:
    return asyncio.run(engine.score(Request(prompt), tokens, top))


@pytest.fixture(scope="module")
def engine() -> Iterator[LlamaCppEngine]:
    engine = started()
    yield engine
    asyncio.run(engine.close())


def test_a_right_answer_with_exact_counts(engine: LlamaCppEngine) -> None:
    """Each token is an event with a stamp of its own; the end of the answer is none of its tokens."""
    sample = sample_of(answer(engine, max_tokens=32))
    assert (sample.text, sample.finish_reason) == ("2 + 3 = 5", "stop")
    assert (sample.prompt_tokens, sample.output_tokens, sample.output_events) == (37, 7, 7)
    assert (sample.token_source, sample.cached_tokens) == ("engine", 0)
    assert all(gap > 0 for gap in sample.itl_ms)


@pytest.mark.parametrize("name", PROMPTS)
def test_a_prompt_has_the_tokens_that_transformers_makes_of_it(engine: LlamaCppEngine, name: str) -> None:
    """The file's template is applied once, and in the same way."""
    case = PROMPTS[name]
    prompt = case["prompt"] if isinstance(case["prompt"], str) else tuple(case["prompt"])
    assert engine._model.prompt_tokens(Request(prompt, endpoint=case["endpoint"])) == case["tokens"]


def test_a_forced_length_does_not_stop_at_the_end_of_the_answer(engine: LlamaCppEngine) -> None:
    """As many tokens as are asked for, with output_tokens=, ignore_eos or min_tokens."""
    for request, expected in (
        ({"output_tokens": 24}, 24),
        ({"max_tokens": 20, "extra_body": {"ignore_eos": True}}, 20),
    ):
        found = answer(engine, **request)
        assert (found.finish_reason, found.usage and found.usage.output_tokens) == ("length", expected)
    at_least = answer(engine, max_tokens=32, extra_body={"min_tokens": 10})
    assert at_least.usage is not None
    assert (at_least.usage.output_tokens or 0) >= 10


def test_the_cache_is_cold_unless_asked() -> None:
    """A repeated prompt is read anew; with "warm" all but its last token is kept, for the same answer."""
    for cache, cached in (("cold", [0, 0, 0]), ("warm", [0, 36, 36])):
        engine = started(prefix_cache=cache)
        found = [answer(engine, max_tokens=16) for _ in range(3)]
        assert [each.usage and each.usage.cached_tokens for each in found] == cached
        assert {each.joined("text") for each in found} == {"2 + 3 = 5"}
        assert engine.backend.prefix_cache == cache
        asyncio.run(engine.close())


def test_scores_are_those_of_the_library(engine: LlamaCppEngine) -> None:
    """The log-probabilities that llama-cpp-python gives with its own completion, when it keeps all logits."""
    import llama_cpp

    llama = llama_cpp.Llama(str(smollm2_gguf()), n_ctx=256, logits_all=True, verbose=False, **ONE_THREAD)
    prompt = engine._model.prompt_tokens(Request(SUM))
    completion = llama.create_completion(prompt, max_tokens=7, temperature=0, logprobs=5)
    llama.close()
    theirs = completion["choices"][0]["logprobs"]
    ours = scored(engine, answer(engine, max_tokens=7).token_ids or ())
    assert ours.logprobs == pytest.approx(theirs["token_logprobs"], abs=0.01)
    for top, expected in zip(ours.top, theirs["top_logprobs"], strict=True):
        for logprob in expected.values():  # by the tokens' texts, of which two may be the same
            assert min(abs(logprob - listed) for _, listed in top) < 0.01


def test_scoring_does_what_generating_did(engine: LlamaCppEngine) -> None:
    """On one thread, greedy tokens are the likeliest, all of them, and twice the same to the last bit."""
    tokens = answer(engine, "Tell me a story.", max_tokens=40).token_ids or ()
    first, second = (scored(engine, tokens, "Tell me a story.") for _ in range(2))
    assert set(first.shortfalls) == {0.0}
    assert first == second


def test_a_warm_cache_is_empty_after_scoring() -> None:
    """What is scored goes on from no earlier prompt, and no later prompt goes on from it."""
    engine = started(prefix_cache="warm")
    found = answer(engine, max_tokens=16)
    warm = scored(engine, found.token_ids or ())
    assert scored(engine, found.token_ids or ()) == warm
    after = answer(engine, max_tokens=16)
    assert after.usage is not None
    assert (after.usage.cached_tokens, after.joined("text")) == (0, "2 + 3 = 5")
    asyncio.run(engine.close())


def test_what_cannot_be_scored_says_why(engine: LlamaCppEngine) -> None:
    """An answer longer than the context, a token that the model has not."""
    for tokens, message in (([5] * 8200, "the context is n_ctx=8192"), ([10**6, 5], "is out of bounds")):
        with pytest.raises(GenerationError, match=message):
            scored(engine, tokens)


def test_sampling_follows_its_seed(engine: LlamaCppEngine) -> None:
    """With a temperature, one seed gives one answer, another seed another."""
    texts = [
        answer(engine, "Tell a story.", max_tokens=16, temperature=1.0, extra_body=extra).joined("text")
        for extra in ({}, {"seed": 0}, {"seed": 7, "top_k": 50, "top_p": 0.95})
    ]
    assert texts[0] == texts[1] != texts[2]


def test_a_character_of_several_tokens_is_one_event(engine: LlamaCppEngine) -> None:
    """No event holds half a character; the events carry all tokens."""
    found = answer(engine, "Repeat after me: 🙂🙂🙂", output_tokens=24)
    assert all("�" not in event.text for event in found.events[:-1])
    assert sum(event.tokens or 0 for event in found.events) <= 24


def test_events_are_told_as_they_come(engine: LlamaCppEngine) -> None:
    """Who listens hears each event once, before the exchange is there, in order."""
    heard: list[Event] = []
    found = answer(engine, on_event=heard.append, max_tokens=16)
    assert tuple(heard) == found.events


@pytest.mark.parametrize("asked", ["q4_1", None])
def test_the_precision_is_that_of_the_file(asked: str | None) -> None:
    """Read from the file, whether it is asked for or not."""
    engine = started(asked)
    assert engine.backend.precision == "q4_1"
    asyncio.run(engine.close())


@pytest.mark.parametrize("asked", ["q8_0", "fp16"])
def test_another_precision_than_the_file_s_is_an_error(asked: str) -> None:
    """What was asked is what runs, or the engine does not start."""
    with pytest.raises(EngineError, match=f"was requested in {asked}, but the file's weights are q4_1"):
        started(asked)


def test_a_request_ends_at_its_time_limit(engine: LlamaCppEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that runs a second a look, the limit is met after some tokens, and said."""
    ticks = iter(range(10_000))
    monkeypatch.setattr(clock, "now_s", lambda: float(next(ticks)))
    assert answer(engine, output_tokens=100, timeout_s=5).error == "timed out after 5 s, 6 tokens in"


def test_a_cancelled_request_has_ended_when_the_wait_returns(engine: LlamaCppEngine) -> None:
    """After an interruption no thread goes on generating, and the next request is answered."""

    async def interrupted() -> Exchange:
        heard = asyncio.Event()
        request = Request(SUM, output_tokens=2000)
        asked = asyncio.ensure_future(engine.exchange(request, on_event=lambda _: heard.set()))
        await heard.wait()
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        return await engine.exchange(Request(SUM, max_tokens=16))

    assert asyncio.run(interrupted()).joined("text") == "2 + 3 = 5"


MISTAKES = {
    "another model": ({"model": "other"}, "an in-process engine serves only"),
    "an unknown field": ({"extra_body": {"stop": ["x"]}}, "not ['stop']"),
    "a prompt longer than the context": ({"prompt": "x " * 9000}, "the context is n_ctx=8192"),
    "messages without a template": (
        {"prompt": ({"role": "user"},), "endpoint": "completions"},
        "takes a text",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_it_cannot_answer_is_an_error_of_the_request(engine: LlamaCppEngine, name: str) -> None:
    """One sentence in the exchange; the engine goes on."""
    request, message = MISTAKES[name]
    assert message in str(answer(engine, **{"max_tokens": 4, **request}).error)


def test_files_and_arguments_that_do_not_load(tmp_path: Path) -> None:
    """A broken file, one that is no GGUF, no file, an argument of the wrong kind."""
    (tmp_path / "broken.gguf").write_bytes(smollm2_gguf().read_bytes()[: 2**20])
    (tmp_path / "model.bin").write_bytes(b"x")
    for named, options, message in (
        (tmp_path / "broken.gguf", {}, "cannot be loaded by llama.cpp"),
        (tmp_path / "model.bin", {}, "is a file, but not a .gguf file"),
        ("somebody/a-model", {}, "needs a .gguf file, not 'somebody/a-model'"),
        (smollm2_gguf(), {"n_ctx": "many"}, "cannot be loaded by llama.cpp"),
    ):
        with pytest.raises(EngineError, match=message):
            LlamaCppEngine.start(EngineSpec.of("llama-cpp", str(named), None, options))


def test_its_memory_is_given_back(engine: LlamaCppEngine) -> None:
    """After `close` what the model took is free; SmolLM2 with its context takes some hundred MiB."""
    assert engine is not None  # its library is loaded, and stays
    watch = MemoryWatch()
    another = started()
    answer(another, max_tokens=4)
    watch.forget_peak()
    held_mib = watch.peak_mib()
    asyncio.run(another.close())
    del another
    watch.forget_peak()
    freed_mib = watch.peak_mib()
    assert held_mib is not None
    assert freed_mib is not None
    assert held_mib > 100
    assert freed_mib < held_mib / 4


def test_the_library_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    """Neither loading nor generating writes to the terminal, past Python's own streams either."""
    engine = started()
    answer(engine, max_tokens=4)
    asyncio.run(engine.close())
    assert capfd.readouterr() == ("", "")
