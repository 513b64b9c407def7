"""`llmspeed baseline`: what is in a store, and what of it can go."""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from helpers.reports import CHAT, SHAPE, a_run, a_sample, a_test

from pytest_llmspeed.baselines.sessions import sessions_of_run
from pytest_llmspeed.baselines.stored_tests import needed_runs, stored_tests
from pytest_llmspeed.baselines.window import window
from pytest_llmspeed.metrics.measurement import Measurement
from pytest_llmspeed.records.record import run_to_stored
from pytest_llmspeed.regression.verdicts import Verdict
from pytest_llmspeed.system import clock

OTHER = "test_chat.py::test_other[a-1]"


@pytest.fixture
def today(monkeypatch):
    """The wall clock, as a test sets it."""

    def set_day(text):
        moment = clock.datetime.fromisoformat(f"{text}T12:00:00+00:00")
        monkeypatch.setattr(clock, "wall", lambda: moment)

    set_day("2026-03-20")
    return set_day


def names(paths):
    return [path.stem for path in paths]


# list


def test_list_names_what_counts(llmspeed, store, today):
    """Environment, test, backend, the sessions of the level, the newest."""
    store(a_run(1), a_run(2), a_run(3, a_test(), a_test(OTHER)))
    (chat, other) = llmspeed("baseline", "list", "--json").json["tests"]
    assert (chat["environment"], chat["identity"], chat["backend"]) == ("box", CHAT, "tiny fp32")
    assert (chat["sessions"], chat["newest"]) == (3, "2026-03-03T10:00:00+00:00")
    assert (other["identity"], other["sessions"]) == (OTHER, 1)
    assert "3 run files, 2 tests" in llmspeed("baseline", "list").out


def test_list_counts_the_current_level_and_one_session_a_job(llmspeed, store, today):
    """Sessions before a speed-up, and further ones of a CI job, do not count."""
    faster = a_test(slow=0.5, verdict=Verdict.FASTER)
    store(a_run(1), a_run(2, faster), a_run(3, job="ci 7"), a_run(4, job="ci 7"))
    assert llmspeed("baseline", "list", "--json").json["tests"][0]["sessions"] == 2


def test_list_warns_past_thirty_days(llmspeed, store, today):
    """An old baseline speaks of a machine that may have changed."""
    store(a_run(1))
    assert "older" not in llmspeed("baseline", "list").out
    today("2026-04-15")
    said = llmspeed("baseline", "list")
    assert "45 days old" in said.out
    assert "1 baseline older than 30 days" in said.out
    assert "--llmspeed-update-baseline" in said.out


def test_list_says_what_was_superseded(llmspeed, store, today):
    """Another workload of the same test on the same engine came since."""
    store(a_run(1), a_run(2, a_test(workload=("measure chat prompt=2",))))
    said = llmspeed("baseline", "list", "--json")
    notes = [test["note"] for test in said.json["tests"] if test["superseded"]]
    assert notes == ["superseded: workload changed since"]


# show and log


def test_show_gives_medians_and_levels(llmspeed, store):
    """Each session with its medians, and where a level starts and why."""
    accepted = a_test(slow=2, accepted="longer context", verdict=Verdict.SLOWER)
    store(a_run(1), a_run(2, a_test(slow=0.5, verdict=Verdict.FASTER)), a_run(3, accepted))
    out = llmspeed("baseline", "show", CHAT).out
    (first, second, third) = (line for line in out.splitlines() if line.startswith("2026-"))
    assert first.endswith("an earlier level")
    assert "50.2 ms" in second
    assert second.endswith("starts a level: faster, an earlier level")
    assert "c3" in third
    assert third.endswith("starts a level: accepted: longer context")


def test_show_takes_a_part_of_the_name(llmspeed, store):
    """All tests whose identity contains it."""
    store(a_run(1, a_test(), a_test(OTHER)))
    assert [test["identity"] for test in llmspeed("baseline", "show", "other", "--json").json["tests"]] == [
        OTHER
    ]


def test_show_has_a_row_for_each_series(llmspeed, store):
    """Two prompts of one test are two series."""
    samples = tuple(a_sample(x, stratum=f"prompt {n}") for n in (1, 2) for x in SHAPE)
    store(a_run(1, a_test(measurement=Measurement(samples))))
    (test,) = llmspeed("baseline", "show", CHAT, "--json").json["tests"]
    assert list(test["sessions"][0]["medians"]) == ["prompt 1", "prompt 2"]


