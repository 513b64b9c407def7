"""Models run in this process by transformers: the small seeded one, folders, and the real SmolLM2."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
import transformers
from helpers.project import shows

from pytest_llmspeed import EngineError, Event, Exchange, GenerationError, Request
from pytest_llmspeed.engines.base import EngineSpec
from pytest_llmspeed.engines.local._tiny import TinyEngine
from pytest_llmspeed.engines.local._transformers import TransformersEngine
from pytest_llmspeed.engines.local.transformers_generation import context_length
from pytest_llmspeed.engines.pool import Pool
from pytest_llmspeed.engines.registry import BUILT_IN, Registry
from pytest_llmspeed.metrics.sample import sample_of
from pytest_llmspeed.system import clock, cpu
from pytest_llmspeed.system.event_loop import LoopThread

if TYPE_CHECKING:
    from pathlib import Path

    from helpers.project import Project


def spec(backend: str, model: object = None, precision: str | None = None, **options: Any) -> EngineSpec:
    return EngineSpec.of(backend, None if model is None else str(model), precision, options)


def answer(engine: TransformersEngine, prompt: Any = "hello", **request: Any) -> Exchange:
    """One exchange, and the engine closed behind it."""

    async def run() -> Exchange:
        return await engine.exchange(Request(prompt, **request))

    return asyncio.run(run())


def our_threads() -> set[threading.Thread]:
    """The threads of ours that are alive."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("llmspeed")}


@pytest.fixture(scope="module")
def tiny() -> TinyEngine:
    return TinyEngine.start(spec("tiny"))


