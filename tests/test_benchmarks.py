"""Benchmarks run by hand: that they find what they import is known before somebody needs one."""

from __future__ import annotations

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OPTIONAL = {"vllm", "llama_cpp", "playwright"}
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


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_finds_the_modules_beside_it(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other scripts, and what the tests share; libraries of the engines may be absent."""
    for folder in (script.parent, ROOT / "tests", ROOT / "benchmarks"):
        monkeypatch.syspath_prepend(str(folder))
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        for name in names:
            assert name.partition(".")[0] in OPTIONAL or find_spec(name) is not None, name
