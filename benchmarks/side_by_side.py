"""SmolLM2 on four engines, side by side, as one pytest run: `python benchmarks/side_by_side.py`.

It makes the environments of `make test-engines` where they are not there yet. The run is that of
`side_by_side/test_engines.py` in the environment of vLLM, which has transformers too; llama.cpp is
started as a server from its own. Further arguments go to pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from vllm_here import ROOT, VLLM, environment

HERE = Path(__file__).parent


def main() -> int:
    """Run the test on all engines; return pytest's exit code."""
    vllm, llama_cpp = VLLM.here(), environment("llama-cpp")
    variables = {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": str(ROOT),
        "SIDE_BY_SIDE_FOLDER": vllm.folder,
        "SIDE_BY_SIDE_GGUF": str(vllm.gguf),
        "SIDE_BY_SIDE_LLAMA_CPP_PYTHON": str(llama_cpp),
        "VLLM_TARGET_DEVICE": "cpu",
    }
    command = [str(vllm.python), "-m", "pytest", "-q", "-p", "pytest_llmspeed.plugin.hooks"]
    command += ["-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={HERE}"]
    command += [*sys.argv[1:], str(HERE / "side_by_side")]
    return subprocess.run(command, env={**os.environ, **variables}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
