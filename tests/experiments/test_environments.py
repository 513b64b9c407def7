"""Overlay environments: what is asked comes first, everything else is of this environment."""

import shlex
import subprocess
import zipfile

import pytest

from pytest_llmspeed.errors import LLMSpeedError
from pytest_llmspeed.experiments import environments
from pytest_llmspeed.experiments.environments import COMPLETE, overlay


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "pytest-llmspeed" / "overlays"


@pytest.fixture
def wheel(tmp_path):
    """A package that stands in for one that this environment has too: tabulate, version 99."""
    path = tmp_path / "tabulate-99.0-py3-none-any.whl"
    info = "tabulate-99.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tabulate.py", "VERSION = 99\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tabulate\nVersion: 99.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return f"--no-index {shlex.quote(str(path))}"


def seen_by(python):
    """What an interpreter imports, without the test's own paths."""
    code = "import tabulate, pytest_llmspeed, pytest; print(tabulate.VERSION, pytest_llmspeed.__file__)"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True, cwd="/")
    return done.stdout.rstrip().split(maxsplit=1)


def test_what_is_asked_comes_before_what_is_there_and_is_made_once(cache, wheel):
    """The second time nothing is made; one that a killed process left half made is made anew."""
    import pytest_llmspeed

    said = []
    python = overlay(wheel, said.append)
    assert seen_by(python) == ["99", pytest_llmspeed.__file__]
    assert len(said) == 1
    assert overlay(wheel, said.append) == python
    assert len(said) == 1
    (python.parents[1] / COMPLETE).unlink()
    (python.parents[1] / "lib").rename(python.parents[1] / "half")
    assert seen_by(overlay(wheel, said.append))[0] == "99"
    assert len(said) == 2


def test_what_cannot_be_installed_is_told_with_the_last_lines_of_pip(cache):
    """And nothing passes for an environment."""
    with pytest.raises(
        LLMSpeedError, match=r"pip failed with exit code 1: .*install.* no-such-package==1"
    ) as told:
        overlay("--no-index no-such-package==1", lambda line: None)
    assert "No matching distribution found" in str(told.value)
    assert not list(cache.glob(f"*/{COMPLETE}"))


def test_the_name_changes_with_what_lies_beneath(monkeypatch):
    """An overlay is not used over an environment that has changed since."""
    before = environments._name(["a==1"])
    assert environments._name(["a==2"]) != before
    monkeypatch.setattr(environments, "distributions", list)
    assert environments._name(["a==1"]) != before
