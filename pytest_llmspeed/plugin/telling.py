"""Lines that have to be seen now, while pytest captures what is written."""

from __future__ import annotations

from contextlib import nullcontext

import pytest


def tell_now(config: pytest.Config, message: str) -> None:
    """Write lines to the terminal at once."""
    from pytest_llmspeed.text.harmless import harmless_lines

    terminal = config.pluginmanager.get_plugin("terminalreporter")
    capture = config.pluginmanager.get_plugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        if terminal:
            terminal.ensure_newline()
            for line in harmless_lines(message).splitlines():
                terminal.write_line(line)
