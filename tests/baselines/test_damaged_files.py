"""What hands, crashes and strangers leave in a store: left out by name, without a traceback or a hang."""

import base64
import json
import os
import random
import zlib
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from pytest_llmspeed.baselines import run_file
from pytest_llmspeed.baselines.store import FolderStore
from pytest_llmspeed.cli import baseline
from pytest_llmspeed.cli.compare import compare
from pytest_llmspeed.cli.prune import prune
from pytest_llmspeed.engines.backend import Backend
from pytest_llmspeed.errors import LLMSpeedError, StoreError
from pytest_llmspeed.metrics.budgets import BudgetCheck
from pytest_llmspeed.metrics.load_result import LoadResult
from pytest_llmspeed.metrics.measurement import Measurement
from pytest_llmspeed.metrics.sample import Sample
from pytest_llmspeed.quality.snapshot import baseline_of
from pytest_llmspeed.records.record import RunRecord, TestRecord, run_to_builtins, run_to_stored
from pytest_llmspeed.regression.verdicts import Comparison, Verdict

NOW = datetime(2026, 4, 1, tzinfo=UTC)
CHANGES = (None, True, 7, -1, 0.5, 1e300, 10**400, "x", "", [], {}, [None], {"x": "y"}, "DELETE")


def a_sample(number, **fields):
    known = {
        "label": None,
        "stratum": "prompt 1",
        "call": "measure",
        "ttft_ms": 20.0 + number,
        "ttfo_ms": 20.0,
        "tpot_ms": 5.0 + number / 10,
        "e2e_ms": 100.0,
        "throughput_tps": 50.0,
        "itl_ms": (5.0,),
        "output_events": 2,
        "output_tokens": 2,
        "prompt_tokens": 9,
        "cached_tokens": None,
        "token_source": "usage",
        "finish_reason": "stop",
        "text": "an answer",
        "error": None,
        "flags": frozenset(),
        "started_ms": float(number),
    }
    return Sample(**{**known, **fields})


def a_run(number=1):
    """A run of one test with everything that a file can hold."""
    times = tuple(a_sample(each) for each in range(10))
    blocks = {"ttft_ms": tuple(20.0 + each for each in range(10))}
    load = LoadResult(asked={"concurrency": 2}, samples=(), stratum="load", blocks=blocks, window_s=2.0)
    answer = {"prompt": "p", "hash": "h", "answer_hash": "a", "finish_reason": "stop", "prompt_tokens": 3}
    answer |= {"kept": 1.0, "score": 1.0, "repeated": True, "repeated_beside": None, "texts": ["t"]}
    snapshot = {"prompts": "set", "precision": "fp32", "width": 1, "floor": None, "answers": [answer]}
    test = TestRecord(
        nodeid="test_chat.py::test_chat",
        identity="test_chat.py::test_chat",
        environment="box",
        backend=Backend("tiny", options={"threads": 2}, versions={"torch": "2.6"}, load_s=1.0),
        workload=("measure chat",),
        measurement=Measurement((*times, a_sample(11, call="generate", stratum="call 1")), 2, loads=(load,)),
        budgets=(BudgetCheck("ttft_ms", 300.0, 20.0, kept=True, ci=(19.0, 21.0)),),
        comparisons=(Comparison(Verdict.PASSED, metric="ttft_ms", stratum="prompt 1", ci=(0.9, 1.1)),),
        verdict=Verdict.PASSED,
        snapshots=(snapshot,),
        level="first",
    )
    return RunRecord(
        f"2026-03-0{number}T10:00:00+00:00", f"run{number}", None, "abc", {"cpus": 2}, {}, (test,)
    )


def places(shown, path=()):
    """Every place in some JSON: the leaves and the branches."""
    items = shown.items() if isinstance(shown, dict) else enumerate(shown) if isinstance(shown, list) else ()
    for name, value in items:
        yield (*path, name)
        yield from places(value, (*path, name))


def changed(shown, path, value):
    """The JSON with one place changed, or left out."""
    copy = json.loads(json.dumps(shown))
    branch = copy
    for name in path[:-1]:
        branch = branch[name]
    if value == "DELETE":
        del branch[path[-1]]
    else:
        branch[path[-1]] = value
    return copy


def commands(root, other):
    """Everything that reads a store or a report."""
    yield lambda: baseline.list_tests(root, NOW)
    yield lambda: baseline.show_test(root, "test_chat")
    yield lambda: baseline.log(root)
    yield lambda: baseline.diff(root, str(root / "box" / "1.json"), str(root / "box" / "2.json"))
    yield lambda: prune(root, dry_run=True)
    yield lambda: compare(other, root)
    yield lambda: compare(root, other)


@pytest.fixture
def store(tmp_path):
    """A store with one good file."""
    made = FolderStore(tmp_path / "baselines")
    made.write("box", "1.json", run_to_stored(a_run(1)))
    return made


