"""Hooks by which other plugins and conftest files extend pytest-llmspeed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest


@pytest.hookspec()
def pytest_llmspeed_backends(config: pytest.Config) -> Mapping[str, str]:
    """Return further backends: name → "module:Class" of a `pytest_llmspeed.Engine`.

    The class is loaded when a test first asks for its name. A name given by several is taken from
    the plugin registered last. What a conftest gives is known to the tests below it.
    """
    raise NotImplementedError
