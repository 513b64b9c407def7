"""Options of the engine that are known only when the tests run."""

from __future__ import annotations

import os
from typing import Any

import pytest


@pytest.fixture(scope="session")
def llm_backend_options() -> dict[str, Any]:
    """Let the embedded engine wait before each token, as long as a model of some size would take.

    More of it shows the gate at work: EXAMPLE_TOKEN_DELAY_MS=45 pytest.
    """
    return {"token_delay_ms": float(os.environ.get("EXAMPLE_TOKEN_DELAY_MS", "20"))}
