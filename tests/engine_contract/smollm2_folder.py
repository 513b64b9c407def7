"""SmolLM2 as a folder of save_pretrained, made once from its GGUF file, for engines that read no GGUF."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path


def smollm2_folder(gguf: Path) -> Path:
    """Return the folder with the same weights in float32, which lies in the user's cache."""
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
