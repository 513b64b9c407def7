"""`llmspeed ab`: real child runs of pytest on the scripted engine, whose times are a script."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers.project import CONFTEST, INI, SCRIPTED_ENGINE

from pytest_llmspeed.cli.main import STOPS_BISECT

TESTS = """
def test_chat(llm_client):
    llm_client.measure("Say something.", max_tokens=8)
"""


@pytest.fixture
def project(folder, monkeypatch):
    """A project on the scripted engine: SCRIPTED_FACTOR says how slow a side is."""
    monkeypatch.setenv("SCRIPTED_SEED", "1")
    shutil.copy(SCRIPTED_ENGINE, folder / "scripted_engine.py")
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text(INI)
    (folder / "test_it.py").write_text(TESTS)
    return folder


def slow(factor):
    return f"env.SCRIPTED_FACTOR={factor}"


@pytest.mark.parametrize("form", ["pairs", "runs"])
def test_a_slower_side_is_exit_code_1(llmspeed, project, form):
    """In both forms, with the figures of both sides and what differs between them."""
    said = llmspeed("ab", "--old", slow(1), "--new", slow(1.3), "--form", form)
    assert said.code == 1, said.err
    assert "NEW is slower than OLD" in said.out
    assert "differs: env.SCRIPTED_FACTOR: 1 → 1.3" in said.out
    assert f"{form}: " in said.out
    assert "+30%" in said.out
    assert "block 1 of at most 5 took" in said.err


def test_the_same_side_twice_is_not_slower(llmspeed, project):
    """It stops at the first look, and says what it would have seen."""
    said = llmspeed("ab", "--json", "--new", slow(1), "--form", "pairs")
    found = said.json
    assert (said.code, found["verdict"], found["blocks"]) == (0, "passed", 3)
    assert {test["identity"] for test in found["tests"]} == {"test_it.py::test_chat"}
    assert 1.03 <= found["visible"] < 1.10


def test_two_blocks_of_a_slowdown_that_is_too_small_stay_undecided(llmspeed, project):
    """Exit code 125, which `git bisect run` skips, and the way to go on."""
    said = llmspeed("ab", "--old", slow(1), "--new", slow(1.08), "--form", "runs", "--blocks", "2")
    assert said.code == 125
    assert "undecided: a slowdown of" in said.out
    assert "more blocks may decide it: --blocks 4" in said.out


def test_arguments_of_pytest_choose_the_tests(llmspeed, project):
    """What stands after -- goes to pytest as it is."""
    (project / "test_it.py").write_text(TESTS + TESTS.replace("test_chat", "test_other"))
    said = llmspeed("ab", "--json", "--new", slow(1), "--blocks", "2", "--", "-k", "other", "test_it.py")
    assert [test["identity"] for test in said.json["tests"]] == ["test_it.py::test_other"]


def test_a_side_that_measures_nothing_is_told_with_its_last_lines(llmspeed, project):
    """It cannot be tested: exit code 125."""
    said = llmspeed("ab", "--new", "backend=nonsense")
    assert said.code == 125
    assert "the new side (backend=nonsense) measured nothing: pytest --llmspeed-backend=nonsense" in said.err
    assert "no backend is called 'nonsense'" in said.err


@pytest.mark.parametrize(
    ("arguments", "said_of_it"),
    [
        (["ab"], "name the sides"),
        (["ab", "--old", "modle=x"], "did you mean 'model'?"),
        (["ab", "--old", "ref=v1"], "needs a git repository"),
        (["ab", "--new", "python=/nowhere/python"], "there is no such program"),
        (["ab", "--resume", "nowhere"], "holds no experiment"),
        (["ab", "--resume", "here", "--old", "ref=v1"], "leave them out"),
        (["ab", "--blocks", "1"], "at least 2 blocks"),
        (["ab", "--limit", "soon"], "a number of minutes above 0"),
    ],
)
def test_a_mistake_stops_git_bisect(llmspeed, folder, arguments, said_of_it):
    """Its exit code is none that would count as an answer."""
    said = llmspeed(*arguments)
    assert said.code == STOPS_BISECT
    assert said_of_it in said.err


def test_failed_tests_are_measured_all_the_same(llmspeed, project):
    """A budget that both sides miss is not what was asked."""
    marked = "import pytest\n@pytest.mark.llm_budget(ttft_ms=0.001)" + TESTS
    (project / "test_it.py").write_text(marked)
    said = llmspeed("ab", "--json", "--new", slow(1), "--form", "runs", "--blocks", "3")
    assert (said.code, said.json["verdict"]) == (0, "passed")


def test_a_test_of_one_side_only_is_named(llmspeed, project):
    """It has nothing to be held against."""
    (project / "test_it.py").write_text(
        TESTS + "import os\nif os.environ['SCRIPTED_FACTOR'] == '2':\n  def test_late(llm_client):\n"
        "    llm_client.measure('x')\n"
    )
    said = llmspeed("ab", "--old", slow(1), "--new", slow(2), "--blocks", "2")
    assert "only in NEW: test_it.py::test_late" in said.out


# checkouts


def git(folder, *arguments):
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(folder), *arguments]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def repository(project):
    """Two commits, of which the second is slower, and a working tree that is slower still."""
    git(project, "init", "-q")
    engine = (project / "scripted_engine.py").read_text()
    for number, factor in enumerate((1, 1.4, 3)):
        (project / "scripted_engine.py").write_text(
            f"import os\nos.environ['SCRIPTED_FACTOR'] = '{factor}'\n".join(["", ""])
            + engine.replace("from __future__ import annotations", "", 1)
        )
        if number < 2:
            git(project, "add", "-A")
            git(project, "commit", "-q", "-m", f"number {number}")
            git(project, "tag", f"v{number}")
    return project


def test_revisions_are_measured_in_worktrees_of_their_own(llmspeed, repository):
    """The code is that of each revision; the working tree stays as it was, and no worktree is left."""
    before = (repository / "scripted_engine.py").read_text()
    said = llmspeed("ab", "--json", "--old", "ref=v0", "--new", "ref=v1", "--form", "runs", "--blocks", "3")
    assert said.code == 1, said.err
    deltas = [found["delta"] for found in said.json["tests"][0]["comparisons"]]
    assert deltas == pytest.approx([1.4] * len(deltas), rel=0.01)
    assert (repository / "scripted_engine.py").read_text() == before
    listed = subprocess.run(["git", "worktree", "list"], capture_output=True, text=True, check=True)
    assert len(listed.stdout.splitlines()) == 1


def test_a_side_without_a_revision_is_the_working_tree(llmspeed, repository):
    """With what is not committed."""
    said = llmspeed("ab", "--json", "--old", "ref=HEAD", "--form", "runs", "--blocks", "2")
    assert said.json["tests"][0]["comparisons"][0]["delta"] == pytest.approx(3 / 1.4, rel=0.01)


def test_an_unknown_revision_is_named(llmspeed, repository):
    """Before anything is measured."""
    said = llmspeed("ab", "--old", "ref=v7")
    assert (said.code, "has no commit 'v7'" in said.err) == (STOPS_BISECT, True)


def test_a_set_up_that_fails_is_told(llmspeed, repository):
    """With its last lines; the commit cannot be tested."""
    said = llmspeed("ab", "--old", "ref=v0", "setup=echo broken build; exit 3")
    assert said.code == 125
    assert "the set-up of v0 failed with exit code 3" in said.err
    assert "broken build" in said.err


# what is left of an experiment that was ended


def started(project, *arguments):
    command = [sys.executable, "-m", "pytest_llmspeed.cli", "ab", *arguments]
    return subprocess.Popen(
        command, cwd=project, env=dict(os.environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def until_block(process, number):
    """Read what it says until a block is done."""
    for line in process.stderr:
        if line.startswith(f"block {number} "):
            return
    raise AssertionError(process.stdout.read())


def children_of(project):
    """Processes whose working folder is the project."""
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/cwd") == str(project) and int(pid) != os.getpid():
                found.append(pid)
        except OSError:
            pass
    return found


def all_gone(project, patience_s=60):
    deadline = time.monotonic() + patience_s
    while (left := children_of(project)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not left


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_ctrl_c_keeps_what_was_measured_and_says_how_to_go_on(project, llmspeed):
    """The verdict on it is shown; --resume does the rest."""
    process = started(project, "--new", slow(1.3), "--form", "runs")
    until_block(process, 2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "2 blocks of at most 5" in out or "3 blocks of at most 5" in out
    go_on = err.strip().splitlines()[-1]
    assert go_on.startswith("llmspeed: interrupted; go on with: llmspeed ab --resume .llmspeed/ab/")
    assert all_gone(project)
    said = llmspeed("ab", "--json", "--resume", go_on.split()[-1])
    assert "taken up after block" in said.err
    assert (said.code, said.json["verdict"]) == (1, "slower")


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_a_killed_experiment_leaves_no_process_and_no_worktree_in_the_way(repository, llmspeed):
    """SIGKILL of the parent: its children end, and the next experiment removes its checkouts."""
    process = started(repository, "--old", "ref=v0", "--new", "ref=v1", "--form", "runs")
    until_block(process, 1)
    process.kill()
    process.communicate()
    assert all_gone(repository)
    said = llmspeed("ab", "--json", "--old", "ref=v0", "--new", "ref=v1", "--form", "runs", "--blocks", "2")
    assert said.code in (1, 125), said.err
    listed = subprocess.run(["git", "worktree", "list"], capture_output=True, text=True, check=True)
    assert len(listed.stdout.splitlines()) == 1


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_a_killed_run_is_told_and_leaves_nothing(project):
    """SIGKILL of a child: its side has measured nothing."""
    process = started(project, "--new", slow(1), "--form", "runs")
    deadline = time.monotonic() + 60
    while not (running := [pid for pid in children_of(project) if is_a_run(pid)]):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(int(running[0]), signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 125
    assert "the old side (as it is here) measured nothing: pytest ended with exit code -9" in err
    assert all_gone(project)


def is_a_run(pid):
    """True of a run of pytest that the experiment has started."""
    try:
        return b"--llmspeed-json=" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_an_experiment_is_kept_as_a_folder_of_reports(project, llmspeed):
    """Each block's reports lie beside the plan, for whoever wants to look at them."""
    llmspeed("ab", "--new", slow(1), "--form", "runs", "--blocks", "2")
    (kept,) = (project / ".llmspeed" / "ab").iterdir()
    assert {path.name for path in kept.glob("*.json")} == {
        "plan.json",
        *(f"{number}-{side}.json" for number in (0, 1) for side in ("old", "new")),
    }
    assert json.loads((kept / "plan.json").read_text())["form"] == "runs"