@pytest.mark.parametrize(("asked", "loaded"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_tiny_runs_in_the_precision_asked_for(asked: str, loaded: torch.dtype) -> None:
    """The dtype of the weights is what was asked for."""
    engine = TinyEngine.start(spec("tiny", precision=asked))
    assert engine._model.dtype is loaded
    assert engine.backend.precision == asked


def test_tiny_is_the_same_model_each_time(tiny: TinyEngine) -> None:
    """Its weights follow from its seed, whatever the state of the random generator."""
    torch.manual_seed(1)
    again = TinyEngine.start(spec("tiny"))
    assert answer(tiny, max_tokens=12).joined("text") == answer(again, max_tokens=12).joined("text")


def test_building_tiny_leaves_the_random_generator_alone() -> None:
    """A test's own seed is not disturbed."""
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    TinyEngine.start(spec("tiny"))
    assert torch.equal(torch.rand(1), expected)


def test_tokens_are_counted_exactly_and_stamped_one_by_one(tiny: TinyEngine) -> None:
    """Each token is an event with a stamp of its own; the counts are the engine's."""
    sample = sample_of(answer(tiny, max_tokens=16))
    assert (sample.output_tokens, sample.output_events, sample.token_source) == (16, 16, "engine")
    assert sample.prompt_tokens == len("user: hello\nassistant: ")
    assert sample.finish_reason == "length"
    assert all(gap > 0 for gap in sample.itl_ms)


def test_a_listener_is_told_each_token_while_the_answer_is_made(tiny: TinyEngine) -> None:
    """The events of the exchange, one by one, in the loop's own thread and before the exchange ends."""
    told, threads = [], set()

    async def run() -> Exchange:
        def listen(event: Event) -> None:
            told.append((event, clock.now_s()))
            threads.add(threading.current_thread())

        return await tiny.exchange(Request("hello", max_tokens=48), listen)

    found = asyncio.run(run())
    assert tuple(event for event, _ in told) == found.events
    assert told[0][1] < found.events[-1].stamp_s
    assert threads == {threading.current_thread()}
    assert found.joined("text") == answer(tiny, max_tokens=48).joined("text")


def test_tools_stand_in_the_prompt(tiny_model: Path) -> None:
    """They are handed to the chat template."""
    engine = TransformersEngine.start(spec("transformers", tiny_model))
    engine._tokenizer.chat_template += "{% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}"
    tools = [{"type": "function", "function": {"name": "weather"}}]
    bare, told = (
        sample_of(answer(engine, max_tokens=1, extra_body=extra)).prompt_tokens
        for extra in ({}, {"tools": tools})
    )
    assert bare is not None
    assert told == bare + len("weather")


def test_a_slowed_engine_is_measured_as_slower(tiny: TinyEngine) -> None:
    """token_delay_ms really delays each token."""
    slow = TinyEngine.start(spec("tiny", token_delay_ms=30))
    assert min(sample_of(answer(slow, max_tokens=5)).itl_ms) >= 30


def test_a_text_is_continued_as_it_stands(tiny: TinyEngine) -> None:
    """endpoint="completions" applies no chat template."""
    sample = sample_of(answer(tiny, "hello", endpoint="completions", max_tokens=2))
    assert sample.prompt_tokens == len("hello")


def test_what_an_engine_does_not_take_is_an_error(tiny: TinyEngine) -> None:
    """Unknown fields of extra_body, and messages without a template, fail the request by name."""
    assert "not ['stop']" in str(answer(tiny, extra_body={"stop": ["x"]}).error)
    messages = ({"role": "user", "content": "x"},)
    assert "takes a text" in str(answer(tiny, messages, endpoint="completions").error)


def test_sampling_follows_its_seed(tiny: TinyEngine) -> None:
    """With a temperature, one seed gives one answer, another seed another."""
    texts = [
        answer(tiny, max_tokens=20, temperature=1.0, extra_body={"seed": seed}).joined("text")
        for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


DEFAULTS: dict[str, dict[str, Any]] = {
    "penalties": {"repetition_penalty": 1.8, "encoder_repetition_penalty": 3.0, "no_repeat_ngram_size": 2},
    "sampling": {"do_sample": True, "temperature": 0.6, "top_k": 5, "min_p": 0.9, "typical_p": 0.2},
    "lengths": {"min_length": 40, "max_length": 5, "max_time": 0.001, "min_new_tokens": 30},
    "ends": {"stop_strings": ["a"], "forced_eos_token_id": 3, "exponential_decay_length_penalty": [1, 2.0]},
    "tokens": {
        "suppress_tokens": [5, 6],
        "begin_suppress_tokens": list(range(50)),
        "bad_words_ids": [[7], [8]],
        "sequence_bias": [[[9], 50.0]],
        "forced_bos_token_id": 4,
    },
    "strategies": {
        "num_beams": 3,
        "penalty_alpha": 0.6,
        "prompt_lookup_num_tokens": 3,
        "guidance_scale": 2.0,
    },
    "several": {
        "num_return_sequences": 3,
        "do_sample": True,
        "num_beam_groups": 3,
        "diversity_penalty": 0.5,
        "renormalize_logits": True,
    },
    "other": {
        "watermarking_config": {"greenlist_ratio": 0.2},
        "remove_invalid_values": True,
        "use_cache": False,
    },
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_models_own_defaults_change_no_answer(
    tiny: TinyEngine, tiny_model: Path, tmp_path: Path, name: str
) -> None:
    """Greedy is the argmax, and sampling draws as asked, whatever generation_config.json holds."""
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    (folder / "generation_config.json").write_text(json.dumps(DEFAULTS[name]))
    engine = TransformersEngine.start(spec("transformers", folder, threads=1))
    for temperature in (0.0, 0.9):
        found, expected = (
            answer(each, "say it, friend", max_tokens=24, temperature=temperature) for each in (engine, tiny)
        )
        assert found.error is None
        assert found.token_ids == expected.token_ids
    scores = [asyncio.run(each.score(Request("hello"), (1, 2, 3), 2)).logprobs for each in (engine, tiny)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)


def test_each_of_a_models_end_tokens_ends_an_answer(
    tiny: TinyEngine, tiny_model: Path, tmp_path: Path
) -> None:
    """Of generation_config.json the list of end tokens counts."""
    usual = answer(tiny, max_tokens=24).token_ids or ()
    end = usual[10]
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [end, 99]}))
    found = answer(TransformersEngine.start(spec("transformers", folder, threads=1)), max_tokens=24)
    assert found.finish_reason == "stop"
    assert found.token_ids == usual[: usual.index(end) + 1]


def test_a_prompt_that_fills_the_context_is_an_error(tiny: TinyEngine) -> None:
    """It names both lengths; one token less leaves room for an answer of one token."""
    context = 8192
    error = answer(tiny, "x" * context, endpoint="completions", max_tokens=4).error or ""
    assert f"the prompt has {context} tokens, the context is max_position_embeddings={context}" in error
    with pytest.raises(GenerationError, match=f"{context + 1} tokens, the context is {context}"):
        asyncio.run(tiny.score(Request("x" * context, endpoint="completions"), (1, 2), 1))


def test_an_answer_ends_where_the_context_does(tiny_model: Path, tmp_path: Path) -> None:
    """No token is generated at a position that the model does not have."""
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text()) | {"max_position_embeddings": 32}
    (folder / "config.json").write_text(json.dumps(config))
    engine = TransformersEngine.start(spec("transformers", folder, threads=1))
    found = sample_of(answer(engine, "x" * 30, endpoint="completions", max_tokens=10))
    assert (found.prompt_tokens, found.output_tokens, found.finish_reason) == (30, 2, "length")


