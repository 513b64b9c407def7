"""An engine spec as vLLM's arguments, and what vLLM's own configuration says of the engine that runs."""

from __future__ import annotations

from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from pytest_llmspeed.engines.base import AUTO, EngineSpec
from pytest_llmspeed.errors import EngineError

DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
QUANTIZATIONS = ("fp8", "awq", "gptq", "compressed-tensors", "bitsandbytes")
PRECISIONS = (*DTYPES, *QUANTIZATIONS)
PER_REQUEST_SPECULATION = "per_request_spec_decode_metrics"


def argument_problem(spec: EngineSpec, known: type) -> str | None:
    """Return what is wrong with a spec's options, None if each is an argument of `known` or our own."""
    names = {field.name for field in fields(known)} | {"prefix_cache"}
    for option in sorted(spec.options.keys() - names):
        near = get_close_matches(option, names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return f"vLLM has no engine argument {option!r}{hint} (its arguments: vllm serve --help=all)"
    return None


def arguments(spec: EngineSpec, location: str) -> dict[str, Any]:
    """Return the engine arguments of a spec; what its options say by vLLM's own names stands."""
    options = dict(spec.options)
    ours: dict[str, Any] = {
        "model": location,
        "enable_prefix_caching": options.pop("prefix_cache", "cold") == "warm",
    }
    if spec.precision in DTYPES:
        ours["dtype"] = DTYPES[spec.precision]
    elif spec.precision != AUTO:
        ours["quantization"] = spec.precision
    if options.get("speculative_config"):
        ours[PER_REQUEST_SPECULATION] = "summary"
    return ours | options


def precision_that_runs(config: Any, spec: EngineSpec) -> str:
    """The precision in the engine's configuration; raises `EngineError` if it is not the one asked for.

    A quantised model has the name of its quantisation, without that of the kernel that runs it.
    """
    model = config.model_config
    dtype = str(model.dtype).removeprefix("torch.")
    named = {dtype: name for name, dtype in DTYPES.items()}.get(dtype, dtype)
    runs = str(model.quantization).removesuffix("_marlin") if model.quantization else named
    if spec.precision not in (AUTO, runs):
        raise EngineError(
            f"model {spec.model!r} was requested in {spec.precision}, but vLLM runs it in {runs}"
        )
    return runs


def prefix_cache_that_runs(config: Any, spec: EngineSpec) -> str:
    """Return how the prefix cache is configured; raises `EngineError` if that is not what was asked for."""
    runs = "warm" if config.cache_config.enable_prefix_caching else "cold"
    asked = spec.options.get("prefix_cache", runs)
    if asked != runs:
        raise EngineError(f"prefix_cache={asked!r} was requested, but vLLM runs with a {runs} one")
    return runs


def reason(error: Exception) -> str:
    """Return what an error of vLLM says, in a line: of a failed validation the first complaint."""
    complaints = getattr(error, "errors", None)
    if callable(complaints) and (first := next(iter(complaints()), None)):
        return str(first["msg"])
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
