"""How each engine is launched as a server: data, by the engines' own names for things."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_llmspeed.engines import gguf
from pytest_llmspeed.transport.vendor_fields import PROTOCOL_ONLY, SALT, VALUE, VendorFields

PYTHON = "{python}"
OPTIONS_FILE = "options.yaml"


@dataclass(frozen=True, slots=True)
class LaunchFragment:
    """How something that was asked for reaches an engine: as any of these, or several.

    `arguments` of its command line, variables of its environment, entries of its configuration file
    (a dotted name is a nested one), fields of the body of each request. In all of them `{value}`
    stands for what was asked, `{python}`, `{host}`, `{port}`, `{model}`, `{name}`, `{key}`,
    `{folder}` and `{container}` for what the launch decides.
    """

    arguments: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)

    def filled(self, values: Mapping[str, Any]) -> LaunchFragment:
        """The same with the placeholders of `values` replaced; an entry that is one becomes its value."""
        return LaunchFragment(
            tuple(filled(word, values) for word in self.arguments),
            {name: filled(text, values) for name, text in self.env.items()},
            {name: _entry(entry, values) for name, entry in self.config.items()},
            {name: _entry(entry, values) for name, entry in self.body.items()},
        )

    def __add__(self, other: LaunchFragment) -> LaunchFragment:
        return LaunchFragment(
            self.arguments + other.arguments,
            {**self.env, **other.env},
            {**self.config, **other.config},
            {**self.body, **other.body},
        )


def filled(text: str, values: Mapping[str, Any]) -> str:
    """Return `text` with the placeholders that `values` knows replaced; other braces stay."""
    for name, value in values.items():
        text = text.replace(name, str(value))
    return text


def _entry(entry: Any, values: Mapping[str, Any]) -> Any:
    return values.get(entry, filled(entry, values)) if isinstance(entry, str) else entry


@dataclass(frozen=True, slots=True)
class Recipe:
    """One engine as a server.

    `base` is always in force, `options`, `precisions` and `prefix_cache` (its default first) as asked.
    `key` is how it learns the API key that it shall ask for. `vendor_fields` are what its requests may
    hold beyond the protocol, whether it was started here or answers at a URL.

    The paths are of its HTTP interface: `health`, `metrics`, `count` (which counts the tokens of a
    text, for an engine that sends no counts), and `versions`, each with the names that lead to the
    version in its answer. `config_file` is the name of its configuration file, `container` the command
    that ends the container that it runs in.
    """

    engine: str
    program: tuple[str, ...]
    install: str
    base: LaunchFragment
    options: Mapping[str, LaunchFragment] = field(default_factory=dict)
    precisions: Mapping[str, LaunchFragment] = field(default_factory=dict)
    prefix_cache: Mapping[str, LaunchFragment] = field(default_factory=dict)
    vendor_fields: VendorFields = PROTOCOL_ONLY
    key: LaunchFragment = field(default_factory=LaunchFragment)
    health: str = "/v1/models"
    metrics: str | None = None
    count: str | None = None
    versions: tuple[tuple[str, ...], ...] = ()
    config_file: str | None = None
    container: tuple[str, ...] = ()
    needs_gguf: bool = False


def _argument(name: str) -> LaunchFragment:
    return LaunchFragment(arguments=(name, VALUE))


def _flag(name: str) -> LaunchFragment:
    return LaunchFragment(arguments=(name,))


TOKENS_OF_EVENTS = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
"""Asks for the tokens so far with each event: how many it carries is then known, not assumed."""
EXACT = {"ignore_eos": True, "min_tokens": VALUE}
GREEDY = {"repetition_penalty": 1.0}
DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
THE_FILES = dict.fromkeys(gguf.PRECISIONS, LaunchFragment())
"""Precisions that are those of the model's file: there is nothing to tell the engine."""