def test_log_is_in_order_with_reasons(llmspeed, store):
    """Oldest first, whatever the file is called."""
    accepted = a_test(accepted="new driver", verdict=Verdict.SLOWER)
    store(a_run(9, accepted, a_test(OTHER, accepted="new driver")), a_run(2, job="ci 7"))
    runs = llmspeed("baseline", "log", "--json").json["runs"]
    assert [(run["id"], run["job"], run["commit"]) for run in runs] == [
        ("run02", "ci 7", "c2"),
        ("run09", None, "c9"),
    ]
    assert runs[1]["new_levels"] == ["accepted: new driver (2 tests)"]
    assert "accepted: new driver (2 tests)" in llmspeed("baseline", "log").out


# diff


def test_diff_says_what_changed_and_how_medians_moved(llmspeed, store):
    """Two runs by their ids, or the beginning of them."""
    store(a_run(1, commit="aaa"), a_run(2, a_test(slow=1.2), a_test(OTHER), commit="bbb"))
    said = llmspeed("baseline", "diff", "run01", "run02")
    assert said.code == 0
    assert "changed: commit: aaa → bbb" in said.out
    assert "+20%" in said.out
    assert f"only in B: {OTHER}" in said.out


def test_diff_takes_paths_without_a_store(llmspeed, write):
    """A report lies anywhere."""
    write("x/1.json", a_run(1))
    write("x/2.json", a_run(2))
    said = llmspeed("baseline", "diff", "x/1.json", "x/2.json", "--json")
    assert said.json["medians"][0] == {
        "identity": CHAT,
        "series": "prompt 1",
        "metric": "ttft_ms",
        "a": 100.4,
        "b": 100.4,
    }


def test_diff_of_an_ambiguous_id_names_the_files(llmspeed, store):
    """The beginning of two ids."""
    store(a_run(1), a_run(2))
    said = llmspeed("baseline", "diff", "run0", "run02")
    assert said.code == 2
    assert "'run0' matches 2 run files; give the path of one" in said.err


# prune


def nights(count):
    """A run a night, from the first of March on."""
    first = datetime(2026, 3, 1, 10, tzinfo=UTC)
    return [
        replace(a_run(night), started=(first + timedelta(days=night)).isoformat())
        for night in range(1, count + 1)
    ]


def test_prune_keeps_the_window_and_the_anchor(llmspeed, store):
    """Of 35 sessions of a level: the first three, and the last thirty, which say how far sessions differ."""
    paths = store(*nights(35))
    said = llmspeed("baseline", "prune")
    assert said.code == 0
    assert names(path for path in paths if not path.exists()) == ["run04", "run05"]
    assert "deleted 2 run files, 33 kept" in said.out


def test_prune_drops_earlier_levels(llmspeed, store):
    """A level that was left needs nothing."""
    paths = store(a_run(1), a_run(2), a_run(3, a_test(accepted="why")), a_run(4))
    llmspeed("baseline", "prune")
    assert names(path for path in paths if path.exists()) == ["run03", "run04"]


def test_a_file_that_one_test_needs_stays(llmspeed, store):
    """The only session of another test lies in it."""
    first, second, _ = store(a_run(1, a_test(), a_test(OTHER)), a_run(2), a_run(3, a_test(accepted="why")))
    llmspeed("baseline", "prune")
    assert (first.exists(), second.exists()) == (True, False)


def test_a_dry_run_deletes_nothing(llmspeed, store):
    """It names what would go."""
    paths = store(*nights(35))
    said = llmspeed("baseline", "prune", "--dry-run")
    assert all(path.exists() for path in paths)
    assert "would delete .llmspeed/baselines/box/run04.json" in said.out


def test_tests_that_are_gone_need_nothing(llmspeed, store):
    """A file goes when all tests that need it match; a bracket in a name is no wildcard."""
    only, both = store(a_run(1, a_test(OTHER)), a_run(2, a_test(), a_test(OTHER)))
    assert "kept" in llmspeed("baseline", "prune", "--gone", OTHER).out
    assert (only.exists(), both.exists()) == (False, True)
    llmspeed("baseline", "prune", "--gone", "test_chat.py::*", "--all")
    assert not both.exists()