@pytest.mark.parametrize(
    ("rope", "context"),
    [
        (None, 100),
        ({"rope_type": "default"}, 100),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 100}, 400),
        ({"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 50}, 100),
        ({"rope_type": "linear", "factor": 2.0}, 200),
        ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 12}, 100),
    ],
)
def test_a_stretched_context_is_known(rope: dict[str, Any] | None, context: int) -> None:
    """The scaling of rotary embeddings counts, unless max_position_embeddings is stretched already."""
    config = transformers.LlamaConfig(max_position_embeddings=100)
    config.rope_parameters = rope
    assert context_length(config) == context


def test_positions_without_end_have_no_context() -> None:
    """A model with ALiBi, or without attention, names none."""
    assert context_length(transformers.BloomConfig()) is None


def test_a_request_ends_at_its_time_limit(tiny: TinyEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that runs a second a look, the limit is met after some tokens, and said."""
    ticks = iter(range(10_000))
    monkeypatch.setattr(clock, "now_s", lambda: float(next(ticks)))
    found = answer(tiny, max_tokens=100, timeout_s=5)
    assert found.error == "timed out after 5 s, 6 tokens in"
    assert sample_of(found).ttft_ms is None


def test_a_cancelled_request_has_ended_when_the_wait_returns() -> None:
    """After an interruption no thread goes on generating."""
    before = our_threads()
    engine = TinyEngine.start(spec("tiny", token_delay_ms=20))
    loop = LoopThread()

    async def interrupted() -> None:
        request = asyncio.ensure_future(engine.exchange(Request("hello", max_tokens=5000)))
        await asyncio.sleep(0.05)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request

    loop.run(interrupted())
    assert engine._worker._work_queue.empty()
    assert loop.run(engine.exchange(Request("again", max_tokens=2))).error is None
    loop.run(engine.close())
    loop.close()
    assert our_threads() == before


def test_a_folder_is_loaded(tiny_model: Path, tiny: TinyEngine) -> None:
    """A folder of save_pretrained gives the same model; its name and a fingerprint key it, not its path."""
    engine = TransformersEngine.start(spec("transformers", tiny_model, "fp32"))
    assert answer(engine, max_tokens=8).joined("text") == answer(tiny, max_tokens=8).joined("text")
    assert engine.backend.model == tiny_model.name
    assert engine.backend.revision is not None
    assert len(engine.backend.revision) == 12
    assert engine.backend.versions.keys() == {"torch", "transformers"}


@pytest.mark.parametrize(("precision", "loaded"), [("fp16", "fp16"), ("bf16", "bf16"), (None, "fp32")])
def test_the_precision_is_read_back(tiny_model: Path, precision: str | None, loaded: str) -> None:
    """What is recorded is the dtype of the loaded weights."""
    engine = TransformersEngine.start(spec("transformers", tiny_model, precision))
    assert engine.backend.precision == loaded
    assert answer(engine, max_tokens=2).error is None


def test_a_model_that_loads_in_another_precision_is_an_error(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was asked is what runs, or the engine does not start."""
    monkeypatch.setattr("pytest_llmspeed.engines.local.precision.load_dtype", lambda torch, _: torch.float32)
    with pytest.raises(EngineError, match="requested in bf16, but loaded in fp32"):
        TransformersEngine.start(spec("transformers", tiny_model, "bf16"))


@pytest.mark.parametrize("loss", ["cut", "pointer", "no tokenizer"])
def test_a_folder_that_lost_something_is_told_whole(tiny_model: Path, tmp_path: Path, loss: str) -> None:
    """Weights that were cut off, or are but a pointer to them, or no tokenizer: one error says it."""
    model = tmp_path / "model"
    shutil.copytree(tiny_model, model)
    weights = model / "model.safetensors"
    if loss == "no tokenizer":
        for file in model.glob("*token*"):
            file.unlink()
    else:
        weights.write_bytes(weights.read_bytes()[:500] if loss == "cut" else b"version https://git-lfs/spec")
    with pytest.raises(EngineError, match=r"cannot be loaded: .*[^:]$"):
        TransformersEngine.start(spec("transformers", model))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threads": "x"}, "threads='x': must be a whole number"),
        ({"device": "cuda:9"}, "cannot be loaded"),
    ],
)
def test_options_that_the_library_refuses(tiny_model: Path, options: dict[str, Any], message: str) -> None:
    """Each is one error of the start."""
    with pytest.raises(EngineError, match=message):
        TransformersEngine.start(spec("transformers", tiny_model, **options))


