"""`llmspeed bisect`: real worktrees and real runs of pytest on the scripted engine."""

import json
import shutil
import subprocess

import pytest
from helpers.project import CONFTEST, INI, SCRIPTED_ENGINE

LAST, BROKEN, SLOW = 4, 1, 3
TESTS = """
def test_chat(llm_client):
    llm_client.measure("Say something.", max_tokens=8)
"""


def git(folder, *arguments):
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(folder, monkeypatch):
    """Commits v0 to v4: v1 does not build, v3 is slower by a fifth, as is v4."""
    monkeypatch.setenv("SCRIPTED_SEED", "1")
    shutil.copy(SCRIPTED_ENGINE, folder / "scripted_engine.py")
    (folder / "pytest.ini").write_text(INI)
    (folder / "test_it.py").write_text(TESTS)
    git(folder, "init", "-q")
    for number in range(LAST + 1):
        factor = 1.2 if number >= SLOW else 1.0
        slow = f"import os\nos.environ['SCRIPTED_FACTOR'] = '{factor}'\n{CONFTEST}\n# {number}\n"
        (folder / "conftest.py").write_text("raise ImportError\n" if number == BROKEN else slow)
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", f"number {number}")
        git(folder, "tag", f"v{number}")
    return folder


def test_the_first_slow_commit_is_found_and_an_interrupted_search_goes_on(llmspeed, repository):
    """Measured against its parent at the end; what an interrupted search knew is not measured again."""
    said = llmspeed("bisect", "v0", "v4", "--form", "runs")
    assert said.code == 0, said.err
    assert "followed: t" in said.out
    assert "the first slow commit (probability" in said.out
    assert f"number {SLOW}" in said.out
    assert "confirmed: +20%" in said.out
    assert len(git(repository, "worktree", "list").splitlines()) == 1
    (search,) = (repository / ".llmspeed" / "bisect").iterdir()
    state = json.loads((search / "search.json").read_text())
    assert (state["steps"][0]["old"], state["steps"][0]["new"]) == (0, LAST)
    assert (state["steps"][-1]["old"], state["steps"][-1]["new"]) == (SLOW - 1, SLOW)

    (search / "search.json").write_text(json.dumps({**state, "steps": state["steps"][:-1]}))
    again = llmspeed("bisect", "--json", "--resume", str(search))
    assert f"taken up after {len(state['steps']) - 1} step" in again.err
    assert "step 1:" not in again.err
    (culprit,) = again.json["culprits"]
    assert culprit["commit"] == git(repository, "rev-parse", f"v{SLOW}").strip()
    assert culprit["probability"] > 0.9


def test_a_bad_commit_that_measures_nothing_is_an_error(llmspeed, repository):
    """Without it nothing is known of the slowdown."""
    said = llmspeed("bisect", "v0", f"v{BROKEN}", "--form", "runs")
    assert said.code == 2
    assert "measured nothing" in said.err


def test_a_range_that_is_not_slower_has_nothing_to_search(llmspeed, repository):
    """v0 to v2 are alike."""
    said = llmspeed("bisect", "v0", "v2", "--form", "runs")
    assert said.code == 125
    assert "number 2 is not slower than" in said.out
    assert "nothing to search" in said.out


def test_a_set_up_that_fails_skips_a_commit_but_not_the_good_one(llmspeed, repository):
    """With the good one nothing can be measured."""
    said = llmspeed("bisect", "v0", "v4", "--setup", "false")
    assert said.code == 2
    assert "the set-up of " in said.err


@pytest.mark.parametrize(
    ("arguments", "said_of_it"),
    [
        (["v0"], "name two revisions"),
        (["v0", "v9"], "has no commit 'v9'"),
        (["v3", "v0"], "name the older, good one first"),
        (["v0", "v3", "--with", "ref=v2"], "name the revisions as GOOD and BAD"),
        (["--resume", "nowhere"], "holds no search"),
        (["--resume", "here", "v0", "v3"], "leave them out"),
    ],
)
def test_a_mistake_is_named_with_the_fix(llmspeed, repository, arguments, said_of_it):
    """Before anything is measured."""
    said = llmspeed("bisect", *arguments)
    assert said.code == 2
    assert said_of_it in said.err
