"""What each recipe makes of what was asked: command line, environment and files, as the engine takes them."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pytest_llmspeed.engines.base import EngineSpec
from pytest_llmspeed.engines.model_files import ModelSource
from pytest_llmspeed.engines.servers import recipes
from pytest_llmspeed.engines.servers._server import LlamaCppServer
from pytest_llmspeed.engines.servers.custom_server import own_server
from pytest_llmspeed.engines.servers.launch import Launch, LaunchPlace, LaunchRequest, ServerOptions, launch
from pytest_llmspeed.engines.servers.recipes import Recipe
from pytest_llmspeed.errors import EngineError

if TYPE_CHECKING:
    from pathlib import Path

PLACE = LaunchPlace(port=8123, key="secret", folder="/tmp/f", container="box")


def launched(recipe: Recipe, precision: str | None = None, **options: Any) -> Launch:
    order = LaunchRequest.of(EngineSpec.of("some-server", "org/model", precision, options), recipe)
    return launch(order, PLACE)


def launched_gguf(recipe: Recipe, **options: Any) -> Launch:
    source = ModelSource("m.gguf", "/models", {"gguf_file": "m.gguf"}, "f1")
    spec = EngineSpec.of("some-server", "/models/m.gguf", None, options)
    return launch(LaunchRequest(spec, recipe, ServerOptions.of(options), source), PLACE)


def words(launch: Launch) -> str:
    return " ".join(launch.command)


def test_vllm() -> None:
    """All that is asked of vLLM has its argument; the key goes through the environment."""
    made = launched(
        recipes.VLLM,
        "bf16",
        context_length=2048,
        max_concurrency=8,
        tensor_parallel=2,
        memory_fraction=0.5,
        enforce_eager=True,
        trust_remote_code=False,
        cpu_kv_cache_gib=1,
        extra_args=["--seed", "7"],
    )
    assert words(made) == (
        f"{sys.executable} -m vllm.entrypoints.openai.api_server --model org/model "
        "--served-model-name org/model --host 127.0.0.1 --port 8123 --generation-config vllm "
        "--enable-prompt-tokens-details --dtype bfloat16 --no-enable-prefix-caching "
        "--max-model-len 2048 --enforce-eager --max-num-seqs 8 "
        "--gpu-memory-utilization 0.5 --tensor-parallel-size 2 --seed 7"
    )
    assert made.env == {"VLLM_API_KEY": "secret", "VLLM_CPU_KVCACHE_SPACE": "1"}
    assert made.files == {}


def test_sglang() -> None:
    """SGLang's prefix cache is its radix cache."""
    made = launched(recipes.SGLANG, "fp8", context_length=2048, max_concurrency=8, tensor_parallel=2)
    assert words(made) == (
        f"{sys.executable} -m sglang.launch_server --model-path org/model --served-model-name org/model "
        "--host 127.0.0.1 --port 8123 --sampling-defaults openai --enable-cache-report --enable-metrics "
        "--api-key secret --quantization fp8 --disable-radix-cache --context-length 2048 "
        "--max-running-requests 8 --tensor-parallel-size 2"
    )
    assert "--disable-radix-cache" not in launched(recipes.SGLANG, prefix_cache="warm").command


def test_tensorrt_llm() -> None:
    """What trtllm-serve has no argument for stands in its file of options."""
    made = launched(recipes.TENSORRT_LLM, "bf16", context_length=2048, max_concurrency=8, memory_fraction=0.5)
    assert words(made) == (
        "trtllm-serve org/model --host 127.0.0.1 --port 8123 --extra_llm_api_options /tmp/f/options.yaml "
        "--max_seq_len 2048 --max_batch_size 8"
    )
    assert json.loads(made.files["options.yaml"]) == {
        "dtype": "bfloat16",
        "kv_cache_config": {"enable_block_reuse": False, "free_gpu_memory_fraction": 0.5},
    }
    fp8 = launched(recipes.TENSORRT_LLM, "fp8", prefix_cache="warm")
    assert json.loads(fp8.files["options.yaml"]) == {
        "quant_config": {"quant_algo": "FP8"},
        "kv_cache_config": {"enable_block_reuse": True},
    }


def test_llama_server() -> None:
    """Each request turns the model's own penalties off and makes llama-server forget the last prompt."""
    made = launched_gguf(
        recipes.LLAMA_SERVER, context_length=2048, max_concurrency=2, threads=4, gpu_layers=99
    )
    assert words(made) == (
        "llama-server --model /models/m.gguf --alias m.gguf --host 127.0.0.1 --port 8123 --metrics "
        "--no-context-shift --ctx-size 2048 --n-gpu-layers 99 --parallel 2 --threads 4"
    )
    assert made.env == {"LLAMA_API_KEY": "secret"}
    plain = {"repeat_penalty": 1.0, "xtc_probability": 0.0, "mirostat": 0}
    assert made.body == {**plain, "cache_prompt": False}
    warm = launched_gguf(recipes.LLAMA_SERVER, prefix_cache="warm")
    assert warm.body == {**plain, "cache_prompt": True}


