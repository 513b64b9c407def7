"""The environments of `make test-engines`, and SmolLM2 as a folder, for scripts that start real engines."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Self

ROOT = Path(__file__).parent.parent


def loaded(path: Path) -> ModuleType:
    """A script of this project as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} cannot be loaded")
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def environment(name: str) -> Path:
    """The interpreter of an environment, which is made if it is not there."""
    engines = loaded(ROOT / ".ci" / "engines.py")
    python: Path = engines.environment(name, engines.recipes()[name])
    return python


@dataclass(frozen=True)
class VLLM:
    """An interpreter that has vLLM, the GGUF file of SmolLM2-135M-Instruct, and its weights in fp32."""

    python: Path
    gguf: Path
    folder: str

    @classmethod
    def here(cls) -> Self:
        """What there is of it, the rest made."""
        python = environment("vllm")
        (gguf,) = (python.parent.parent / "lib").rglob("*.gguf")
        return cls(python, gguf, _saved_model(python))

    @property
    def server(self) -> dict[str, Any]:
        """Model, precision and options of a `vllm-server` that is small and quick to start on a CPU."""
        return {
            "model": self.folder,
            "precision": "fp32",
            "executable": str(self.python),
            "enforce_eager": True,
            "cpu_kv_cache_gib": 1,
            "context_length": 2048,
            "env": {"VLLM_TARGET_DEVICE": "cpu", "VLLM_NO_USAGE_STATS": "1"},
        }


def _saved_model(python: Path) -> str:
    """The folder with the weights of its GGUF file as transformers saves them, made if need be."""
    made = subprocess.run(
        [python, "-c", "from helpers import smollm2_files; print(smollm2_files.smollm2_folder())"],
        cwd=ROOT / "tests",
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return made.stdout.splitlines()[-1]
