"""The head of a GGUF file: what its weights are.

The library `gguf` takes seconds, since it reads the whole vocabulary; what is wanted here stands first.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, BinaryIO

from pytest_llmspeed.engines.base import AUTO
from pytest_llmspeed.errors import EngineError

MAGIC = b"GGUF"
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
NAMES = (
    "f32 f16 q4_0 q4_1 - - - q8_0 q5_0 q5_1 q2_k q3_k_s q3_k_m q3_k_l q4_k_s q4_k_m q5_k_s q5_k_m q6_k "
    "iq2_xxs iq2_xs q2_k_s iq3_xs iq3_xxs iq1_s iq4_nl iq3_s iq3_m iq2_s iq2_m iq4_xs iq1_m bf16 - - - "
    "tq1_0 tq2_0 mxfp4"
)
TYPES = {number: name for number, name in enumerate(NAMES.split()) if name != "-"}
"""`general.file_type` → the name of the type that most weights of the file have."""
SAME = {"fp32": "f32", "fp16": "f16"}
"""The words that other engines have for a type of GGUF."""
PRECISIONS = (*SAME, *TYPES.values())
"""The precisions that an engine accepts if it runs a file unchanged."""


def checked(path: Path, asked: str, name: str | None) -> str:
    """Return the type of a file's weights; raises `EngineError` if it is not the one asked for."""
    weights = weights_type(path)
    if asked != AUTO and SAME.get(asked, asked) != weights:
        raise EngineError(
            f"model {name!r} was requested in {asked}, but the file's weights are {weights}: "
            "use a file in that precision, or convert it with llama-quantize"
        )
    return weights


def weights_type(path: Path) -> str:
    """Return the type of most weights, as in "q4_1"; "unknown" where the file does not say.

    Raises `EngineError` for a file that is no GGUF.
    """
    return TYPES.get(_value_of(path, "general.file_type"), "unknown")


def context_length(path: Path) -> int | None:
    """Return how many tokens of context the model was made for; None where the file does not say."""
    architecture = _value_of(path, "general.architecture")
    found = _value_of(path, f"{architecture}.context_length")
    return found if isinstance(found, int) else None


def _value_of(path: Path, key: str) -> Any:
    try:
        with path.open("rb") as file:
            return _find(file, key)
    except (OSError, ValueError, KeyError, OverflowError, MemoryError, struct.error) as error:
        raise EngineError(f"model {str(path)!r} cannot be read as GGUF: {error}") from error


def _find(file: BinaryIO, wanted: str) -> Any:
    """The value of a key, None where it is not among the file's."""
    if file.read(4) != MAGIC:
        raise ValueError("it has no GGUF header")
    _version, _tensors, keys = _read(file, "IQQ")
    for _ in range(keys):
        key, value = _string(file), _value(file, *_read(file, "I"))
        if key == wanted:
            return value
    return None


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == STRING:
        return _string(file)
    if kind == ARRAY:
        kind, count = _read(file, "IQ")
        return [_value(file, kind) for _ in range(count)]
    return _read(file, SCALARS[kind])[0]


def _string(file: BinaryIO) -> str:
    (length,) = _read(file, "Q")
    return file.read(length).decode("utf-8", "replace")


def _read(file: BinaryIO, fields: str) -> tuple[Any, ...]:
    fields = f"<{fields}"
    return struct.unpack(fields, file.read(struct.calcsize(fields)))
