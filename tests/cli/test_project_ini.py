"""The project's settings as `llmspeed` commands find them: where pytest does."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_llmspeed.cli.project_ini import project_ini
from pytest_llmspeed.errors import SettingsError

SETTINGS_FILES = ("pytest.toml", "pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
SET = "llmspeed_store = 'kept'"


@pytest.fixture
def sub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, two folders below that of the project."""
    folder = tmp_path / "tests" / "speed"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", f"[tool.pytest.ini_options]\n{SET}"),
        ("pyproject.toml", f"[tool.pytest]\n{SET}"),
        ("pytest.toml", f"[pytest]\n{SET}"),
        ("pytest.ini", "[pytest]\nllmspeed_store = kept"),
        ("tox.ini", "[pytest]\nllmspeed_store = kept"),
        ("setup.cfg", "[tool:pytest]\nllmspeed_store = kept"),
    ],
)
def test_the_store_is_that_of_the_ini_file_above(sub: Path, name: str, text: str) -> None:
    """Its path starts from that file's folder, and is shown from the working directory."""
    (sub.parent.parent / name).write_text(text)
    assert project_ini(sub).store == Path("../../kept")


def test_an_absolute_store_stays_as_it_is(sub: Path) -> None:
    """It is the user's own."""
    (sub / "pytest.ini").write_text(f"[pytest]\nllmspeed_store = {sub}/far")
    assert project_ini(sub).store == sub / "far"


def test_files_that_do_not_configure_pytest_are_passed_over(sub: Path) -> None:
    """As pytest does: a tox.ini of tox, a pyproject.toml of a formatter."""
    (sub / "tox.ini").write_text("[tox]\nenvlist = py")
    (sub / "pyproject.toml").write_text("[tool.black]\nline-length = 9")
    (sub.parent / "pytest.ini").write_text("[pytest]\nllmspeed_store = kept")
    assert project_ini(sub).store == Path("../kept")


def test_without_settings_the_store_has_its_default_place(sub: Path) -> None:
    """Beside the pyproject.toml that pytest takes for the root, else in the working directory."""
    if any((above / name).exists() for above in sub.parents for name in SETTINGS_FILES):
        pytest.skip("the folder for temporary files lies in a project")
    assert project_ini(sub).store == Path(".llmspeed/baselines")
    (sub.parent / "pyproject.toml").write_text("[tool.black]")
    assert project_ini(sub).store == Path("../.llmspeed/baselines")


def test_an_empty_pytest_ini_is_the_projects(sub: Path) -> None:
    """It hides what lies above."""
    (sub.parent.parent / "pytest.ini").write_text("[pytest]\nllmspeed_store = kept")
    (sub.parent / "pytest.ini").write_text("")
    assert project_ini(sub).store == Path("../.llmspeed/baselines")


@pytest.mark.parametrize(
    ("name", "text"), [("pyproject.toml", "[tool"), ("pytest.ini", "[pytest\n"), ("tox.ini", "a line\n")]
)
def test_a_file_that_cannot_be_read_is_named(sub: Path, name: str, text: str) -> None:
    """One sentence, with the way around it."""
    (sub / name).write_text(text)
    with pytest.raises(SettingsError, match=rf"{name} cannot be read: .*name the store: --store"):
        project_ini(sub)
