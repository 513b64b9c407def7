"""`llmspeed baseline rename`: tests that were renamed, moved or parametrised keep their baselines."""

import pytest
from helpers.reports import CHAT, a_run, a_test

from pytest_llmspeed.baselines.store import FolderStore
from pytest_llmspeed.cli.rename import renamed
from pytest_llmspeed.errors import StoreError

KNOWN = [
    "a/test_x.py::TestA::test_m",
    "a/test_x.py::test_x",
    "b/test_y.py::test_y[1]",
    "b/test_y.py::test_y[2]",
]


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("a/test_x.py::test_x", "a/test_x.py::test_z", {KNOWN[1]: "a/test_x.py::test_z"}),
        ("a/test_x.py::test_x", "a/test_x.py::test_x[gpt]", {KNOWN[1]: "a/test_x.py::test_x[gpt]"}),
        (
            "a/test_x.py",
            "c/test_x.py",
            {KNOWN[0]: "c/test_x.py::TestA::test_m", KNOWN[1]: "c/test_x.py::test_x"},
        ),
        ("a/", "c/d/", {KNOWN[0]: "c/d/test_x.py::TestA::test_m", KNOWN[1]: "c/d/test_x.py::test_x"}),
        ("a/test_x.py::TestA", "a/test_x.py::TestB", {KNOWN[0]: "a/test_x.py::TestB::test_m"}),
        (
            "b/test_y.py::test_y",
            "b/test_y.py::test_z",
            {KNOWN[2]: "b/test_y.py::test_z[1]", KNOWN[3]: "b/test_y.py::test_z[2]"},
        ),
        (
            "b/test_y.py::test_y[*]",
            "b/test_y.py::test_y[*-gpt]",
            {KNOWN[2]: "b/test_y.py::test_y[1-gpt]", KNOWN[3]: "b/test_y.py::test_y[2-gpt]"},
        ),
        ("a/test_x.py::test", "z", {}),
        ("nowhere", "z", {}),
    ],
)
def test_old_names_a_test_or_what_tests_are_of(old, new, found):
    """A beginning that ends within a word names nothing."""
    assert renamed(KNOWN, old, new) == found


def test_stars_have_to_be_the_same_number():
    """Each stands for a text that both have."""
    with pytest.raises(StoreError, match="different numbers of"):
        renamed(KNOWN, "a*", "b")


def test_sessions_are_found_under_the_new_name_and_no_file_is_changed(llmspeed, store, folder):
    """By the commands and by the gate; what is stored later under the old name is its own."""
    (path,) = store(a_run(1))
    before = path.read_bytes()
    said = llmspeed("baseline", "rename", CHAT, "test_chat.py::test_new")
    assert said.code == 0
    assert f"{CHAT} → test_chat.py::test_new" in said.out
    assert "renamed 1 test; to undo it, delete .llmspeed/baselines/" in said.out
    assert path.read_bytes() == before
    root = folder / ".llmspeed/baselines"
    assert [s.identity for s in FolderStore(root).load("box").sessions] == ["test_chat.py::test_new"]
    assert "test_chat.py::test_new" in llmspeed("baseline", "list").out
    assert FolderStore(root).environments() == ["box"]
    (made,) = root.glob("*.rename")
    made.unlink()
    assert CHAT in llmspeed("baseline", "list").out


def test_a_second_rename_follows_the_first(llmspeed, store, folder):
    """The name of today is what is asked for, and joined histories are said."""
    store(a_run(1), a_run(2, a_test("test_chat.py::test_c")))
    llmspeed("baseline", "rename", CHAT, "test_chat.py::test_b")
    said = llmspeed("baseline", "rename", "test_chat.py::test_b", "test_chat.py::test_c")
    assert "(joins 1 session stored under that name)" in said.out
    sessions = FolderStore(folder / ".llmspeed/baselines").load("box").sessions
    assert [s.identity for s in sessions] == ["test_chat.py::test_c"] * 2


def test_a_dry_run_writes_nothing(llmspeed, store, folder):
    """It only says what would be."""
    store(a_run(1))
    assert "would rename 1 test" in llmspeed("baseline", "rename", CHAT, "x", "--dry-run").out
    assert not list((folder / ".llmspeed").rglob("*.rename"))


def test_an_unknown_test_is_a_mistake(llmspeed, store):
    """With what is stored instead."""
    store(a_run(1))
    said = llmspeed("baseline", "rename", "test_cat", "x")
    assert said.code == 2
    assert "has no baseline of 'test_cat'" in said.err


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema": "llmspeed-rename/1", "at": 3, "tests": []}'])
def test_a_broken_rename_is_left_out_aloud(llmspeed, store, folder, text):
    """The sessions count under the names that they were stored under."""
    store(a_run(1))
    (folder / ".llmspeed/baselines/x.rename").write_text(text)
    said = llmspeed("baseline", "list")
    assert said.code == 0
    assert "a rename is left out: .llmspeed/baselines/x.rename cannot be read" in said.err
    assert FolderStore(folder / ".llmspeed/baselines").load("box").problems
