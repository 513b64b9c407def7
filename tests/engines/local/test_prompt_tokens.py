"""The chat template gives the same tokens on every engine: the list that each is held against."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import transformers

from pytest_llmspeed import EngineSpec, Request
from pytest_llmspeed.engines import gguf
from pytest_llmspeed.engines.local.transformers_generation import encoded
from pytest_llmspeed.engines.registry import BUILT_IN, Registry

FILE = Path(__file__).parents[2] / "engine_contract" / "prompt_tokens.json"
PROMPTS = json.loads(FILE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", PROMPTS)
def test_transformers_makes_these_tokens(smollm2_folder: Path, name: str) -> None:
    """SmolLM2's own tokenizer and template; llama.cpp is held against the same list elsewhere."""
    case = PROMPTS[name]
    prompt = case["prompt"] if isinstance(case["prompt"], str) else tuple(case["prompt"])
    tokenizer = transformers.AutoTokenizer.from_pretrained(smollm2_folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(smollm2_folder)
    request = Request(prompt, endpoint=case["endpoint"])
    assert encoded(model, tokenizer, request)["input_ids"][0].tolist() == case["tokens"]


def test_the_types_of_gguf_are_those_of_its_own_library() -> None:
    """Number by number, so that a file's precision is called by its name."""
    from gguf import LlamaFileType

    theirs = {kind.value: kind.name.lower() for kind in LlamaFileType}
    newer = {"mxfp4"}  # than the library, some versions of it
    for number, name in gguf.TYPES.items():
        assert name in newer or theirs[number] in (f"all_{name}", f"mostly_{name}")


def test_a_mistyped_option_of_llama_cpp_is_answered_with_the_nearest() -> None:
    """Before any start, and where its library is not installed too."""
    spec = EngineSpec.of("llama-cpp", "m.gguf", "q4_k", {"n_thread": 4, "prefix_cache": "hot"})
    found = list(Registry(BUILT_IN).problems(spec))
    for problem, told in zip(
        found, ("did you mean 'q4_k_s'", "no prefix_cache='hot'", "did you mean 'n_threads'"), strict=True
    ):
        assert told in problem
