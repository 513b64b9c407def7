"""Benchmarks run by hand: that they find what they import is known before somebody needs one."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted([*ROOT.glob("benchmarks/**/*.py"), *ROOT.glob(".ci/*.py")])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_finds_what_it_imports_of_the_package(script: Path) -> None:
    """Names that were moved or renamed are missed here."""
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pytest_llmspeed"):
            home = import_module(str(node.module))
            for alias in node.names:
                if not hasattr(home, alias.name):
                    import_module(f"{node.module}.{alias.name}")
