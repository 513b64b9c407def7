"""Stored sessions and the window of them that counts."""

from dataclasses import replace

import pytest

from pytest_llmspeed.baselines.sessions import Session, session_of_test, sessions_of_run
from pytest_llmspeed.baselines.window import gated_comparisons, window
from pytest_llmspeed.engines.backend import Backend
from pytest_llmspeed.metrics.measurement import Measurement
from pytest_llmspeed.records.record import (
    RunRecord,
    TestRecord,
    run_to_builtins,
    test_to_builtins,
)
from pytest_llmspeed.regression.verdicts import Verdict

KEY = {"backend": "tiny", "precision": "fp32", "workload": ["measure chat"]}
RUN = {"started": "2026-03-01T10:00:00+00:00", "id": "r1", "job": None, "commit": "abc"}


def session(day, *, hour=10, **fields):
    """A session of test_chat, of a run of its own."""
    known = {
        "identity": "tests/test_chat.py::test_chat",
        "environment": "box",
        "key": KEY,
        "started": f"2026-03-{day:02d}T{hour:02d}:00:00+00:00",
        "run_id": f"run-{day}-{hour}",
        "job": None,
        "facts": {},
        "series": {},
    }
    return Session(**{**known, **fields})


def chosen(history):
    """The days of the sessions in the window."""
    found = window(history, "tests/test_chat.py::test_chat", KEY)
    return [int(s.started[8:10]) for s in found.sessions]


def test_the_window_is_the_last_ten_sessions_oldest_first():
    """Of thirteen sessions, given in any order, the newest ten count."""
    assert chosen([session(day) for day in (7, 1, 13, *range(2, 7), *range(8, 13))]) == list(range(4, 14))


def test_sessions_of_other_tests_do_not_count():
    """A session belongs to the test whose identity it has."""
    assert chosen([session(1), session(2, identity="tests/test_chat.py::test_other")]) == [1]


def test_sessions_under_another_key_do_not_count():
    """Only what was measured in the same way is compared."""
    assert chosen([session(1), session(2, key={**KEY, "precision": "bf16"})]) == [1]


def test_another_key_alone_is_named_by_what_differs():
    """Where the test is stored under another key only, each difference is old → new."""
    old = {**KEY, "precision": "bf16", "workload": []}
    found = window([session(1, key=old)], "tests/test_chat.py::test_chat", KEY)
    assert found.sessions == ()
    assert found.differs == ("precision: bf16 → fp32", "workload: now also measure chat")


def test_a_call_under_a_label_of_its_own_leaves_the_others_their_baseline():
    """A step that an agent gains is new, the steps that it had are not."""
    plan = "sdk chat max_tokens=8 temperature=0 label=plan"
    old, new = ({**KEY, "workload": lines} for lines in ([plan], [plan.replace("plan", "act"), plan]))
    assert len(window([session(1, key=old)], "tests/test_chat.py::test_chat", new).sessions) == 1
    assert window([session(1, key=new)], "tests/test_chat.py::test_chat", old).sessions == ()
    other_model = {**new, "model": "other"}
    assert window([session(1, key=old)], "tests/test_chat.py::test_chat", other_model).sessions == ()


def test_the_newest_of_other_keys_is_what_is_compared_with():
    """Differences are told against the session stored last."""
    history = [session(2, key={**KEY, "precision": "bf16"}), session(1, key={**KEY, "precision": "int8"})]
    found = window(history, "tests/test_chat.py::test_chat", KEY)
    assert found.differs == ("precision: bf16 → fp32",)


def test_a_test_that_was_never_stored_has_an_empty_window():
    """Nothing stored differs in nothing."""
    found = window([session(1, identity="x")], "tests/test_chat.py::test_chat", KEY)
    assert (found.sessions, found.differs, found.facts) == ((), (), {})


def test_a_session_that_starts_a_level_hides_those_before():
    """After an accepted change the older sessions no longer count, the changed one does."""
    history = [session(1), session(2), session(3, starts_level=True), session(4)]
    assert chosen(history) == [3, 4]


def test_the_last_level_counts():
    """Of several levels the newest is the current one."""
    history = [session(1, starts_level=True), session(2), session(3, starts_level=True)]
    assert chosen(history) == [3]