VLLM = Recipe(
    engine="vllm",
    program=(PYTHON, "-m", "vllm.entrypoints.openai.api_server"),
    install="pip install vllm, or executable= with the Python of the environment that has it",
    # the sampling defaults that a model brings along (a repetition penalty, say) would make greedy
    # answers other than those of an engine that does not read them
    base=LaunchFragment(
        arguments=(
            *("--model", "{model}", "--served-model-name", "{name}"),
            *("--host", "{host}", "--port", "{port}"),
            *("--generation-config", "vllm", "--enable-prompt-tokens-details"),
        ),
        body=TOKENS_OF_EVENTS,
    ),
    options={
        "context_length": _argument("--max-model-len"),
        "max_concurrency": _argument("--max-num-seqs"),
        "tensor_parallel": _argument("--tensor-parallel-size"),
        "memory_fraction": _argument("--gpu-memory-utilization"),
        "cpu_kv_cache_gib": LaunchFragment(env={"VLLM_CPU_KVCACHE_SPACE": VALUE}),
        "enforce_eager": _flag("--enforce-eager"),
        "revision": _argument("--revision"),
        "trust_remote_code": _flag("--trust-remote-code"),
    },
    precisions={
        **{name: LaunchFragment(arguments=("--dtype", dtype)) for name, dtype in DTYPES.items()},
        **{
            name: LaunchFragment(arguments=("--quantization", name))
            for name in ("fp8", "awq", "gptq", "compressed-tensors", "bitsandbytes")
        },
    },
    prefix_cache={"cold": _flag("--no-enable-prefix-caching"), "warm": _flag("--enable-prefix-caching")},
    vendor_fields=VendorFields(
        "vllm", EXACT, GREEDY, cold={"cache_salt": SALT}, token_ids={"return_token_ids": True}
    ),
    key=LaunchFragment(env={"VLLM_API_KEY": "{key}"}),
    health="/health",
    metrics="/metrics",
    versions=(("/version", "version"),),
)

SGLANG = Recipe(
    engine="sglang",
    program=(PYTHON, "-m", "sglang.launch_server"),
    install="pip install 'sglang[all]', or executable= with the Python of the environment that has it",
    base=LaunchFragment(
        arguments=(
            *("--model-path", "{model}", "--served-model-name", "{name}"),
            *("--host", "{host}", "--port", "{port}"),
            *("--sampling-defaults", "openai", "--enable-cache-report", "--enable-metrics"),
        ),
        body=TOKENS_OF_EVENTS,
    ),
    options={
        "context_length": _argument("--context-length"),
        "max_concurrency": _argument("--max-running-requests"),
        "tensor_parallel": _argument("--tensor-parallel-size"),
        "memory_fraction": _argument("--mem-fraction-static"),
        "revision": _argument("--revision"),
        "trust_remote_code": _flag("--trust-remote-code"),
    },
    precisions={
        **{name: LaunchFragment(arguments=("--dtype", dtype)) for name, dtype in DTYPES.items()},
        **{
            name: LaunchFragment(arguments=("--quantization", name))
            for name in ("fp8", "awq", "gptq", "compressed-tensors", "bitsandbytes", "w8a8_int8")
        },
    },
    prefix_cache={"cold": _flag("--disable-radix-cache"), "warm": LaunchFragment()},
    vendor_fields=VendorFields("sglang", EXACT, GREEDY, cold={"cache_salt": SALT}),
    key=LaunchFragment(arguments=("--api-key", "{key}")),
    health="/health",
    metrics="/metrics",
    versions=(("/server_info", "version"), ("/get_server_info", "version")),
)

TENSORRT_LLM = Recipe(
    engine="tensorrt-llm",
    program=("trtllm-serve",),
    install="pip install tensorrt-llm (a CUDA GPU is needed), or executable= with the path of trtllm-serve",
    base=LaunchFragment(
        arguments=(
            *("{model}", "--host", "{host}", "--port", "{port}"),
            *("--extra_llm_api_options", f"{{folder}}/{OPTIONS_FILE}"),
        )
    ),
    options={
        "context_length": _argument("--max_seq_len"),
        "max_concurrency": _argument("--max_batch_size"),
        "tensor_parallel": _argument("--tp_size"),
        # not by its argument: an entry of the file's kv_cache_config replaces what arguments say
        "memory_fraction": LaunchFragment(config={"kv_cache_config.free_gpu_memory_fraction": VALUE}),
        "trust_remote_code": _flag("--trust_remote_code"),
    },
    precisions={
        **{name: LaunchFragment(config={"dtype": dtype}) for name, dtype in DTYPES.items()},
        "fp8": LaunchFragment(config={"quant_config.quant_algo": "FP8"}),
        "nvfp4": LaunchFragment(config={"quant_config.quant_algo": "NVFP4"}),
    },
    prefix_cache={
        "cold": LaunchFragment(config={"kv_cache_config.enable_block_reuse": False}),
        "warm": LaunchFragment(config={"kv_cache_config.enable_block_reuse": True}),
    },
    vendor_fields=VendorFields("tensorrt_llm", EXACT),
    health="/health",
    metrics="/metrics",
    versions=(("/version", "version"),),
    config_file=OPTIONS_FILE,
)

