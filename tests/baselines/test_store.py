"""Run files in a folder: written whole or not at all, read one by one, never changed."""

import json
import os

import pytest

from pytest_llmspeed.baselines.store import FolderStore
from pytest_llmspeed.engines.backend import Backend
from pytest_llmspeed.errors import StoreError
from pytest_llmspeed.metrics.measurement import Measurement
from pytest_llmspeed.metrics.sample import Sample
from pytest_llmspeed.records.record import RunRecord, TestRecord, run_to_builtins
from pytest_llmspeed.regression.verdicts import Verdict


def a_sample(ttft_ms):
    return Sample(
        label=None,
        stratum="prompt 1",
        call="measure",
        ttft_ms=ttft_ms,
        ttfo_ms=ttft_ms,
        tpot_ms=5.0,
        e2e_ms=100.0,
        throughput_tps=50.0,
        itl_ms=(5.0,),
        output_events=2,
        output_tokens=2,
        prompt_tokens=9,
        cached_tokens=None,
        token_source="usage",
        finish_reason="stop",
        text="an answer",
        error=None,
        flags=frozenset(),
        started_ms=0.0,
    )


def a_run(number=1, ttft_ms=20.0):
    """A run in builtins, as `update` hands it over."""
    test = TestRecord(
        nodeid="test_chat.py::test_chat",
        identity="test_chat.py::test_chat",
        environment="box",
        backend=Backend("tiny"),
        measurement=Measurement((a_sample(ttft_ms),) * 5),
        verdict=Verdict.NO_BASELINE,
    )
    run = RunRecord(f"2026-03-0{number}T10:00:00+00:00", f"run{number}", None, "abc", {}, {}, (test,))
    return run_to_builtins(run, text=False)


@pytest.fixture
def store(tmp_path):
    return FolderStore(tmp_path / "baselines")