@pytest.mark.parametrize("shape", [run_to_stored, lambda run: run_to_builtins(run, text=True)])
def test_no_changed_value_escapes_the_reader_or_a_command(store, tmp_path, shape):
    """A hundred mutations, the same each time: read, or refused by name."""
    good, rng = shape(a_run(2)), random.Random(13)
    other = tmp_path / "other.json"
    other.write_text(json.dumps(run_to_builtins(a_run(3), text=True)))
    bad = store.root / "box" / "2.json"
    cases = [(path, value) for path in places(good) for value in CHANGES]
    for path, value in rng.sample(cases, 100):
        bad.write_text(json.dumps(changed(good, path, value)))
        found = store.load("box")
        assert len(found.sessions) + len(found.problems) == 2, (path, value)
        for command in commands(store.root, other):
            try:
                command()
            except LLMSpeedError:
                pass
            except Exception as error:
                raise AssertionError(f"{path} = {value!r}") from error


def refused(store, name="2.json"):
    """The one file that is left out, in a sentence."""
    found = store.load("box")
    assert [session.run_id for session in found.sessions] == ["run1"]
    (problem,) = found.problems
    assert name in problem
    return problem


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "-5.0"])
def test_a_time_that_is_not_a_number_is_refused(store, number):
    """It would pass any comparison."""
    text = json.dumps(run_to_stored(a_run(2))).replace("20.0", number, 1)
    (store.root / "box" / "2.json").write_text(text)
    assert "corrupt" in refused(store)


def test_a_pipe_in_a_store_is_left_out_without_waiting(store):
    """Nobody may ever write to it."""
    os.mkfifo(store.root / "box" / "2.json")
    assert "not a regular file" in refused(store)


def test_a_link_to_itself_is_left_out(store):
    """It has no end."""
    path = store.root / "box" / "2.json"
    path.symlink_to(path)
    assert "cannot be read" in refused(store)


def test_a_huge_file_is_left_out_unread(store, monkeypatch):
    """It would fill the memory."""
    monkeypatch.setattr(run_file, "LARGEST_BYTES", 100)
    found = store.load("box")
    assert found.sessions == ()
    assert "more than the" in found.problems[0]


def test_a_file_cannot_claim_requests_that_it_does_not_hold(store):
    """A number is a few bytes; as many requests would not fit anywhere."""
    shown = run_to_stored(a_run(2))
    shown["tests"][0]["measurement"]["requests"] |= {"count": 10**12, "each": {}}
    (store.root / "box" / "2.json").write_text(json.dumps(shown))
    assert "requests.count" in refused(store)


def test_json_without_end_is_corrupt(store):
    """Nested deeper than any report."""
    (store.root / "box" / "2.json").write_text("[" * 100_000)
    assert "not JSON" in refused(store)


def test_stored_answers_that_unpack_to_far_more_are_refused():
    """A thousandfold, before it is in memory."""
    bomb = base64.b64encode(zlib.compress(bytes(1 << 24), 9)).decode()
    run = run_to_stored(a_run())
    snapshot = run["tests"][0]["snapshots"][0]
    snapshot["answers"][0]["tokens"] = bomb
    with pytest.raises(ValueError, match="an answer of more than"):
        baseline_of([snapshot])


def test_what_cannot_be_read_again_is_not_stored(store):
    """The old files stay, nothing is called stored, and nothing is left behind."""
    broken = run_to_stored(a_run(2))
    broken["tests"][0]["measurement"]["requests"]["same"]["ttfo_ms"] = float("nan")
    with pytest.raises(StoreError, match="was not stored, since it could not be read again"):
        store.write("box", "2.json", broken)
    assert [path.name for path in (store.root / "box").iterdir()] == ["1.json"]


def test_half_a_character_cannot_make_a_file_unreadable(store):
    """A server may send a lone surrogate anywhere."""
    (test,) = a_run(2).tests
    half = "stop\ud800"
    samples = tuple(replace(each, finish_reason=half, label=half) for each in test.measurement.samples)
    backend = Backend(half, model=half, versions={half: half}, options={half: [half]})
    test = replace(test, backend=backend, measurement=Measurement(samples), accepted=half)
    run = replace(a_run(2), options={"accept": half}, tests=(test,))
    store.write("box", "2.json", run_to_stored(run))
    found = store.load("box")
    assert found.problems == ()
    assert len(found.sessions) == 2


def test_what_a_killed_writer_left_behind_is_removed_by_a_later_one(store):
    """Not what another is writing just now."""
    old, young = (store.root / "box" / f".{name}.json.x.part" for name in ("old", "young"))
    for part in (old, young):
        part.write_text("{")
    os.utime(old, (0, 0))
    store.write("box", "2.json", run_to_stored(a_run(2)))
    assert (old.exists(), young.exists()) == (False, True)


@pytest.mark.parametrize("damage", [os.mkfifo, lambda path: path.write_text("[" * 100_000)])
def test_a_damaged_rename_is_left_out_by_name(store, damage):
    """The run files count all the same."""
    damage(store.root / "1.rename")
    found = store.load("box")
    assert len(found.sessions) == 1
    assert "a rename is left out" in found.problems[0]
