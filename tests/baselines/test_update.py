"""What an update stores, and that it is found again."""

import json
from dataclasses import replace

import pytest

from pytest_llmspeed.baselines.store import FolderStore
from pytest_llmspeed.baselines.update import may_be_stored, plan, write
from pytest_llmspeed.baselines.window import window
from pytest_llmspeed.errors import StoreError
from pytest_llmspeed.records.record import RunRecord
from pytest_llmspeed.regression.verdicts import Verdict

STARTED = "2026-03-01T10:00:00.123456+00:00"


def run_of(*tests, **fields):
    known = {
        "started": STARTED,
        "run_id": "1a2b3c4d",
        "job": None,
        "commit": "abcdef0",
        "facts": {},
        "options": {},
    }
    return RunRecord(**{**known, **fields}, tests=tests)


@pytest.fixture
def good(record, samples):
    """A test that passed and may be stored."""
    return record(*samples(), verdict=Verdict.PASSED)


@pytest.mark.parametrize(
    ("verdict", "stored"),
    [
        (Verdict.PASSED, True),
        (Verdict.FASTER, True),
        (Verdict.SUSPECT, True),
        (Verdict.INCONCLUSIVE, True),
        (Verdict.NO_BASELINE, True),
        (Verdict.INCOMPARABLE, True),
        (Verdict.SLOWER, False),
        (Verdict.INVALID, False),
        (None, False),
    ],
)
def test_a_verdict_decides_what_may_be_stored(good, verdict, stored):
    """Slower and invalid sessions would spoil the baseline; without a verdict nothing was compared."""
    assert may_be_stored(replace(good, verdict=verdict)) is stored


@pytest.mark.parametrize("outcome", ["failed", "skipped", "error", "xfailed", "xpassed", "interrupted"])
def test_only_tests_that_passed_in_all_phases_are_stored(good, outcome):
    """Whatever their verdict is."""
    assert not may_be_stored(replace(good, outcome=outcome))


def test_a_test_with_a_problem_is_not_stored(good):
    """A missed budget, say."""
    assert not may_be_stored(replace(good, problems=("ttft_ms is above its budget",)))


def test_an_interrupted_test_is_not_stored(good):
    """Its samples are partial."""
    assert not may_be_stored(replace(good, partial=True))


def test_a_test_that_passed_when_it_was_run_again_is_not_stored(good):
    """Only the better one of its attempts would be."""
    assert not may_be_stored(replace(good, rerun=True))


def test_an_accepted_slowdown_is_stored(good):
    """With its reason; one that failed all the same is not."""
    accepted = replace(good, verdict=Verdict.SLOWER, accepted="larger context")
    assert may_be_stored(accepted)
    assert not may_be_stored(replace(accepted, outcome="failed"))


def test_a_run_with_nothing_to_store_writes_nothing(good):
    """No empty run files."""
    assert list(plan(run_of(replace(good, outcome="failed")))) == []
    assert list(plan(run_of())) == []


def test_only_what_may_be_stored_is_in_the_run_file(good):
    """The failed test of a run leaves the others' sessions alone."""
    bad = replace(good, identity="bad", outcome="failed")
    (planned,) = plan(run_of(good, bad))
    assert planned.run.tests == (good,)


def test_each_environment_has_a_run_file_of_its_own(good):
    """A run on two engines may belong to two environments."""
    remote = replace(good, identity="other", environment="url-host")
    assert [(each.environment, each.run.tests) for each in plan(run_of(good, remote))] == [
        ("box", (good,)),
        ("url-host", (remote,)),
    ]


def test_a_run_file_is_named_by_start_commit_and_id(good):
    """So that files sort by time, and never meet."""
    (planned,) = plan(run_of(good))
    assert planned.name == "20260301T100000123456-abcdef0-1a2b3c4d.json"
    (planned,) = plan(run_of(good, commit=None))
    assert planned.name == "20260301T100000123456-nocommit-1a2b3c4d.json"


def test_what_was_stored_is_found_by_the_next_run(good, tmp_path):
    """Written, read back, and in the window of the same test."""
    store = FolderStore(tmp_path)
    (path,) = write(plan(run_of(good)), store)
    assert path.parent == tmp_path / "box"
    found = window(store.load("box").sessions, good.identity, good.key)
    assert found.values("prompt 1", "ttft_ms")[0] == pytest.approx(
        [s.ttft_ms for s in good.measurement.samples]
    )


def test_an_accepted_session_starts_a_level_in_the_store(good, tmp_path):
    """The reason is stored, and the sessions before no longer count."""
    store = FolderStore(tmp_path)
    write(plan(run_of(good)), store)
    accepted = replace(good, verdict=Verdict.SLOWER, accepted="larger context")
    write(plan(run_of(accepted, started="2026-03-02T10:00:00+00:00", run_id="2")), store)
    (session,) = window(store.load("box").sessions, good.identity, good.key).sessions
    assert (session.run_id, session.reason) == ("2", "larger context")


def test_answers_are_not_stored(good, tmp_path):
    """Baselines may be committed: nothing that a model said is in them."""
    (path,) = write(plan(run_of(good)), FolderStore(tmp_path))
    content = path.read_text(encoding="utf-8")
    assert "an answer" not in content
    requests = json.loads(content)["tests"][0]["measurement"]["requests"]
    assert "text" not in {**requests["same"], **requests["each"]}


def test_a_store_that_cannot_be_written_is_told(good, tmp_path):
    """A file in the place of the folder."""
    (tmp_path / "box").write_text("I was here first")
    with pytest.raises(StoreError, match="cannot be written"):
        write(plan(run_of(good)), FolderStore(tmp_path))