def test_a_session_of_the_old_code_that_comes_later_is_not_of_an_accepted_level():
    """A merged branch: it did not know of the level, so it does not pull the new norm back."""
    history = [session(day, level="first") for day in range(1, 6)]
    accepted = session(6, starts_level=True, level="first")
    branch = session(7, level="first")
    after = session(8, level=accepted.run_id)
    assert chosen([*history, accepted, branch]) == [6]
    assert chosen([*history, accepted, branch, after]) == [6, 8]


def test_a_level_that_was_accepted_by_a_lagging_clock_holds_no_older_sessions():
    """Its start lies three days back; those that ran before it are still of the old level."""
    history = [session(day, level="first") for day in range(1, 6)]
    accepted = session(3, hour=20, starts_level=True, level="first")
    assert chosen([*history, accepted]) == [3]
    assert chosen([*history, accepted, session(6, level=accepted.run_id)]) == [3, 6]


def test_a_start_of_a_level_by_a_clock_ahead_gives_way_to_what_was_accepted_after_it():
    """The levels know each other; dates do not matter."""
    ahead = session(20, starts_level=True, level="first")
    later = session(7, starts_level=True, level=ahead.run_id)
    history = [session(1, level="first"), ahead, session(21, level=ahead.run_id), later]
    assert chosen(history) == [7]
    found = window(history, "tests/test_chat.py::test_chat", KEY)
    assert found.level == later.run_id


def test_a_level_outlives_the_file_that_started_it():
    """Its other sessions know that it was begun."""
    assert chosen([session(1, level="first"), session(3, level="gone"), session(2, level="gone")]) == [2, 3]


def test_of_two_branches_that_accepted_something_the_later_counts_after_the_merge():
    """Neither knew of the other."""
    one, other = (session(day, starts_level=True, level="first") for day in (4, 5))
    assert chosen([session(1, level="first"), one, other, session(6, level=one.run_id)]) == [5]


def test_files_without_levels_are_read_by_their_dates():
    """Stores of earlier versions: what comes after the last accepted change is of its level."""
    history = [session(1), session(2, starts_level=True), session(3), session(4, starts_level=True)]
    assert chosen([*history, session(5)]) == [4, 5]
    assert chosen([*history, session(5), session(6, level="run-4-10")]) == [4, 5, 6]


def test_suspects_at_the_end_do_not_count_until_a_later_session_is_not_suspect():
    """A slowdown that stays must not become the norm."""
    history = [session(1), session(2), session(3, suspect=True), session(4, suspect=True)]
    found = window(history, "tests/test_chat.py::test_chat", KEY)
    assert [s.run_id for s in found.pending] == ["run-3-10", "run-4-10"]
    assert chosen(history) == [1, 2]
    assert chosen([*history, session(5)]) == [1, 2, 3, 4, 5]


def test_suspects_of_the_job_at_hand_are_not_held_against_it_twice():
    """Runs of one job share its mood."""
    history = [session(1), session(2, suspect=True, job="7"), session(3, suspect=True, job="8")]
    found = window(history, "tests/test_chat.py::test_chat", KEY)
    assert [s.job for s in found.pending_before(session(4, job="8"))] == ["7"]


def test_of_one_ci_job_the_first_session_counts():
    """Re-runs within one job share the mood of its machine, so they are no further replicates."""
    history = [session(1, job="7"), session(2, job="7"), session(3, job="8")]
    assert chosen(history) == [1, 3]


def test_a_re_run_does_not_push_older_jobs_out():
    """One per job first, then the last ten: twelve re-runs of one job cost one place."""
    history = [session(day, job=f"{day}") for day in range(1, 6)]
    history += [session(10, hour=hour, job="10") for hour in range(12)]
    assert chosen(history) == [1, 2, 3, 4, 5, 10]


def test_without_a_ci_job_each_run_counts():
    """Two runs of one afternoon are two sessions."""
    assert chosen([session(1, hour=10), session(1, hour=11)]) == [1, 1]


@pytest.mark.parametrize(("days", "spans"), [((1, 1), False), ((1, 2), True), ((1,), False), ((1, 5), True)])
def test_a_window_spans_a_day_by_its_first_and_last_session(days, spans):
    """Sessions a day apart or more have seen the machine's moods."""
    history = [session(day, hour=10 + place * (days[0] == days[-1])) for place, day in enumerate(days)]
    assert window(history, "tests/test_chat.py::test_chat", KEY).spans_a_day is spans


