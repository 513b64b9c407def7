"""The command line of `llmspeed`: what it loads, and how it meets the terminal."""

import os
import subprocess
import sys

import pytest
from helpers.reports import a_run

from pytest_llmspeed import __version__

HEAVY = {"numpy", "scipy", "pytest", "torch", "asyncio"}


def python(*arguments, **options):
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=60, **options
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("baseline", "list"),
        ("baseline", "log"),
        ("baseline", "show", "chat"),
        ("baseline", "prune"),
    ],
)
def test_what_only_reads_loads_nothing_heavy(folder, store, arguments):
    """No NumPy, SciPy or pytest for help and for looking at a store."""
    store(a_run(1))
    said = python("-X", "importtime", "-m", "pytest_llmspeed.cli", *arguments)
    assert said.returncode == 0, said.stderr
    loaded = {line.rpartition("|")[2].strip().split(".")[0] for line in said.stderr.splitlines()}
    assert "pytest_llmspeed" in loaded
    assert not loaded & HEAVY


def test_help_loads_one_room(folder):
    """The commands load when they are called."""
    said = python("-X", "importtime", "-m", "pytest_llmspeed.cli", "--help")
    rooms = {
        line.rpartition("|")[2].strip() for line in said.stderr.splitlines() if "pytest_llmspeed." in line
    }
    assert rooms <= {"pytest_llmspeed.cli", "pytest_llmspeed.cli.main", "pytest_llmspeed.errors"}
    assert "compare" in said.stdout


@pytest.mark.parametrize("arguments", [(), ("baseline",), ("compare", "one"), ("fly",)])
def test_wrong_arguments_are_told_with_the_usage(llmspeed, arguments):
    """Exit code 2, as for all bad input."""
    said = llmspeed(*arguments)
    assert said.code == 2
    assert "usage: llmspeed" in said.err


def test_a_reader_that_left_is_no_error(folder, store):
    """As in `llmspeed baseline log | head -1`."""
    store(*(a_run(day) for day in range(1, 29)))
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        child = subprocess.run(
            [sys.executable, "-m", "pytest_llmspeed.cli", "baseline", "log"],
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (child.returncode, child.stderr) == (0, "")


def test_a_terminal_without_our_letters_gets_question_marks(folder, store):
    """A dash that ASCII lacks is no traceback."""
    store(a_run(1))
    said = python(
        "-m", "pytest_llmspeed.cli", "baseline", "log", env={**os.environ, "PYTHONIOENCODING": "ascii"}
    )
    assert (said.returncode, said.stderr) == (0, "")
    assert "?" in said.stdout


def test_the_version_is_said(llmspeed):
    """As of the installed package."""
    said = llmspeed("--version")
    assert (said.code, said.out) == (0, f"pytest-llmspeed {__version__}\n")
