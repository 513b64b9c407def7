"""Real models: the small seeded one as a folder, and SmolLM2 as a GGUF file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from helpers.project import Project
from helpers.smollm2_files import smollm2_folder as saved_smollm2
from helpers.smollm2_files import smollm2_gguf
from helpers.stage import Stage

from pytest_llmspeed.engines.local import _tiny
from pytest_llmspeed.system import cpu


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the small seeded model, as save_pretrained writes it."""
    folder = tmp_path_factory.mktemp("tiny-model")
    _tiny._build(torch, transformers, "fp32").save_pretrained(folder)
    _tiny._tokenizer(transformers).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct as a GGUF file."""
    return smollm2_gguf()


@pytest.fixture
def stage(project: Project, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(cpu, "read", lambda root: None)  # the machine that runs these tests may be busy
    return Stage(project, monkeypatch)


@pytest.fixture(scope="session")
def smollm2_folder() -> Path:
    """The same model as a folder of save_pretrained."""
    return saved_smollm2()