def test_a_new_level_has_to_span_a_day_anew():
    """What the old level had seen says nothing of the new one."""
    history = [session(1), session(9, starts_level=True), session(9, hour=11)]
    assert not window(history, "tests/test_chat.py::test_chat", KEY).spans_a_day


def test_the_facts_are_those_of_the_newest_session():
    """What changed is told against the last session of the window."""
    history = [session(2, facts={"torch": "2.6"}), session(1, facts={"torch": "2.5"})]
    assert window(history, "tests/test_chat.py::test_chat", KEY).facts == {"torch": "2.6"}


@pytest.fixture
def record(sample):
    """A measured test: two prompts, one of them failing once."""
    samples = (
        sample(stratum="prompt 1", ttft_ms=10.0, output_tokens=4),
        sample(stratum="prompt 2", ttft_ms=30.0, label="chat", call="generate", prompt_tokens=50),
        sample(stratum="prompt 1", error="HTTP 500"),
        sample(stratum="prompt 1", ttft_ms=12.0, output_tokens=6),
    )
    return TestRecord(
        nodeid="test_chat.py::test_chat",
        identity="test_chat.py::test_chat",
        environment="box",
        backend=Backend("tiny", "m", precision="fp32", options={"seed": 3}, versions={"torch": "2.6"}),
        workload=("measure chat",),
        measurement=Measurement(samples),
        verdict=Verdict.PASSED,
    )


def stored(record, **run):
    return session_of_test(test_to_builtins(record, text=False), {**RUN, **run})


def test_a_session_holds_the_figures_of_what_succeeded_by_stratum(record):
    """Values are in the order measured, failures left out."""
    series = stored(record).series
    assert list(series) == ["prompt 1", "prompt 2"]
    assert series["prompt 1"].values["ttft_ms"].tolist() == [10.0, 12.0]
    assert series["prompt 2"].values["ttft_ms"].tolist() == [30.0]


def test_a_session_holds_the_usual_lengths(record):
    """Medians of output and prompt tokens, by stratum."""
    series = stored(record).series
    assert (series["prompt 1"].output_tokens, series["prompt 2"].prompt_tokens) == (5, 50)


def test_a_session_says_which_prompts_are_free(record):
    """Prompts of `measure` are part of the key, those of other calls are not."""
    series = stored(record).series
    assert [series[name].free for name in series] == [False, True]
    assert series["prompt 2"].label == "chat"


def test_metrics_without_a_value_are_left_out_of_a_session(record, sample):
    """A metric that no request gave is absent, not an empty or zero series."""
    silent = replace(record, measurement=Measurement((sample(tpot_ms=None),)))
    assert "tpot_ms" not in stored(silent).series["prompt 1"].values
    assert "e2e_ms" in stored(silent).series["prompt 1"].values


def test_gaps_enter_a_session_as_one_median_a_request(record, sample):
    """The gap between tokens of a request is its median, and only where events carry one token."""
    samples = (sample(itl_ms=(1.0, 2.0, 9.0)), sample(itl_ms=(4.0,), output_events=2, output_tokens=8))
    gaps = stored(replace(record, measurement=Measurement(samples))).series["prompt 1"].values["itl_ms"]
    assert gaps.tolist() == [2.0]


def test_a_session_records_versions_options_and_commit(record):
    """Facts are what may have changed since: engine versions, options, commit."""
    assert stored(record).facts == {"torch": "2.6", "commit": "abc", "option seed": 3}


def test_a_session_records_the_machine_that_it_ran_on(record):
    """What most often explains a slowdown; memory to whole GiB, since a boot changes a few MiB."""
    machine = {"cpus": 16, "memory_mib": 64213, "python": "3.11.7", "cpu": "EPYC"}
    facts = session_of_test(test_to_builtins(record, text=False), {**RUN, "environment": machine}).facts
    assert (facts["cpus"], facts["memory"], facts["python"]) == (16, "63 GiB", "3.11.7")


def test_a_test_without_an_engine_is_a_session_without_facts(record):
    """A record that names no backend is read all the same."""
    assert stored(replace(record, backend=None)).facts == {"commit": "abc"}