LLAMA_SERVER_FIELDS = VendorFields(
    "llamacpp",
    forced={"ignore_eos": True},
    # a GGUF file may bring penalties and samplers along: XTC drops the likeliest token, greedy or not
    plain={"repeat_penalty": 1.0, "xtc_probability": 0.0, "mirostat": 0},
    cold={"cache_prompt": False},
)
LLAMA_SERVER = Recipe(
    engine="llama.cpp",
    program=("llama-server",),
    install="brew install llama.cpp or a release of llama.cpp, or executable= with the path of llama-server",
    base=LaunchFragment(
        arguments=(
            *("--model", "{model}", "--alias", "{name}"),
            *("--host", "{host}", "--port", "{port}", "--metrics", "--no-context-shift"),
        ),
        body=LLAMA_SERVER_FIELDS.plain,
    ),
    options={
        "context_length": _argument("--ctx-size"),
        "max_concurrency": _argument("--parallel"),
        "threads": _argument("--threads"),
        "gpu_layers": _argument("--n-gpu-layers"),
    },
    precisions=THE_FILES,
    prefix_cache={
        "cold": LaunchFragment(body=LLAMA_SERVER_FIELDS.cold or {}),
        "warm": LaunchFragment(body={"cache_prompt": True}),
    },
    vendor_fields=LLAMA_SERVER_FIELDS,
    key=LaunchFragment(env={"LLAMA_API_KEY": "{key}"}),
    health="/health",
    metrics="/metrics",
    versions=(("/props", "build_info"),),
    needs_gguf=True,
)

COLD = "LLMSPEED_PREFIX_CACHE"
PYTHON_SERVER = f"""
import os
from llama_cpp import Llama
from llama_cpp.server.__main__ import main

generate = Llama.generate

def generate_cold(self, *args, **kwargs):
    self.reset()
    return generate(self, *args, **kwargs)

if os.environ.get("{COLD}") == "cold":
    Llama.generate = generate_cold
main()
"""
"""The server of llama-cpp-python keeps the last prompt and has no switch for it; its model can be reset."""

# "me" is what it calls itself in its list of models
LLAMA_CPP_PYTHON_FIELDS = VendorFields("me", forced={"min_tokens": VALUE}, plain={"repeat_penalty": 1.0})
LLAMA_CPP_PYTHON = Recipe(
    engine="llama-cpp-python",
    program=(PYTHON, "-c", PYTHON_SERVER),
    install="pip install 'llama-cpp-python[server]' or install llama-server; or name one with executable=",
    # a second request would end the first, repetitions are penalised, and HOST and PORT of the
    # environment win over its arguments, unless told otherwise
    base=LaunchFragment(
        arguments=(
            *("--model", "{model}", "--model_alias", "{name}"),
            *("--host", "{host}", "--port", "{port}", "--interrupt_requests", "false"),
        ),
        env={"HOST": "{host}", "PORT": "{port}"},
        body=LLAMA_CPP_PYTHON_FIELDS.plain,
    ),
    options={
        "context_length": _argument("--n_ctx"),
        "threads": _argument("--n_threads"),
        "gpu_layers": _argument("--n_gpu_layers"),
    },
    precisions=THE_FILES,
    prefix_cache={"cold": LaunchFragment(env={COLD: "cold"}), "warm": LaunchFragment(env={COLD: "warm"})},
    vendor_fields=LLAMA_CPP_PYTHON_FIELDS,
    key=LaunchFragment(env={"API_KEY": "{key}"}),
    versions=(("/openapi.json", "info", "version"),),
    count="/extras/tokenize/count",
    needs_gguf=True,
)

RECIPES = (VLLM, SGLANG, TENSORRT_LLM, LLAMA_SERVER, LLAMA_CPP_PYTHON)
KNOWN_FIELDS = {recipe.vendor_fields.owned_by: recipe.vendor_fields for recipe in RECIPES}


def vendor_fields_of(owned_by: str | None) -> VendorFields:
    """Return what a server takes that calls itself `owned_by` in its list of models."""
    return KNOWN_FIELDS.get(owned_by or "", PROTOCOL_ONLY)