def test_a_pattern_that_leaves_nothing_is_taken_for_a_slip(llmspeed, store):
    """Nothing is deleted unless --all says so; looking is free, and exact names are no slip."""
    paths = store(a_run(1, a_test(OTHER)), a_run(2))
    said = llmspeed("baseline", "prune", "--gone", "*")
    assert said.code == 2
    assert "--gone '*' would empty the store: it matches every one of 2 stored tests" in said.err
    assert llmspeed("baseline", "prune", "--gone", "*", "--dry-run").code == 0
    assert all(path.exists() for path in paths)
    llmspeed("baseline", "prune", "--gone", OTHER, "--gone", CHAT)
    assert not any(path.exists() for path in paths)


def test_brackets_in_a_pattern_stand_for_themselves(llmspeed, store):
    """They are in the id of each parametrised test."""
    gone, alive = store(a_run(1, a_test("test_x.py::test_x[1-a]")), a_run(2, a_test("test_x.py::test_x2")))
    llmspeed("baseline", "prune", "--gone", "test_x.py::test_x[*]")
    assert (gone.exists(), alive.exists()) == (False, True)


def test_the_store_is_that_of_the_project(llmspeed, store, folder, monkeypatch):
    """From any folder below the ini file, wherever llmspeed_store puts it; --store wins."""
    store(a_run(1))
    (folder / ".llmspeed/baselines").rename(folder / "kept")
    (folder / "pytest.ini").write_text("[pytest]\nllmspeed_store = kept")
    (folder / "tests").mkdir()
    monkeypatch.chdir(folder / "tests")
    assert CHAT in llmspeed("baseline", "list").out
    assert llmspeed("baseline", "list", "--store", "elsewhere").code == 2


def test_a_pattern_without_a_match_is_a_mistake(llmspeed, store):
    """Nothing is deleted for it."""
    (path,) = store(a_run(1))
    said = llmspeed("baseline", "prune", "--gone", "test_chat.py::test_cat")
    assert said.code == 2
    assert f"matches no stored test; stored: {CHAT}" in said.err
    assert path.exists()


def test_what_cannot_be_read_is_left_alone(llmspeed, store, folder):
    """A corrupt file is named and stays."""
    store(a_run(1))
    half = folder / ".llmspeed/baselines/box/half.json"
    half.write_text("{")
    said = llmspeed("baseline", "prune")
    assert said.code == 0
    assert "left out: .llmspeed/baselines/box/half.json is corrupt: it is not JSON" in said.err
    assert half.exists()


@pytest.mark.parametrize("seed", range(20))
def test_no_window_changes_by_pruning(seed):
    """Whatever was stored: levels, jobs, several tests in a file, other keys."""
    dice = random.Random(seed)
    history, verdicts = [], (Verdict.PASSED,) * 9 + (Verdict.FASTER,)
    for day in range(1, 29):
        tests = [
            a_test(name, precision=dice.choice(("fp32", "bf16")), verdict=dice.choice(verdicts))
            for name in dice.sample("abcd", 2)
        ]
        run = a_run(day, *tests, job=dice.choice((None, None, "ci 1", "ci 2")))
        history += sessions_of_run(run_to_stored(run))
    needed = needed_runs(history)
    kept = [session for session in history if (session.environment, session.run_id) in needed]
    assert len(kept) < len(history) or seed
    for test in stored_tests(history):
        before, after = (window(some, test.identity, test.newest.key) for some in (history, kept))
        assert before == after


# mistakes


@pytest.mark.parametrize("action", ["list", "log", "prune"])
def test_a_store_that_is_not_there(llmspeed, folder, action):
    """One line that says how to name or fill it."""
    said = llmspeed("baseline", action)
    assert (said.code, said.out) == (2, "")
    assert said.err == (
        "llmspeed: .llmspeed/baselines: no such folder; name the store with --store, "
        "or fill it: pytest --llmspeed-update-baseline\n"
    )
    (folder / "empty").mkdir()
    assert "empty contains no baselines" in llmspeed("baseline", action, "--store", "empty").err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "test_cat"), f"has no baseline of 'test_cat'; stored: {CHAT}"),
        (("diff", "run01", "zz"), "has no run 'zz'; llmspeed baseline log shows the ids"),
        (("diff", "run01", "no/where.json"), "no/where.json: no such file"),
    ],
)
def test_what_is_not_in_the_store_is_named(llmspeed, store, arguments, message):
    """With what there is instead."""
    store(a_run(1))
    said = llmspeed("baseline", *arguments)
    assert said.code == 2
    assert message in said.err
