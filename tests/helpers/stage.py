"""A pytester project whose servers are stand-ins, and what those noted."""

from __future__ import annotations

import json
import shlex
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from helpers.project import Project

STAND_IN = Path(__file__).parent / "stand_in_server.py"
STAND_IN_COMMAND = shlex.join([sys.executable, str(STAND_IN)])
OWN = f"{STAND_IN_COMMAND} plain --host {{host}} --port {{port}} --model {{model}}"
"""A command of the user's own."""


class Stage:
    """A project whose servers are stand-ins, and what those noted."""

    def __init__(self, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
        self.project, self._monkeypatch = project, monkeypatch
        self._notes = project.path / "notes"
        self.fault("")

    def fault(self, name: str) -> None:
        """What goes wrong from now on."""
        self._monkeypatch.setenv("STAND_IN_FAULT", name)
        self._monkeypatch.setenv("STAND_IN_NOTES", str(self._notes))

    def program(self, engine: str) -> str:
        """An executable that stands in for an engine's."""
        path = self.project.path / f"stand-in-{engine}"
        path.write_text(f'#!/bin/sh\nexec {STAND_IN_COMMAND} {engine} "$@"\n')
        path.chmod(0o755)
        return str(path)

    def gguf(self) -> str:
        """A file that passes for a model where none is loaded: its head, with weights of type q8_0."""
        path = self.project.path / "m.gguf"
        key = b"general.file_type"
        path.write_bytes(b"GGUF" + struct.pack(f"<IQQQ{len(key)}sII", 3, 0, 1, len(key), key, 4, 7))
        return str(path)

    def write(self, backend: str, body: str, **options: Any) -> None:
        """Write one test on a backend."""
        options = {"model": "org/model", **options}
        self.project.write(
            f"""
            import pytest

            @pytest.mark.llm_backend({backend!r}, **{options!r})
            class TestServer:
                {body}
            """
        )

    def run(self, backend: str, body: str, *arguments: str, **options: Any) -> pytest.RunResult:
        """Write one test on a backend, and run it."""
        self.write(backend, body, **options)
        return self.project.run(*arguments)

    def noted(self, what: str) -> list[Any]:
        """What the servers noted, in order."""
        lines = self._notes.read_text().splitlines() if self._notes.exists() else []
        return [line[what] for line in map(json.loads, lines) if what in line]
