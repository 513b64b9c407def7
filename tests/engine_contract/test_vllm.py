"""What only vLLM has: its own metrics, a warm prefix cache, speculation, and processes that may die."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from processes import children, running, until

from pytest_llmspeed import EngineError, Exchange, GenerationError, Request
from pytest_llmspeed.engines.base import EngineSpec
from pytest_llmspeed.engines.local._vllm import VLLMEngine
from pytest_llmspeed.engines.pool import Pool
from pytest_llmspeed.engines.servers._server import VLLMServer
from pytest_llmspeed.engines.token_scores import TokenScores
from pytest_llmspeed.metrics.sample import Sample, sample_of

pytestmark = pytest.mark.engines("vllm")
ROUNDS = 10
TOLERANCE_MS, TOLERANCE = 10.0, 0.10
"""Our medians lie within 10 ms or 10 % of the engine's own, whichever is more."""
STORY = Request("Tell me a story.", output_tokens=24)
REPEATED = "Repeat after me, again and again: one two three one two three one two three one two three"
SPECULATIVE = {
    "prefix_cache": "warm",
    "block_size": 32,
    "speculative_config": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3},
}
STARTING = """
import pytest

@pytest.mark.llm_backend("vllm", model={model!r}, **{options!r})
def test_it(llm_client, llm_backend):
    print("UP", llm_backend.root_process, flush=True)
    llm_client.generate("Tell me a long story.", output_tokens=900, timeout_s=600)
"""


@pytest.fixture
def engine(pool: Pool, spec: EngineSpec) -> VLLMEngine:
    found = pool.lease(spec)
    assert isinstance(found, VLLMEngine)
    return found


def with_its_own_executor(spec: EngineSpec) -> dict[str, Any]:
    """The options of an engine that has as many processes as vLLM itself chooses."""
    return {name: value for name, value in spec.options.items() if name != "distributed_executor_backend"}


@pytest.fixture
def speculating(pool: Pool, spec: EngineSpec) -> VLLMEngine:
    """An engine that drafts by n-grams, its prefix cache left on."""
    options = {**with_its_own_executor(spec), **SPECULATIVE}
    found = pool.lease(EngineSpec.of(spec.backend, spec.model, spec.precision, options))
    assert isinstance(found, VLLMEngine)
    return found


def samples(pool: Pool, engine: VLLMEngine, request: Request, count: int = 1) -> list[Sample]:
    """So many requests, one after another."""
    return [sample_of(pool.loop.run(engine.exchange(request))) for _ in range(count)]


def test_what_runs_is_recorded(engine: VLLMEngine) -> None:
    """The dtype of the engine's configuration, the versions, how many requests it takes at once."""
    assert (engine.backend.precision, engine.backend.prefix_cache) == ("fp32", "cold")
    assert engine.backend.versions.keys() == {"vllm", "torch"}
    assert engine.backend.revision is not None
    assert engine.max_concurrency > 1


def test_ttft_and_tpot_agree_with_the_engines_own(pool: Pool, engine: VLLMEngine) -> None:
    """Medians over ten requests; vLLM counts from its intake of the tokens, and inside its processes."""
    seen: list[Any] = []
    generate = engine._engine.generate

    async def noted(*arguments: Any) -> Any:
        async for output in generate(*arguments):
            if output.finished:
                seen.append(output.metrics)
            yield output

    engine._engine.generate = noted
    ours = samples(pool, engine, STORY, ROUNDS)
    del engine._engine.generate
    theirs = [(m.last_token_ts - m.first_token_ts) / (m.num_generation_tokens - 1) * 1000 for m in seen]
    assert_close([s.tpot_ms for s in ours], theirs)
    assert_close([s.ttft_ms for s in ours], [m.first_token_latency * 1000 for m in seen])


def assert_close(ours: list[float | None], theirs: list[float]) -> None:
    """Our median is theirs, within the tolerance."""
    assert len(ours) == len(theirs) == ROUNDS
    expected = median(theirs)
    assert median(each for each in ours if each is not None) == pytest.approx(
        expected, abs=max(TOLERANCE_MS, expected * TOLERANCE)
    )


