"""How the packages stand to each other, and what a start loads; `lint-imports` holds the layers."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "pytest_llmspeed"
NAME = PACKAGE.name
LONGEST = 400
HEAVY = ("asyncio", "ssl", "multiprocessing", "scipy", "numpy", "openai", "torch", "transformers")
LIGHT = ("hooks", "hookspecs", "options", "outcome", "fixtures", "state")
"""The modules of the plugin that each run of pytest loads."""


def modules() -> dict[str, Path]:
    """Module name, without the package's own, to its file; the packages' docstring files left out."""
    paths = (path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
    return {".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in paths}


def imports(path: Path) -> set[str]:
    """All modules that a file imports anywhere, also late and for type checking."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def package_of(module: str) -> str:
    """The package of a module; modules of the top level are packages of their own."""
    return module.partition(".")[0]


def package_imports() -> Iterator[tuple[str, str]]:
    """Each import of one package by another, deferred imports included."""
    known = modules()
    for module, path in known.items():
        for name in imports(path):
            target = name.removeprefix(f"{NAME}.")
            if name != target and target in known and package_of(target) != package_of(module):
                yield package_of(module), package_of(target)


def test_no_packages_import_each_other() -> None:
    """Neither directly nor around a corner; an error is annotated with the sample that it carries."""
    graph: dict[str, set[str]] = {}
    for package, target in set(package_imports()) - {("errors", "metrics")}:
        graph.setdefault(package, set()).add(target)
    assert list(TopologicalSorter(graph).static_order())[-1] in ("plugin", "cli")


@pytest.mark.parametrize("module", sorted(modules()))
def test_a_module_is_of_a_readable_length(module: str) -> None:
    """A file of more than 400 lines is two modules."""
    assert len(modules()[module].read_text(encoding="utf-8").splitlines()) <= LONGEST


def loaded_by(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after running some code."""
    shown = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys, pytest; before = set(sys.modules); {code}; print(*(set(sys.modules) - before))",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(shown.stdout.split())


def test_the_import_of_the_plugin_is_light() -> None:
    """It loads no asyncio, ssl, multiprocessing, SciPy, NumPy, openai, and few rooms of its own."""
    loaded = loaded_by("import pytest_llmspeed.plugin.hooks")
    assert not {name for name in loaded if name.split(".")[0] in HEAVY}
    rooms = {name.removeprefix(f"{NAME}.") for name in loaded if name.startswith(f"{NAME}.")}
    assert rooms == {"plugin", *("plugin." + room for room in LIGHT)}


def test_the_watchdog_is_the_standard_library_alone() -> None:
    """It starts quickly and depends on nothing that a test run could have bent."""
    names = {name.partition(".")[0] for name in imports(PACKAGE / "engines/watchdog.py")}
    assert names <= set(sys.stdlib_module_names)


def test_nothing_shadows_a_library() -> None:
    """No module of ours is called like a library that it uses."""
    taken = {"vllm", "transformers", "openai", "torch", "llama_cpp"}
    assert not {name.split(".")[-1] for name in modules()} & taken


def test_each_class_has_a_name_of_its_own() -> None:
    """A reader who searches for a class finds one."""
    classes = [
        node.name
        for path in modules().values()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    assert {name for name in classes if classes.count(name) > 1} == set()
