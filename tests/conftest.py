"""What all tests share: pytester projects on a scripted engine, whose clock is its script."""

from __future__ import annotations

import gc
import logging
import tempfile
import warnings

import numpy as np  # noqa: F401  (loaded once a process: pytester would load it anew in each run)
import pytest
import scipy.stats  # noqa: F401
import torch._dynamo  # noqa: F401
import transformers  # noqa: F401
from support import Project

from pytest_llmspeed.edges.machine import JOB_IDS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    import torchao  # noqa: F401  (its operators can be registered only once a process)

    logging.disable(logging.NOTSET)

pytest_plugins = ["pytester"]
collect_ignore = ["engine_contract"]  # run by make test-engines, in environments that hold an engine
pytest.register_assert_rewrite("wire_cases")


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    for known in JOB_IDS:
        monkeypatch.delenv(known.variable, raising=False)
    for variable in ("CI", "BUILD_NUMBER", "GITHUB_STEP_SUMMARY"):  # pytest, and the plugin, print more there
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TMPDIR", str(pytester.mkdir("tmp")))  # locks of its own: nobody else to wait for
    monkeypatch.setattr(tempfile, "tempdir", None)
    gc.collect()
    gc.freeze()  # each start of an engine looks for garbage: not again among all that was imported
    return Project(pytester, monkeypatch)
