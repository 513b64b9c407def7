"""SmolLM2 on four engines, side by side, as one pytest run: `python benchmarks/side_by_side.py`.

It makes the environments of `make test-engines` where they are not there yet. The run is that of
`side_by_side/test_engines.py` in the environment of vLLM, which has transformers too; llama.cpp is
started as a server from its own. Further arguments go to pytest.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent
ROOT = HERE.parent


def loaded(path: Path) -> ModuleType:
    """A script of this project as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def saved_model(python: Path, gguf: Path) -> str:
    """The folder with the weights of a GGUF file as transformers saves them, made if need be."""
    code = "import pathlib, sys, smollm2_folder as s; print(s.smollm2_folder(pathlib.Path(sys.argv[1])))"
    made = subprocess.run(
        [python, "-c", code, gguf],
        cwd=ROOT / "tests" / "engine_contract",
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return made.stdout.splitlines()[-1]


def main() -> int:
    """Run the test on all engines; return pytest's exit code."""
    engines = loaded(ROOT / ".ci" / "engines.py")
    recipes = engines.recipes()
    vllm, llama_cpp = (engines.environment(name, recipes[name]) for name in ("vllm", "llama-cpp"))
    (gguf,) = (vllm.parent.parent / "lib").rglob("*.gguf")
    folder = saved_model(vllm, gguf)
    variables = {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": str(ROOT),
        "SIDE_BY_SIDE_FOLDER": folder,
        "SIDE_BY_SIDE_GGUF": str(gguf),
        "SIDE_BY_SIDE_LLAMA_CPP_PYTHON": str(llama_cpp),
        "VLLM_TARGET_DEVICE": "cpu",
    }
    command = [str(vllm), "-m", "pytest", "-p", "pytest_llmspeed.plugin", "-p", "no:cacheprovider", "-q"]
    command += ["-c", os.devnull, f"--rootdir={HERE}", *sys.argv[1:], str(HERE / "side_by_side")]
    return subprocess.run(command, env={**os.environ, **variables}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