def test_the_server_of_llama_cpp_python() -> None:
    """Its own ideas are turned off: a second request ends the first, repetitions are penalised."""
    made = launched_gguf(recipes.LLAMA_CPP_PYTHON, context_length=2048, threads=4)
    assert words(made).endswith(
        " --model /models/m.gguf --model_alias m.gguf --host 127.0.0.1 --port 8123 "
        "--interrupt_requests false --n_ctx 2048 --n_threads 4"
    )
    assert made.body == {"repeat_penalty": 1.0}
    assert made.env == {"HOST": "127.0.0.1", "PORT": "8123", "API_KEY": "secret", recipes.COLD: "cold"}


def test_another_environment_s_python(tmp_path: Path) -> None:
    """executable= stands for the Python of a module, or for the program itself."""
    assert launched(recipes.VLLM, executable="/opt/v/bin/python").command[0] == "/opt/v/bin/python"
    assert (
        launched(recipes.TENSORRT_LLM, executable="/opt/t/trtllm-serve").command[0] == "/opt/t/trtllm-serve"
    )


def test_llama_server_is_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The binary is taken where there is one, else the Python package; executable= decides it."""

    def recipe(**options: Any) -> Recipe:
        return LlamaCppServer.recipe_for(EngineSpec.of("llama-cpp-server", "m", None, options))

    monkeypatch.setenv("PATH", str(tmp_path))
    assert recipe() is recipes.LLAMA_CPP_PYTHON
    (tmp_path / "llama-server").write_text("#!/bin/sh\n")
    (tmp_path / "llama-server").chmod(0o755)
    assert recipe() is recipes.LLAMA_SERVER
    assert recipe(executable="/opt/l/bin/python3.11") is recipes.LLAMA_CPP_PYTHON
    assert recipe(executable="/opt/l/bin/llama-server") is recipes.LLAMA_SERVER


def test_a_command_of_one_s_own() -> None:
    """Placeholders are filled, a text is split as a shell would, other braces stay."""
    options = {"command": "serve 'my model' --at {host}:{port} --json '{\"a\": 1}' {model}"}
    made = launched(own_server(options, ()), **options)
    assert made.command == (
        "serve", "my model", "--at", "127.0.0.1:8123", "--json", '{"a": 1}', "org/model",
    )  # fmt: skip
    assert made.end == ()


def test_a_container_runs_under_a_name_by_which_it_is_ended() -> None:
    """Its port is published on this machine only; inside, it listens on its own."""
    options: dict[str, Any] = {
        "image": "vllm/vllm-openai:v1",
        "command": ["--model", "{model}", "--port", "{port}"],
        "runtime": "podman",
        "container_args": "--gpus all",
        "env": {"HF_TOKEN": "hf"},
    }
    made = launched(own_server(options, ()), **options)
    assert words(made) == (
        "podman run --rm --name box --publish 127.0.0.1:8123:8000 --env HF_TOKEN --gpus all "
        "vllm/vllm-openai:v1 --model org/model --port 8000"
    )
    assert made.end == ("podman", "rm", "-f", "box")
    assert made.env == {"HF_TOKEN": "hf"}


MISTAKES = {
    "prefix_cache='hot': known: cold, warm": {"prefix_cache": "hot"},
    "port='x': a port is a number from 1 to 65535": {"port": "x"},
    "start_timeout_s=-1: it is a positive number of seconds": {"start_timeout_s": -1},
    "env=['A']: it maps names of environment variables to values": {"env": ["A"]},
    "extra_args=7: it is a list of words": {"extra_args": 7},
    "extra_args='a \"b': it is a list of words, or a text that a shell would split (No closing": {
        "extra_args": 'a "b'
    },
    "llama-cpp-python does not support max_concurrency=4: leave it out": {"max_concurrency": 4},
}


@pytest.mark.parametrize("message", MISTAKES)
def test_senseless_options_are_named(message: str) -> None:
    """Before anything is started."""
    with pytest.raises(EngineError) as raised:
        launched_gguf(recipes.LLAMA_CPP_PYTHON, **MISTAKES[message])
    assert message in str(raised.value)


def test_llama_cpp_takes_a_gguf_file() -> None:
    """A hub id is refused before anything is started."""
    with pytest.raises(EngineError, match=r"model 'org/model': llama\.cpp takes a \.gguf file"):
        launched(recipes.LLAMA_SERVER)


def test_a_server_needs_a_command_or_an_image() -> None:
    """The message shows one."""
    with pytest.raises(EngineError, match="needs command="):
        own_server({}, ())
