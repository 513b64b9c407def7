"""What was asked is what runs: dtypes, int8 and int4 read back from loaded models; NaN and Inf are told."""

from __future__ import annotations

import asyncio
import struct
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from pytest_llmspeed import EngineError, Exchange, Request
from pytest_llmspeed.engines import gguf
from pytest_llmspeed.engines.base import EngineSpec
from pytest_llmspeed.engines.local import _tiny, precision
from pytest_llmspeed.engines.local._transformers import TransformersEngine
from pytest_llmspeed.engines.registry import BUILT_IN, Registry

SUM = "What is 2+3?"


def started(model: Path, asked: str | None, **options: Any) -> TransformersEngine:
    return TransformersEngine.start(EngineSpec.of("transformers", str(model), asked, options))


def answer(engine: TransformersEngine, prompt: str = "hello", **request: Any) -> Exchange:
    async def run() -> Exchange:
        return await engine.exchange(Request(prompt, **request))

    return asyncio.run(run())


@pytest.mark.parametrize("asked", ["int8", "int4"])
def test_a_quantised_model_still_answers_rightly(smollm2_folder: Path, asked: str) -> None:
    """SmolLM2 with integer weights: read back from its layers, smaller, and right."""
    engine = started(smollm2_folder, asked)
    assert engine.backend.precision == asked
    assert answer(engine, SUM, max_tokens=7).joined("text").startswith("2 + 3 = 5")


def test_a_gguf_file_is_dequantised_and_may_be_quantised_anew(smollm2: Path) -> None:
    """What runs is not what is in the file, and both are recorded."""
    engine = started(smollm2, "int8")
    assert engine.backend.precision == "int8"
    assert engine.backend.options["weights"] == "q4_1, dequantised"


@pytest.mark.parametrize("asked", ["int8", "int4"])
def test_the_output_layer_is_left_alone(tiny_model: Path, asked: str) -> None:
    """Its weights are the embedding's in many models, and answers depend on it most."""
    model = started(tiny_model, asked)._model
    assert type(model.lm_head.weight) is torch.nn.Parameter
    assert model.lm_head.weight.dtype is torch.bfloat16
    assert {precision.read_back(model)} == {asked}


def test_layers_that_were_left_out_are_noticed(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that quantises nothing, or little, does not pass for one that does."""
    monkeypatch.setattr("torchao.quantization.quantize_", lambda *_, **__: None)
    with pytest.raises(EngineError, match="was requested in int8, but loaded in bf16"):
        started(tiny_model, "int8")


def test_a_width_that_no_group_fits_is_an_error() -> None:
    """The message names the width and the way out."""
    config = transformers.LlamaConfig(
        vocab_size=99, hidden_size=64, intermediate_size=100, num_hidden_layers=1, num_attention_heads=4
    )
    with pytest.raises(EngineError, match="have 100 inputs, which is not a multiple of it: use int8"):
        precision.quantise(transformers.LlamaForCausalLM(config), "int4")


def test_without_torchao_the_error_says_what_to_install(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The extra is named."""
    monkeypatch.setitem(sys.modules, "torchao.quantization", None)
    with pytest.raises(EngineError, match=r"needs torchao 0.18: pip install 'pytest-llmspeed\[quanti"):
        started(tiny_model, "int4")


def test_a_checkpoint_that_is_quantised_says_by_what() -> None:
    """The dtype of a GPTQ or AWQ model is that of its other weights: its own method is read back."""
    model = _tiny._build(torch, transformers, "fp32")
    model.config.quantization_config = {"quant_method": "gptq", "bits": 4}
    assert precision.read_back(model) == "gptq"


@pytest.fixture
def overflowing(tmp_path: Path) -> Path:
    """A model whose values fit bf16, but not fp16."""
    model = _tiny._build(torch, transformers, "fp32")
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight *= 1e9
    model.save_pretrained(tmp_path / "large")
    _tiny._tokenizer(transformers).save_pretrained(tmp_path / "large")
    return tmp_path / "large"


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_an_fp16_model_that_overflows_is_told_with_bf16_as_the_way_out(
    overflowing: Path, temperature: float
) -> None:
    """Its answer is no answer, greedy or sampled; in bf16 it is one."""
    found = answer(started(overflowing, "fp16"), max_tokens=4, temperature=temperature)
    assert found.error is not None
    assert "the logits are NaN or Inf" in found.error
    assert "use bf16" in found.error
    assert answer(started(overflowing, "bf16"), max_tokens=4, temperature=temperature).error is None


def test_a_forced_length_does_not_stop_at_the_end_of_the_answer(smollm2_folder: Path) -> None:
    """SmolLM2 is done after seven tokens; with output_tokens= it gives as many as are asked for."""
    engine = started(smollm2_folder, "bf16")
    free, forced = answer(engine, SUM, max_tokens=24), answer(engine, SUM, output_tokens=24)
    assert (free.finish_reason, free.usage and free.usage.output_tokens) == ("stop", 7)
    assert (forced.finish_reason, forced.usage and forced.usage.output_tokens) == ("length", 24)


@pytest.mark.parametrize("backend", ["tiny", "transformers"])
def test_a_warm_prefix_cache_is_refused_before_any_start(backend: str) -> None:
    """`generate` begins each request without a cache: what cannot be had is a mistake of the mark."""
    registry = Registry(BUILT_IN)
    warm = EngineSpec.of(backend, "m", None, {"prefix_cache": "warm"})
    cold = EngineSpec.of(backend, "m", None, {"prefix_cache": "cold"})
    assert list(registry.problems(warm)) == [f"backend {backend!r} has no prefix_cache='warm'; known: cold"]
    assert list(registry.problems(cold)) == []


def test_the_type_of_a_gguf_file_is_read_from_its_head(smollm2: Path, tmp_path: Path) -> None:
    """By its own word; a file that is none, or is cut, is an error that names it."""
    assert gguf.weights_type(smollm2) == "q4_1"
    (tmp_path / "cut.gguf").write_bytes(smollm2.read_bytes()[:40])
    (tmp_path / "text.gguf").write_text("no model")
    (tmp_path / "huge.gguf").write_bytes(b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**63))
    whats = {"cut": "cannot be read", "text": "it has no GGUF header", "huge": "cannot be read as GGUF"}
    for name, message in whats.items():
        with pytest.raises(EngineError, match=message):
            gguf.weights_type(tmp_path / f"{name}.gguf")
