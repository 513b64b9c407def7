"""What every engine shows, whatever library runs it: the same words, counts, limits and endings."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from math import exp
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from pytest_llmspeed import Event, Exchange, Request
from pytest_llmspeed.engines.base import Engine, EngineSpec
from pytest_llmspeed.engines.pool import Pool
from pytest_llmspeed.metrics.sample import Sample

REAL = ("transformers", "openai", "vllm", "vllm-server", "llama-cpp", "llama-cpp-server")
SAYS_NO_COUNTS = ("llama-cpp-server",)
"""Servers that send no usage: output tokens are counted for them, those of the prompt cannot be."""
NOT_FORCED = ("openai", "llama-cpp-server")
"""Servers without a means to force a length."""
IN_PROCESS = ("tiny", "transformers", "vllm", "llama-cpp")
SCORES = (*IN_PROCESS, "vllm-server")
"""Engines that say how likely given tokens are."""
STORY = "Tell me a story."
CACHED_PROMPT = "Here are the numbers, one by one: " + ", ".join(str(number) for number in range(120))
"""Some hundreds of tokens: more than a block of any prefix cache."""

PROJECT = """
import pytest
from pytest_llmspeed.system import cpu

cpu.read = lambda *_: None  # a busy machine would store nothing

@pytest.mark.llm_backend({backend!r}, model={model!r}, precision={precision!r}, **{options!r})
@pytest.mark.llm_budget(ttft_ms=20_000, tpot_ms=5_000, error_rate=0)
def test_speed(llm_client):
    measured = llm_client.measure("Tell me a story.", max_tokens=8, rounds=6, warmup=1)
    assert len(measured.samples) == 6
"""

Ask = Callable[..., Exchange]
Answer = Callable[..., Sample]


@pytest.mark.engines(*REAL)
def test_a_chat_is_answered_rightly(backend: str, answer: Answer) -> None:
    """The chat template is applied, once: greedy, the model does its sum; the prompt has its 37 tokens."""
    sample = answer("What is 2+3?", max_tokens=16)
    assert "5" in sample.text
    assert sample.prompt_tokens == (None if backend in SAYS_NO_COUNTS else 37)
    assert sample.finish_reason == "stop"


@pytest.mark.engines(*REAL)
def test_a_text_is_continued_as_it_stands(answer: Answer) -> None:
    """endpoint="completions" applies no template."""
    assert answer("The capital of France is", endpoint="completions", max_tokens=4).text.startswith(" Paris")


@pytest.mark.engines(*REAL)
def test_tokens_are_counted_as_the_tokenizer_counts_them(backend: str, answer: Answer) -> None:
    """ "2 + 3 = 5" has seven tokens; a server may count the end token, which nobody sees, as an eighth."""
    sample = answer("What is 2+3?", max_tokens=16)
    assert sample.text == "2 + 3 = 5"
    assert sample.output_tokens in ((7,) if backend in IN_PROCESS else (7, 8))


def test_a_limit_ends_an_answer(answer: Answer) -> None:
    """max_tokens is the most that comes."""
    sample = answer("Tell me a long story.", max_tokens=8)
    assert (sample.output_tokens, sample.finish_reason) == (8, "length")


def test_a_forced_length_is_kept_or_flagged(backend: str, answer: Answer) -> None:
    """output_tokens=24 gives 24, though the model would have ended before."""
    sample = answer("What is 2+3?", output_tokens=24)
    assert sample.output_tokens == 24 or (backend in NOT_FORCED and "short" in sample.flags)


def test_greedy_says_the_same_twice(answer: Answer) -> None:
    """Argmax, whatever the model's own generation config says."""
    texts = {answer("Tell me a story.", max_tokens=24).text for _ in range(2)}
    assert len(texts) == 1


def test_a_cold_prefix_cache_gives_nothing(engine: Engine, answer: Answer) -> None:
    """The second of two equal prompts is read as the first was."""
    assert engine.backend.prefix_cache in ("cold", "unknown")
    samples = [answer(CACHED_PROMPT, max_tokens=2) for _ in range(2)]
    if engine.backend.prefix_cache == "cold":
        assert [sample.cached_tokens or 0 for sample in samples] == [0, 0]


def test_events_are_stamped_in_order_from_t0_on(ask: Ask) -> None:
    """One clock for all of them, and each carries its tokens where the engine counts them."""
    found = ask("Tell me a story.", max_tokens=12)
    stamps = [found.started_s, *(event.stamp_s for event in found.events)]
    assert stamps == sorted(stamps)
    assert stamps[-1] <= time.perf_counter()


def test_events_are_told_as_they_come(pool: Pool, engine: Engine) -> None:
    """`on_event` has seen all events, in order, when the exchange is there."""
    told: list[Event] = []
    found = pool.loop.run(engine.exchange(Request("Tell me a story.", max_tokens=6), told.append))
    assert [event.stamp_s for event in told] == [event.stamp_s for event in found.events]


def test_a_request_ends_at_its_time_limit(ask: Ask) -> None:
    """With what came until then, and a word on it; ten times the limit is more than enough."""
    start = time.monotonic()
    found = ask("Tell me a long story.", output_tokens=400, timeout_s=0.5)
    assert time.monotonic() - start < 10
    assert "timed out after 0.5 s" in str(found.error)