def test_requests_at_once_are_one_batch(pool: Pool, engine: VLLMEngine) -> None:
    """Eight at a time take less than four times as long as one; each has its own answer."""

    async def at_once() -> list[Exchange]:
        return list(await asyncio.gather(*(engine.exchange(STORY) for _ in range(8))))

    (alone,) = samples(pool, engine, STORY)
    together = [sample_of(found) for found in pool.loop.run(at_once())]
    assert {sample.output_tokens for sample in together} == {24}
    assert max(sample.e2e_ms or 0 for sample in together) < 4 * (alone.e2e_ms or 0)


def test_an_aborted_request_is_gone_from_the_engine(pool: Pool, engine: VLLMEngine) -> None:
    """One that ran out of time."""
    found = pool.loop.run(engine.exchange(replace(STORY, output_tokens=900, timeout_s=0.5)))
    assert found.error
    assert engine._engine.get_num_unfinished_requests() == 0


def test_a_prompt_beyond_the_context_fails_with_its_reason(pool: Pool, engine: VLLMEngine) -> None:
    """vLLM's own sentence."""
    (sample,) = samples(pool, engine, Request("word " * 2000))
    assert "the context is max_model_len=1024" in str(sample.error)


def test_its_server_scores_alike(pool: Pool, engine: VLLMEngine, spec: EngineSpec) -> None:
    """The same answer, token by token, and each token as likely to a hundredth of a nat."""
    request = Request(STORY.prompt, max_tokens=24, wants_token_ids=True)
    found = pool.loop.run(engine.exchange(request))
    here = pool.loop.run(engine.score(request, found.token_ids or (), 20))
    executor = ("--distributed-executor-backend", spec.options["distributed_executor_backend"])
    options = {"enforce_eager": True, "context_length": 1024, "cpu_kv_cache_gib": 1, "extra_args": executor}
    server = pool.lease(EngineSpec.of("vllm-server", spec.model, spec.precision, options))
    assert isinstance(server, VLLMServer)
    assert server.can_score
    assert pool.loop.run(server.exchange(request)).token_ids == found.token_ids
    there = pool.loop.run(server.score(request, found.token_ids or (), 20))
    assert there.logprobs == pytest.approx(here.logprobs, abs=0.01)
    assert [top[0][0] for top in there.top] == [top[0][0] for top in here.top]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_model_length": 9}, "no engine argument 'max_model_length'; did you mean 'max_model_len'?"),
        ({"max_model_len": 10**6}, "max_model_len (1000000) is greater than the derived max_model_len"),
        ({"quantization": "awq"}, "Cannot find the config file for awq"),
        ({"dtype": "bfloat16"}, "requested in fp32, but vLLM runs it in bf16"),
    ],
)
def test_what_cannot_start_says_why(spec: EngineSpec, options: dict[str, Any], said: str) -> None:
    """Before any process is started."""
    asked = EngineSpec.of("vllm", spec.model, "fp32", {**spec.options, **options})
    with pytest.raises(EngineError) as raised:
        VLLMEngine.start(asked)
    assert said in str(raised.value)


def test_too_little_memory_is_said_in_one_sentence(pool: Pool, spec: EngineSpec) -> None:
    """What the engine's own process logged, and the machine is free again."""
    asked = EngineSpec.of("vllm", spec.model, None, {**spec.options, "kv_cache_memory_bytes": 2**44})
    with pytest.raises(EngineError, match=r"ValueError: Available memory .* is less than requested"):
        pool.lease(asked)
    assert not [command for command in children(os.getpid()).values() if "VLLM" in command]


def test_a_warm_prefix_cache_gives_tokens(pool: Pool, speculating: VLLMEngine) -> None:
    """Of a prompt that comes again, all blocks but the last."""
    first, second = samples(pool, speculating, Request(" ".join(map(str, range(100))), max_tokens=2), 2)
    assert speculating.backend.prefix_cache == "warm"
    assert first.cached_tokens == 0
    assert second.cached_tokens >= 32


