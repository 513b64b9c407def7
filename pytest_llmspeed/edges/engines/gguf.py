"""The head of a GGUF file: what its weights are.

The library `gguf` takes seconds, since it reads the whole vocabulary; what is wanted here stands first.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, BinaryIO

from pytest_llmspeed.core.errors import EngineError

MAGIC = b"GGUF"
TYPE_KEY = "general.file_type"
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
TYPES = {
    0: "f32",
    1: "f16",
    2: "q4_0",
    3: "q4_1",
    7: "q8_0",
    8: "q5_0",
    9: "q5_1",
    10: "q2_k",
    11: "q3_k_s",
    12: "q3_k_m",
    13: "q3_k_l",
    14: "q4_k_s",
    15: "q4_k_m",
    16: "q5_k_s",
    17: "q5_k_m",
    18: "q6_k",
    19: "iq2_xxs",
    20: "iq2_xs",
    21: "q2_k_s",
    22: "iq3_xs",
    23: "iq3_xxs",
    24: "iq1_s",
    25: "iq4_nl",
    26: "iq3_s",
    27: "iq3_m",
    28: "iq2_s",
    29: "iq2_m",
    30: "iq4_xs",
    31: "iq1_m",
    32: "bf16",
    36: "tq1_0",
    37: "tq2_0",
    38: "mxfp4",
}
"""`general.file_type` → the name of the type that most weights of the file have."""


def weights_type(path: Path) -> str:
    """Return the type of most weights, as in "q4_1"; "unknown" where the file does not say.

    Raises `EngineError` for a file that is no GGUF.
    """
    try:
        with path.open("rb") as file:
            found = _find(file, TYPE_KEY)
    except (OSError, ValueError, KeyError, struct.error) as error:
        raise EngineError(f"model {str(path)!r} cannot be read as GGUF: {error}") from error
    return TYPES.get(found, "unknown")


def _find(file: BinaryIO, wanted: str) -> Any:
    """The value of a key, None where it is not among the file's."""
    if file.read(4) != MAGIC:
        raise ValueError("it does not begin as one")
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