def everything_below(folder):
    """Every file below a folder, hidden ones too, with its bytes."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_was_written_is_read_back(store):
    """The session of the test, with its values."""
    path = store.write("box", "1.json", a_run())
    assert path == store.root / "box" / "1.json"
    found = store.load("box")
    assert found.problems == ()
    (session,) = found.sessions
    assert (session.identity, session.run_id) == ("test_chat.py::test_chat", "run1")
    assert session.series["prompt 1"].values["ttft_ms"].tolist() == [20.0] * 5


def test_sessions_of_several_runs_are_read_together(store):
    """One file a run, all of them count."""
    for number in (1, 2, 3):
        store.write("box", f"{number}.json", a_run(number))
    assert [session.run_id for session in store.load("box").sessions] == ["run1", "run2", "run3"]


def test_environments_do_not_mix(store):
    """Each has a folder of its own, and only those with run files are named."""
    store.write("box", "1.json", a_run(1))
    store.write("gpu", "2.json", a_run(2))
    (store.root / "empty").mkdir()
    (store.root / "README.txt").write_text("not an environment")
    assert [session.run_id for session in store.load("gpu").sessions] == ["run2"]
    assert store.environments() == ["box", "gpu"]


def test_a_store_that_does_not_exist_is_empty(store):
    """Nothing is created by looking."""
    assert store.load("box").sessions == ()
    assert store.load("box").problems == ()
    assert store.environments() == []
    assert not store.root.exists()


def test_a_later_write_leaves_earlier_files_byte_for_byte(store):
    """Nothing is ever rewritten, so that git never merges inside a file."""
    store.write("box", "1.json", a_run(1))
    before = everything_below(store.root)
    store.write("box", "2.json", a_run(2))
    after = everything_below(store.root)
    assert before.items() <= after.items()
    assert len(after) == 2


def test_loading_writes_nothing(store):
    """Reading a store leaves it as it is, a corrupt file too."""
    store.write("box", "1.json", a_run(1))
    (store.root / "box" / "2.json").write_text("{")
    before = everything_below(store.root)
    store.load("box")
    assert everything_below(store.root) == before


WHOLE = json.dumps(a_run(1))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("", id="empty"),
        pytest.param(WHOLE[: len(WHOLE) // 2], id="cut in the middle"),
        pytest.param("<<<<<<< HEAD\n" + WHOLE, id="a merge conflict"),
        pytest.param("null", id="null"),
        pytest.param("[]", id="a list"),
        pytest.param("{}", id="without a schema"),
        pytest.param('{"schema": "llmspeed/1"}', id="without tests"),
        pytest.param('{"schema": "llmspeed/1", "run": {}, "tests": [{}]}', id="an empty test"),
        pytest.param(WHOLE.replace('"requests": [', '"requests": [3, '), id="a request that is a number"),
        pytest.param(WHOLE.replace('"2026-03-01T10:00:00+00:00"', "null"), id="without a start"),
        pytest.param(WHOLE.replace("2026-03-01T10:00:00+00:00", "yesterday"), id="a start that is no date"),
        pytest.param(WHOLE.replace("20.0", '"fast"'), id="a time that is a text"),
    ],
)
def test_a_corrupt_file_is_named_and_the_others_count(store, content):
    """One bad file costs its own sessions, with a sentence that says which, why and what to do."""
    store.write("box", "1.json", a_run(1))
    bad = store.root / "box" / "2.json"
    bad.write_text(content)
    store.write("box", "3.json", a_run(3))
    found = store.load("box")
    assert [session.run_id for session in found.sessions] == ["run1", "run3"]
    (problem,) = found.problems
    assert str(bad) in problem
    assert "corrupt" in problem
    assert "restore or delete" in problem


def test_a_file_of_bytes_that_are_no_text_is_corrupt(store):
    """Binary rubbish is no traceback."""
    store.write("box", "1.json", a_run(1))
    (store.root / "box" / "2.json").write_bytes(b"\xff\xfe\x00rubbish")
    found = store.load("box")
    assert len(found.sessions) == 1
    assert "2.json" in found.problems[0]


def test_a_file_of_a_later_schema_is_named(store):
    """An older version of the plugin says that it is the older one, and reads what it can."""
    store.write("box", "1.json", a_run(1))
    (store.root / "box" / "2.json").write_text(json.dumps({**a_run(2), "schema": "llmspeed/9"}))
    found = store.load("box")
    assert [session.run_id for session in found.sessions] == ["run1"]
    (problem,) = found.problems
    assert "2.json" in problem
    assert "'llmspeed/9'" in problem
    assert "upgrade" in problem


def test_a_folder_that_looks_like_a_run_file_is_named(store):
    """What cannot be read as a file is a problem of its own."""
    store.write("box", "1.json", a_run(1))
    (store.root / "box" / "2.json").mkdir()
    found = store.load("box")
    assert len(found.sessions) == 1
    assert "2.json" in found.problems[0]


def test_files_of_other_kinds_are_passed_over(store):
    """Half-written files of other runs, notes and the like are no sessions."""
    store.write("box", "1.json", a_run(1))
    (store.root / "box" / ".2.json.abc.part").write_text("{")
    (store.root / "box" / "notes.txt").write_text("hello")
    found = store.load("box")
    assert (len(found.sessions), found.problems) == (1, ())


def test_a_store_that_can_be_written_is_made_and_left_empty(store):
    """The check leaves no trace but the folder."""
    store.check_writable()
    assert store.root.is_dir()
    assert list(store.root.iterdir()) == []


def test_a_store_that_cannot_be_written_is_told_before_any_test(tmp_path):
    """A file in the place of the folder: the message holds the path and the setting."""
    (tmp_path / "file").write_text("I was here first")
    store = FolderStore(tmp_path / "file" / "baselines")
    with pytest.raises(StoreError, match="llmspeed_store") as told:
        store.check_writable()
    assert str(store.root) in str(told.value)


def test_a_write_without_a_folder_to_write_in_is_told(tmp_path):
    """The same at the write."""
    (tmp_path / "file").write_text("I was here first")
    store = FolderStore(tmp_path / "file")
    with pytest.raises(StoreError, match="cannot be written"):
        store.write("box", "1.json", a_run())
    assert (tmp_path / "file").read_text() == "I was here first"


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), KeyboardInterrupt(), TypeError("x")]
)
def test_a_write_that_fails_halfway_leaves_nothing_behind(store, monkeypatch, error):
    """Neither a run file nor a part of one, and what was there before is untouched."""
    store.write("box", "1.json", a_run(1))
    before = everything_below(store.root)

    def fail_before_it_is_on_disk(_):
        raise error

    monkeypatch.setattr(os, "fsync", fail_before_it_is_on_disk)
    with pytest.raises(StoreError if isinstance(error, OSError) else type(error)):
        store.write("box", "2.json", a_run(2))
    assert everything_below(store.root) == before


def test_a_full_disk_is_told_with_its_reason(store, monkeypatch):
    """The system's words, the path, and the way out."""

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StoreError, match=r"2\.json: No space left on device; free it"):
        store.write("box", "2.json", a_run(2))


def test_a_run_file_can_be_read_by_others(store):
    """Baselines are shared: the file is no private temporary one."""
    assert store.write("box", "1.json", a_run()).stat().st_mode & 0o777 == 0o644


def test_a_run_file_is_plain_json(store):
    """What was handed over is what stands there."""
    path = store.write("box", "1.json", a_run())
    assert json.loads(path.read_text(encoding="utf-8")) == a_run()