def test_scores_need_nothing_of_a_warm_prefix_cache(pool: Pool, speculating: VLLMEngine) -> None:
    """The tokens of a prompt in it are scored like others; eight at once as each alone."""

    async def at_once() -> list[TokenScores]:
        tokens = found.token_ids or ()
        return list(await asyncio.gather(*(speculating.score(request, tokens, 20) for _ in range(8))))

    request = Request(" ".join(map(str, range(100))), max_tokens=12)
    found = pool.loop.run(speculating.exchange(request))
    alone = pool.loop.run(speculating.score(request, found.token_ids or (), 20))
    assert max(alone.shortfalls) < 0.05
    for scores in pool.loop.run(at_once()):
        assert scores.logprobs == pytest.approx(alone.logprobs, abs=0.01)


def test_more_than_the_engine_lists_is_an_error(pool: Pool, speculating: VLLMEngine) -> None:
    """vLLM has a limit, which is set when it starts."""
    with pytest.raises(GenerationError, match="max_logprobs=20 is less than the 21 that are requested"):
        pool.loop.run(speculating.score(STORY, (5, 6), 21))


def test_speculation_is_told(pool: Pool, speculating: VLLMEngine) -> None:
    """How much of the drafts was taken, and how many tokens a step gave; no lag of ours is seen in it."""
    (sample,) = samples(pool, speculating, Request(REPEATED, output_tokens=64))
    assert sample.output_tokens == 64
    assert 0 < (sample.acceptance_rate or 0) <= 1
    assert 1 < (sample.tokens_per_step or 0) <= 4
    assert sample.output_events < 64
    assert not sample.flags


def test_a_dead_engine_fails_its_request_and_says_so(pool: Pool, speculating: VLLMEngine) -> None:
    """Killed in the middle of an answer, as the system does for lack of memory."""

    async def killed_midway() -> Exchange:
        began = asyncio.Event()
        work = asyncio.ensure_future(
            speculating.exchange(replace(STORY, output_tokens=900), lambda _: began.set())
        )
        await began.wait()
        os.kill(speculating.root_process or 0, signal.SIGKILL)
        return await work

    assert speculating.alive
    found = pool.loop.run(killed_midway())
    assert (
        found.error
        == "the vLLM engine died: its process was killed (SIGKILL), perhaps because memory ran out"
    )
    assert not speculating.alive


def test_a_draft_model_that_is_the_model_itself_is_always_right(pool: Pool, spec: EngineSpec) -> None:
    """All three tokens of each draft are taken, and each step gives one more: 48 tokens in twelve steps."""
    drafted = {"method": "draft_model", "model": spec.model, "num_speculative_tokens": 3}
    options = {**spec.options, "speculative_config": drafted}
    engine = pool.lease(EngineSpec.of(spec.backend, spec.model, spec.precision, options))
    assert isinstance(engine, VLLMEngine)
    (sample,) = samples(pool, engine, replace(STORY, output_tokens=48))
    assert sample.output_tokens == 48
    assert sample.acceptance_rate == pytest.approx(1, abs=0.1)  # a near-tie may be told otherwise
    assert sample.tokens_per_step == pytest.approx(4, abs=0.4)
    assert not sample.flags


@pytest.mark.parametrize("moment", ["starting", "answering"])
def test_a_killed_pytest_leaves_no_engine(spec: EngineSpec, tmp_path: Path, moment: str) -> None:
    """Killed while the engine starts, or in the middle of an answer; its shared memory is gone too."""
    options = with_its_own_executor(spec)
    (tmp_path / "test_it.py").write_text(STARTING.format(model=spec.model, options=options))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    before = set(os.listdir("/dev/shm"))
    log = tmp_path / "log"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "pytest", "-s", "-p", "pytest_llmspeed.plugin.hooks"]
        pytest_run = subprocess.Popen(command, cwd=tmp_path, stdout=output, stderr=subprocess.STDOUT)
    try:
        assert until(lambda: reached(moment, pytest_run.pid, log), 300), log.read_text()
        started = children(pytest_run.pid)
    finally:
        pytest_run.kill()
        pytest_run.wait()
    assert until(lambda: not running(list(started))), {pid: started[pid] for pid in running(list(started))}
    assert until(lambda: set(os.listdir("/dev/shm")) <= before)


def reached(moment: str, pid: int, log: Path) -> bool:
    """Whether a run of pytest has come so far."""
    if moment == "answering":
        return "UP" in log.read_text()
    return any("EngineCore" in command for command in children(pid).values())