def test_models_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder without a config, a missing path, a file that is no model, a broken model, no name."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (tmp_path / "notes.txt").write_text("no model")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{}")
    for model, message in (
        (tmp_path, "is a folder without a config.json: give a folder written by save_pretrained"),
        (tmp_path / "missing", "there is no such file or folder"),
        (tmp_path / "notes.txt", "is a file, but not a .gguf file"),
        (broken, "cannot be loaded"),
        ("nobody/no-such-model", "could not be loaded from the hub"),
        (None, "needs a model: set llmspeed_model"),
    ):
        with pytest.raises(EngineError, match=message):
            TransformersEngine.start(spec("transformers", model))


def test_a_model_says_what_differs_from_another_of_its_name(tiny_model: Path, tmp_path: Path) -> None:
    """Two folders of one name with other weights have other fingerprints."""
    copy = tmp_path / tiny_model.name
    shutil.copytree(tiny_model, copy)
    weights = bytearray((copy / "model.safetensors").read_bytes())
    weights[5000] ^= 1
    (copy / "model.safetensors").write_bytes(bytes(weights))
    engines = [TransformersEngine.start(spec("transformers", folder)) for folder in (tiny_model, copy)]
    assert engines[0].backend.model == engines[1].backend.model
    assert engines[0].backend.revision != engines[1].backend.revision


def test_the_pool_keeps_one_engine_a_device() -> None:
    """Leasing another spec stops the first; leasing the same again starts nothing."""
    before = our_threads()
    pool = Pool(Registry(BUILT_IN))
    first = pool.lease(spec("tiny"))
    assert pool.lease(spec("tiny")) is first
    second = pool.lease(spec("tiny", precision="bf16"))
    assert isinstance(first, TinyEngine)
    assert first._model is None
    assert second.backend.precision == "bf16"
    pool.close()
    assert our_threads() == before


def test_no_progress_bar_is_captured(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It would stand above the line that says why a test failed; afterwards the user's setting is back."""
    TransformersEngine.start(spec("transformers", tiny_model))
    assert capsys.readouterr().err == ""
    assert transformers.utils.logging.is_progress_bar_enabled()


def test_a_missing_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torch the engine names the extra."""
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(EngineError, match=r"torch is not installed: pip install 'pytest-llmspeed\[transf"):
        TinyEngine.start(spec("tiny"))


def test_smollm2_answers_rightly_within_its_budgets_and_against_its_baseline(
    project: Project, smollm2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real model from its GGUF file: a right answer, generous budgets, a baseline stored and compared."""
    monkeypatch.setattr(cpu, "read", lambda root: None)  # a busy machine would store nothing
    project.write(
        f"""
        import pytest

        @pytest.mark.llm_backend("transformers", model={str(smollm2)!r}, precision="fp32")
        @pytest.mark.llm_budget(ttft_ms=5000, tpot_ms=1500, error_rate=0)
        def test_sum(llm_client):
            answer = llm_client.measure("What is 2+3?", max_tokens=16, rounds=6, warmup=1)
            assert answer.text == "2 + 3 = 5"
            assert [s.finish_reason for s in answer.samples] == ["stop"] * 6
            paris = llm_client.generate(
                "The capital of France is", endpoint="completions", max_tokens=1, warmup=False, label="bare"
            )
            assert paris.text == " Paris"
        """
    )
    project.run("--llmspeed-update-baseline").assert_outcomes(passed=1)
    project.run()
    test = project.test()
    assert test["backend"]["model"] == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert {found["sessions"] for found in test["comparisons"] if found["label"] is None} == {1}
    first = test["measurement"]["requests"][0]
    assert (first["output_tokens"], first["prompt_tokens"]) == (8 - 1, 37)


def test_ctrl_c_in_the_middle_of_a_generation(project: Project) -> None:
    """An interruption ends the run at once: reported, nothing stored, no process and no thread left."""
    project.write(
        """
        import os, signal, threading

        def test_done(llm_client):
            llm_client.measure("hello", max_tokens=4)

        def test_interrupted(llm_client):
            llm_client.generate("hello", max_tokens=4)
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            llm_client.generate("hello", max_tokens=8000, warmup=False)
        """
    )
    result = project.pytester.runpytest_subprocess(
        "--llmspeed-backend=tiny", "--llmspeed-update-baseline", "--llmspeed-json=report.json", timeout=60
    )
    assert result.ret == pytest.ExitCode.INTERRUPTED
    shows(result, "interrupted after 1 request", "2 tests measured")
    assert [test["partial"] for test in project.report["tests"]] == [False, True]
    assert project.run_files == []
