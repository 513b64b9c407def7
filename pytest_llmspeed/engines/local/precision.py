"""Precisions of a torch model: how it gets the one asked for, and which one its weights really have.

Quantised by torchao: PyTorch's own, released every other month, no further dependencies, the same
integer weights on the CPU and on CUDA, and it takes any loaded model, one from a .gguf file too.
(optimum-quanto was last released in March 2025; the four bits of bitsandbytes are floats, and its int8
computes in fp16.) Weights only, computed in bf16; the output layer stays as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from pytest_llmspeed.engines.base import AUTO
from pytest_llmspeed.errors import EngineError

DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
LIBRARIES = {
    "int8": ("torchao.quantization",),
    "int4": ("torchao.quantization", "torchao.prototype.quantization.int4"),
}
QUANTISED = tuple(LIBRARIES)
COMPUTED_IN = "bf16"
GROUP = 32
"""The number of weights in a row that share an int4 scale, as in the four-bit types of GGUF."""
INSTALL = "pip install 'pytest-llmspeed[quantization]'"


def load_dtype(torch: Any, precision: str) -> Any:
    """Return the dtype that a model is loaded in for a precision: what quantised weights are made from."""
    if precision == AUTO:
        return "auto"
    return getattr(torch, DTYPES[COMPUTED_IN if precision in QUANTISED else precision])


def quantise(model: Any, precision: str) -> None:
    """Turn the weights of a loaded model into integers, in place and on its device; raises `EngineError`."""
    try:
        from torchao.quantization import Int8WeightOnlyConfig, quantize_

        chosen = list(_layers(model))
        how = Int8WeightOnlyConfig(set_inductor_config=False) if precision == "int8" else _int4(model, chosen)
        quantize_(model, how, filter_fn=lambda module, _: any(module is layer for layer in chosen))
    except ImportError as error:
        raise EngineError(f"precision {precision!r} needs torchao 0.18: {INSTALL} ({error})") from error
    except (RuntimeError, ValueError, AssertionError) as error:  # no kernel for this device, most often
        raise EngineError(
            f"the weights cannot be converted to {precision} on {model.device}: {error}"
        ) from error
    _let_go_of_the_file(model)


def _let_go_of_the_file(model: Any) -> None:
    """Copy what was not quantised: as long as one weight is a view of the mapped file, all of it stays."""
    for parameter in model.parameters():
        if _kind(parameter) not in QUANTISED:
            parameter.data = parameter.data.clone()


def _int4(model: Any, layers: list[Any]) -> Any:
    """The kernels that torch itself has: of CUDA, or of the CPU."""
    if odd := {layer.in_features for layer in layers if layer.in_features % GROUP}:
        raise EngineError(
            f"precision 'int4' quantises groups of {GROUP} weights, and layers of this model have "
            f"{', '.join(map(str, sorted(odd)))} inputs, which is not a multiple of it: use int8"
        )
    if model.device.type == "cuda":
        from torchao.quantization import Int4WeightOnlyConfig

        return Int4WeightOnlyConfig(
            group_size=GROUP, int4_packing_format="tile_packed_to_4d", set_inductor_config=False
        )
    if model.device.type != "cpu":
        raise EngineError(f"precision 'int4' runs on the CPU and on CUDA, not on {model.device.type}")
    from torchao.prototype.quantization.int4 import PrototypeInt4WeightOnlyConfig

    return PrototypeInt4WeightOnlyConfig(group_size=GROUP, set_inductor_config=False)


def checked(model: Any, asked: str, name: str | None) -> str:
    """Return the precision of the weights of a model; raises `EngineError` if another was asked for."""
    loaded = read_back(model)
    if asked not in (AUTO, loaded):
        raise EngineError(f"model {name!r} was requested in {asked}, but loaded in {loaded}")
    return loaded


def read_back(model: Any) -> str:
    """Return what most weights of the linear layers are: a dtype, integers, or the checkpoint's method."""
    own = getattr(model.config, "quantization_config", None) or {}
    own = own if isinstance(own, Mapping) else vars(own)
    if "quant_method" in own and not own.get("dequantize"):
        return str(getattr(own["quant_method"], "value", own["quant_method"]))
    weights: Counter[str] = Counter()
    for layer in _layers(model):
        weights[_kind(layer.weight)] += layer.weight.numel()
    return weights.most_common(1)[0][0] if weights else _kind(next(model.parameters()))


def _kind(weight: Any) -> str:
    """The precision of one tensor: torchao's are classes of their own, named after their integers."""
    own = type(weight).__name__.lower()
    for precision in QUANTISED:
        if own.startswith(precision):
            return precision
    dtype = str(weight.dtype).removeprefix("torch.")
    return {dtype: name for name, dtype in DTYPES.items()}.get(dtype, dtype)


def _layers(model: Any) -> Iterator[Any]:
    """The linear layers but the output layer, whose weights are the embedding's in many models."""
    from torch.nn import Linear

    head = model.get_output_embeddings()
    return (module for module in model.modules() if isinstance(module, Linear) and module is not head)
