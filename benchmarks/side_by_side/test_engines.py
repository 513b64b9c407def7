"""One prompt on four engines: the table at the end of the run is what this is for.

Run by `benchmarks/side_by_side.py`, which says where the engines and the model are.
"""

from __future__ import annotations

import os

import pytest

from pytest_llmspeed import LLMClient

FOLDER = os.environ["SIDE_BY_SIDE_FOLDER"]
"""SmolLM2-135M-Instruct in fp32, as transformers saves it."""
GGUF = os.environ["SIDE_BY_SIDE_GGUF"]
"""The file that it was made from."""
LLAMA_CPP_PYTHON = os.environ["SIDE_BY_SIDE_LLAMA_CPP_PYTHON"]
"""The interpreter of an environment that has llama-cpp-python."""
VLLM_ON_CPU = {"VLLM_TARGET_DEVICE": "cpu"}


@pytest.mark.llm_backend("transformers", model=FOLDER, precision="fp32", threads=1)
@pytest.mark.llm_backend(
    "vllm",
    model=FOLDER,
    precision="fp32",
    enforce_eager=True,
    kv_cache_memory_bytes=2**30,
    max_model_len=2048,
)
@pytest.mark.llm_backend(
    "vllm-server",
    model=FOLDER,
    precision="fp32",
    enforce_eager=True,
    cpu_kv_cache_gib=1,
    context_length=2048,
    env=VLLM_ON_CPU,
)
@pytest.mark.llm_backend(
    "llama-cpp-server",
    model=GGUF,
    executable=LLAMA_CPP_PYTHON,
    context_length=2048,
    threads=1,
    extra_args=["--n_threads_batch", "1"],
)
def test_a_sentence(llm_client: LLMClient) -> None:
    """The same length of answer on all of them."""
    llm_client.measure("Explain KV caching in one sentence.", output_tokens=32, timeout_s=300)