@pytest.mark.parametrize(
    ("verdict", "accepted", "starts"),
    [
        (Verdict.PASSED, None, False),
        (Verdict.NO_BASELINE, None, False),
        (Verdict.SUSPECT, None, False),
        (Verdict.FASTER, None, True),
        (Verdict.SLOWER, "larger context", True),
    ],
)
def test_faster_and_accepted_sessions_start_a_level(record, verdict, accepted, starts):
    """So that a later fall back to the old speed is seen."""
    found = stored(replace(record, verdict=verdict, accepted=accepted))
    assert (found.starts_level, found.reason) == (starts, accepted)


def test_a_run_file_gives_one_session_a_test(record):
    """Each carries its run's start, id, job and commit."""
    other = replace(record, identity="test_chat.py::test_other")
    run = RunRecord(RUN["started"], "r1", "job 7", "abc", {}, {}, (record, other))
    found = list(sessions_of_run(run_to_builtins(run, text=False)))
    assert [s.identity for s in found] == [record.identity, other.identity]
    assert {(s.run_id, s.job, s.replicate, s.started) for s in found} == {
        ("r1", "job 7", "job 7", RUN["started"])
    }


def test_a_stored_session_has_the_key_of_a_new_record(record):
    """What was stored is found again by the same test."""
    history = [stored(record)]
    assert len(window(history, record.identity, record.key).sessions) == 1
    moved = replace(record, workload=("measure other",))
    assert window(history, moved.identity, moved.key).differs == ("workload: measure chat → measure other",)


def test_engine_versions_and_options_are_not_part_of_the_key(record):
    """An upgrade is what is being tested."""
    upgraded = replace(record, backend=replace(record.backend, versions={"torch": "9"}, options={}))
    assert len(window([stored(record)], upgraded.identity, upgraded.key).sessions) == 1


def test_a_window_gives_one_array_a_session_that_has_the_metric(record, sample):
    """Sessions without the stratum or the metric are passed over."""
    silent = replace(record, measurement=Measurement((sample(stratum="prompt 1", ttft_ms=None),)))
    history = [stored(record, id="a"), stored(silent, id="b"), stored(record, id="c")]
    found = window(history, record.identity, record.key)
    assert [each.tolist() for each in found.values("prompt 1", "ttft_ms")] == [[10.0, 12.0]] * 2
    assert found.values("prompt 9", "ttft_ms") == []


def test_a_window_knows_the_usual_lengths(record, sample):
    """The median over its sessions; None where nobody counted."""
    long = replace(record, measurement=Measurement((sample(stratum="prompt 1", output_tokens=50),)))
    uncounted = replace(record, measurement=Measurement((sample(stratum="prompt 1", output_tokens=None),)))
    history = [stored(each, id=str(n)) for n, each in enumerate((record, long, long, uncounted))]
    found = window(history, record.identity, record.key)
    assert found.usual("prompt 1", "output_tokens") == 50
    assert window([stored(uncounted)], record.identity, record.key).usual("prompt 1", "output_tokens") is None


def test_the_gate_counts_ttft_and_tpot_of_every_stratum(record):
    """Two strata with both metrics are four comparisons; older sessions of a test add none."""
    older, newer = stored(record), stored(record, started="2026-03-02T10:00:00+00:00", id="r2")
    assert gated_comparisons([older]) == 4
    assert gated_comparisons([newer, older]) == 4
    assert gated_comparisons([]) == 0


def test_the_gate_counts_each_test_and_each_engine(record):
    """Another test or another engine makes comparisons of its own, an edited prompt replaces its own."""
    other = replace(record, identity="other")
    elsewhere = replace(record, backend=replace(record.backend, precision="fp8"))
    edited = replace(record, workload=("measure other",))
    assert gated_comparisons([stored(record), stored(other), stored(elsewhere), stored(edited)]) == 12


def test_the_gate_counts_what_the_newest_session_measured(record, sample):
    """A metric or a stratum that the newest session lacks is no longer compared."""
    silent = replace(record, measurement=Measurement((sample(tpot_ms=None),)))
    newer = stored(silent, started="2026-03-02T10:00:00+00:00", id="r2")
    assert gated_comparisons([stored(record), newer]) == 1
