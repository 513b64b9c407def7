"""`llmspeed history`: sessions over time, from a store or a folder of reports."""

import pytest
from helpers.reports import CHAT, SHAPE, a_run, a_test

from pytest_llmspeed.engines.backend import Backend

WOBBLE = (1.0, 1.01, 0.99, 1.02, 0.98, 1.0)


def runs(*levels, versions=("2.6", "2.7")):
    """Six runs a level, a day each; the version of torch changes with the level."""
    made = []
    for number, level in enumerate(levels):
        backend = Backend("tiny", precision="fp32", versions={"torch": versions[number % 2]})
        for wobble in WOBBLE:
            made.append(a_run(len(made) + 1, a_test(slow=level * wobble, backend=backend)))
    return made


def test_a_change_of_level_is_told_with_its_commits_and_what_changed(llmspeed, store):
    """Day, size, levels at the fastest tenth, and the versions on either side."""
    store(*runs(1.0, 1.3))
    said = llmspeed("history")
    assert said.code == 0
    assert f"{CHAT}  (tiny fp32, box)" in said.out
    assert "ttft_ms: 12 sessions, 2026-03-01 to 2026-03-12" in said.out
    assert "2026-03-07 worse: +30%, 98.9 ms → 129 ms" in said.out
    assert "commits c6..c7" in said.out
    assert "torch: 2.6 → 2.7" in said.out
    assert "2 changes of level, 2 for the worse; the newest 3 sessions are not history yet" in said.out


def test_a_speed_up_is_better(llmspeed, store):
    """Not every change is for the worse."""
    store(*runs(1.3, 1.0))
    said = llmspeed("history", "chat")
    assert "better: -23%" in said.out
    assert "2 changes of level, 0 for the worse" in said.out


def test_its_json_has_each_session_and_each_change(llmspeed, store):
    """For a plot, or for another program."""
    store(*runs(1.0, 1.3))
    ttft = next(
        line for line in llmspeed("history", "--json").json["timelines"] if line["metric"] == "ttft_ms"
    )
    assert [session["commit"] for session in ttft["sessions"]] == [f"c{day}" for day in range(1, 13)]
    assert ttft["sessions"][0]["median"] == pytest.approx(100 * sorted(SHAPE)[5], rel=0.01)
    (change,) = ttft["changes"]
    assert (change["from_session"], change["commits"]) == (6, ["c6", "c7"])
    assert change["ratio"] == pytest.approx(1.3)


def test_a_folder_of_reports_has_a_history_too(llmspeed, write):
    """Of runs that stored nothing."""
    for run in runs(1.0):
        write(f"reports/{run.run_id}.json", run)
    said = llmspeed("history", "--store", "reports")
    assert "6 sessions" in said.out
    assert "0 changes of level" in said.out


def test_few_sessions_say_how_many_are_needed(llmspeed, store):
    """No change can show in three."""
    store(*runs(1.0)[:3])
    assert "too few for a change to show: at least 6 sessions are needed" in llmspeed("history").out


@pytest.mark.parametrize(
    ("arguments", "said_of_it"),
    [
        (["test_caht"], "no test is called 'test_caht'; known: test_chat.py::test_chat"),
        (["--store", "nowhere"], "nowhere: no such folder; name a store or a folder of reports with --store"),
    ],
)
def test_a_mistake_is_named_with_the_fix(llmspeed, store, arguments, said_of_it):
    """Exit code 2."""
    store(*runs(1.0))
    said = llmspeed("history", *arguments)
    assert (said.code, said_of_it in said.err) == (2, True), said.err