def test_a_cancelled_request_frees_the_engine(pool: Pool, engine: Engine) -> None:
    """Cancelled in the middle of an answer; the next request is answered at once."""

    async def cancelled_midway() -> None:
        began = asyncio.Event()
        request = Request("Tell me a long story.", output_tokens=400)
        work = asyncio.ensure_future(engine.exchange(request, lambda _: began.set()))
        await began.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    pool.loop.run(cancelled_midway())
    after = pool.loop.run(engine.exchange(Request("And now?", max_tokens=2, timeout_s=60)))
    assert after.error is None


@pytest.mark.engines(*IN_PROCESS)
def test_a_mistake_in_a_request_fails_it_alone(answer: Answer, ask: Ask) -> None:
    """A field that the engine does not know is one failed request; the next one is answered."""
    assert "no_such_field" in str(ask("hello", extra_body={"no_such_field": 1}).error)
    assert answer("And now?", max_tokens=2).output_tokens == 2


@pytest.mark.engines(*SCORES)
def test_greedy_tokens_score_as_the_likeliest(pool: Pool, engine: Engine, ask: Ask) -> None:
    """An answer as the engine gave it, scored by it: nine of ten tokens lead, the others by rounding."""
    assert engine.can_score
    found = ask(STORY, max_tokens=100, wants_token_ids=True)  # with its prompt more than a block of vLLM
    assert found.token_ids is not None
    scores = pool.loop.run(engine.score(Request(STORY), found.token_ids, 20))
    assert scores.token_ids == found.token_ids
    leading = [top[0][0] == token for top, token in zip(scores.top, scores.token_ids, strict=True)]
    assert fmean(leading) >= 0.9
    assert max(scores.shortfalls) < 0.05


@pytest.mark.engines(*SCORES)
def test_scores_are_ordered_logprobs(pool: Pool, engine: Engine) -> None:
    """Of unlikely tokens: their own and those of the likeliest, whose shares make 1 at most."""
    assert engine.can_score
    unlikely = tuple(range(50, 60))
    scores = pool.loop.run(engine.score(Request(STORY), unlikely, 5))
    for token, logprob, top in zip(unlikely, scores.logprobs, scores.top, strict=True):
        listed = [each for _, each in top]
        assert len(dict(top)) == 5
        assert listed == sorted(listed, reverse=True)
        assert dict(top).get(token, logprob) == logprob <= listed[0]
        assert sum(exp(each) for each in listed) <= 1 + 1e-6


@pytest.mark.engines(*SCORES)
def test_scoring_leaves_answers_as_they_are(pool: Pool, engine: Engine, answer: Answer) -> None:
    """Scored again it is the same to a hundredth of a nat, and the next answer is the one of before."""
    assert engine.can_score
    before = answer(STORY, max_tokens=12)
    first, second = (pool.loop.run(engine.score(Request(STORY), range(50, 60), 5)) for _ in range(2))
    assert second.logprobs == pytest.approx(first.logprobs, abs=0.01)
    after = answer(STORY, max_tokens=12)
    assert (after.text, after.cached_tokens) == (before.text, before.cached_tokens)


@pytest.mark.engines(*(name for name in SCORES if name in REAL))
def test_the_end_token_is_scored_with_its_answer(pool: Pool, engine: Engine, ask: Ask) -> None:
    """ "2 + 3 = 5" has seven tokens, and the one that ended it."""
    assert engine.can_score
    found = ask("What is 2+3?", max_tokens=16, wants_token_ids=True)
    assert len(found.token_ids or ()) == 8
    scores = pool.loop.run(engine.score(Request("What is 2+3?"), found.token_ids or (), 20))
    assert scores.shortfalls[-1] < 0.05


def test_a_baseline_is_stored_and_compared(spec: EngineSpec, tmp_path: Path) -> None:
    """Two real runs of pytest: budgets are kept, the second is held against the first."""
    fields = ("backend", "model", "precision", "options")
    test = PROJECT.format(**{field: getattr(spec, field) for field in fields})
    (tmp_path / "test_it.py").write_text(test)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    stored = run(tmp_path, "--llmspeed-update-baseline")
    assert stored["outcome"] == "passed"
    compared = run(tmp_path)
    assert [budget["kept"] for budget in compared["budgets"]] == [True, True, True]
    assert {found["sessions"] for found in compared["comparisons"]} == {1}
    assert compared["backend"]["name"] == spec.backend


def run(folder: Path, *arguments: str) -> dict[str, Any]:
    """The report of the one test of a project, from a pytest of its own."""
    command = [sys.executable, "-m", "pytest", "-p", "pytest_llmspeed.plugin", "--llmspeed-json=report.json"]
    shown = subprocess.run(
        [*command, *arguments], cwd=folder, capture_output=True, text=True, timeout=400, check=False
    )
    assert shown.returncode in (0, 1), shown.stdout + shown.stderr
    assert re.search(r" in [\d.:()\ss]+=*$", shown.stdout), "an engine speaks after the report"
    (test,) = json.loads((folder / "report.json").read_text())["tests"]
    return test
