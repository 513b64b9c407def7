"""`llmspeed compare`: the product's judgement on reports of two sides."""

import json

import pytest
from helpers.reports import CHAT, SHAPE, a_missed_budget, a_run, a_sample, a_test

from pytest_llmspeed.metrics.load_result import LoadResult
from pytest_llmspeed.metrics.measurement import Measurement
from pytest_llmspeed.records.record import run_to_builtins, run_to_stored
from pytest_llmspeed.regression.verdicts import Verdict

LEVELS = (1.0, 1.01, 0.99, 1.02, 0.98)


@pytest.fixture
def five_old(write):
    """Five reports within two percent of each other."""
    for day, level in enumerate(LEVELS, 1):
        write(f"old/{day}.json", a_run(day, a_test(slow=level), updated=False))


def verdicts(said):
    return {test["identity"]: test["verdict"] for test in said.json["tests"]}


def test_the_same_speed_passes(llmspeed, write, five_old):
    """Exit code 0, a row for each metric, and the counts of the closing section."""
    write("new.json", a_run(9))
    said = llmspeed("compare", "old", "new.json")
    assert said.code == 0
    assert "passed: no slowdown above 20%" in said.out
    assert "1 test measured: 1 passed" in said.out


def test_a_slowdown_is_exit_code_1(llmspeed, write, five_old):
    """The rows and units of the closing section, and the sessions that counted."""
    write("new.json", a_run(9, a_test(slow=1.5)))
    said = llmspeed("compare", "old", "new.json")
    assert said.code == 1
    assert "1 test measured: 1 slower" in said.out
    assert "+50%" in said.out
    (found, _) = llmspeed("compare", "--json", "old", "new.json").json["tests"][0]["sessions"][0][
        "comparisons"
    ]
    assert (found["verdict"], found["sessions"]) == ("slower", 5)


def test_two_single_reports(llmspeed, write):
    """One old session shows a slowdown of a half."""
    write("old.json", a_run(1))
    write("new.json", a_run(2, a_test(slow=1.5)))
    assert llmspeed("compare", "old.json", "new.json").code == 1


def test_a_store_is_a_side_too(llmspeed, write, store):
    """The old side may be the folder of the baselines."""
    store(*(a_run(day, a_test(slow=level)) for day, level in enumerate(LEVELS, 1)))
    write("new.json", a_run(9, a_test(slow=1.5)))
    assert llmspeed("compare", ".llmspeed/baselines", "new.json").code == 1


def test_a_run_file_of_a_store_may_be_the_new_side(llmspeed, write, store):
    """The store keeps less of a run than a report: enough to judge it."""
    write("old.json", a_run(1))
    (path,) = store(a_run(2, a_test(slow=1.5)))
    said = llmspeed("compare", "old.json", str(path))
    assert said.code == 1
    assert "1 test measured: 1 slower" in said.out


def a_load(slow=1.0, **fields):
    """A test of one load, with ten blocks unless told otherwise."""
    samples = tuple(a_sample(slow * each, call="load", stratum="load") for each in SHAPE)
    blocks = {
        "ttft_ms": tuple(100.0 * slow * each for each in SHAPE),
        "throughput_tps": tuple(30.0 / slow / each for each in SHAPE),
    }
    load = LoadResult({"concurrency": 4}, samples, **{"stratum": "load", "blocks": blocks, **fields})
    return a_test(measurement=Measurement(samples, loads=(load,)))


@pytest.mark.parametrize(("slow", "code", "word"), [(1.0, 0, "passed"), (1.6, 1, "slower")])
def test_the_loads_of_two_stores_are_compared(llmspeed, write, slow, code, word):
    """Of their requests a store keeps nothing, their blocks are enough."""
    for day in range(1, 6):
        write(f"old/box/{day}.json", run_to_stored(a_run(day, a_load())))
    write("new/box/9.json", run_to_stored(a_run(9, a_load(slow))))
    said = llmspeed("compare", "--json", "old", "new")
    (session,) = said.json["tests"][0]["sessions"]
    assert said.code == code
    assert {found["metric"]: found["verdict"] for found in session["comparisons"]} == {
        "ttft_ms": word,
        "throughput_tps": word,
    }


def test_a_test_that_only_sweeps_now_is_incomparable(llmspeed, write, store):
    """What it measured is held against nothing, and failed nowhere."""
    write("old.json", a_run(1, a_load()))
    store(a_run(2, a_load(counted=False)))
    said = llmspeed("compare", "old.json", ".llmspeed/baselines")
    assert said.code == 2
    assert "none of its requests are compared" in said.out
    assert "nothing was compared" in said.err


def test_a_test_that_is_not_compared_is_shown_by_a_metric_it_has(llmspeed, write):
    """Answers that were not streamed have no TTFT: a row of that name would be empty."""
    whole = {"ttft_ms": None, "ttfo_ms": None, "tpot_ms": None}
    samples = tuple(a_sample(1, call="load", stratum="load", **whole) for _ in SHAPE)
    sweep = LoadResult({"concurrency": 4}, samples, stratum="load", counted=False)
    write("old.json", a_run(1))
    write("new.json", a_run(2, a_test(measurement=Measurement(samples, loads=(sweep,)))))
    (session,) = llmspeed("compare", "old.json", "new.json", "--json").json["tests"][0]["sessions"]
    (comparison,) = session["comparisons"]
    assert (comparison["metric"], comparison["now"]) == ("e2e_ms", samples[0].e2e_ms)


def test_the_level_of_a_store_counts(llmspeed, write, store):
    """What was accepted is the speed to keep."""
    accepted = a_test(slow=1.5, accepted="longer context", verdict=Verdict.SLOWER)
    store(a_run(1), a_run(2), a_run(3, accepted))
    write("new.json", a_run(9, a_test(slow=1.5)))
    said = llmspeed("compare", "--json", ".llmspeed/baselines", "new.json")
    assert said.code == 0
    assert said.json["tests"][0]["sessions"][0]["comparisons"][0]["sessions"] == 1


def test_a_report_that_only_saw_a_speed_up_starts_no_level(llmspeed, write):
    """Each of five reports was faster than some store; all five count."""
    for day in range(1, 6):
        write(f"old/{day}.json", a_run(day, a_test(verdict=Verdict.FASTER), updated=False))
    write("new.json", a_run(9))
    said = llmspeed("compare", "--json", "old", "new.json")
    assert said.json["tests"][0]["sessions"][0]["comparisons"][0]["sessions"] == 5


def test_old_runs_of_one_ci_job_count_once_and_it_is_said(llmspeed, write):
    """They share the mood of its machine."""
    for day in range(1, 6):
        write(f"old/{day}.json", a_run(day, job="ci 7"))
    write("new.json", a_run(9))
    said = llmspeed("compare", "old", "new.json")
    assert "1 of 5 old sessions count: the last ten at the current level, one per CI job" in said.out


def test_the_worst_of_several_new_sessions_is_shown(llmspeed, write, five_old):
    """Each is judged, and all of them count as comparisons."""
    for day, slow in ((11, 1.0), (12, 1.5), (13, 1.0)):
        write(f"new/{day}.json", a_run(day, a_test(slow=slow)))
    said = llmspeed("compare", "old", "new")
    assert said.code == 1
    assert "the worst of 3 new sessions is shown (1 slower, 2 passed)" in said.out


def test_another_key_is_compared_all_the_same(llmspeed, write):
    """The user asked for this pair: what differs is a note."""
    write("old.json", a_run(1))
    write("new.json", a_run(2, a_test(slow=1.5, precision="bf16")))
    said = llmspeed("compare", "old.json", "new.json")
    assert said.code == 1
    assert "compared although the precision differs: fp32 → bf16" in said.out


def test_another_environment_is_compared_all_the_same(llmspeed, write):
    """The same tests on another machine."""
    write("old.json", a_run(1))
    write("new.json", a_run(2, a_test(environment="gpu")))
    said = llmspeed("compare", "old.json", "new.json")
    assert "compared although the environment differs: box → gpu" in said.out


def a_measured(max_tokens, slow=1.0, label=None):
    """A test of one `measure`, whose declaration is part of its key and of its series' name."""
    declared = f"measure chat max_tokens={max_tokens} temperature=0 prompt=5aa"
    stratum = f"prompt {max_tokens}"
    samples = tuple(a_sample(slow * each, stratum=stratum, label=label) for each in SHAPE)
    return a_test(workload=(declared,), measurement=Measurement(samples))


@pytest.mark.parametrize(("slow", "code", "word"), [(1.0, 0, "passed"), (1.5, 1, "slower")])
def test_another_declaration_of_measure_is_compared_all_the_same(llmspeed, write, slow, code, word):
    """Its series has another name; it is the same call, and what differs is said."""
    for day in range(1, 6):
        write(f"old/{day}.json", a_run(day, a_measured(8)))
    write("new.json", a_run(9, a_measured(9, slow)))
    said = llmspeed("compare", "old", "new.json")
    assert said.code == code
    assert f"1 test measured: 1 {word}" in said.out
    assert "compared although the workload differs: max_tokens 8 → 9" in said.out


def test_another_load_is_compared_all_the_same(llmspeed, write):
    """By its ten parts, as a load of the same declaration."""
    for day in range(1, 6):
        write(f"old/{day}.json", a_run(day, a_load(stratum="load 111111")))
    write("new.json", a_run(9, a_load(1.6, stratum="load 222222")))
    assert llmspeed("compare", "old", "new.json").code == 1


def test_series_of_other_labels_are_not_taken_for_each_other(llmspeed, write):
    """Nothing was compared, though the tests are the same ones: exit code 2, and no word of a comparison."""
    write("old.json", a_run(1, a_measured(8, label="plan")))
    write("new.json", a_run(2, a_measured(9, label="act")))
    said = llmspeed("compare", "old.json", "new.json")
    assert said.code == 2
    assert "not compared: the workload differs: max_tokens 8 → 9" in said.out
    assert "nothing was compared" in said.err
    assert "compared although" not in said.out


def test_a_test_that_was_not_compared_beside_others_is_named(llmspeed, write):
    """The exit code is that of the others."""
    old = a_test("test_lost", measurement=a_measured(8, label="plan").measurement)
    new = a_test("test_lost", measurement=a_measured(9, label="act").measurement)
    write("old.json", a_run(1, a_test(), old))
    write("new.json", a_run(2, a_test(), new))
    said = llmspeed("compare", "old.json", "new.json")
    assert said.code == 0
    assert "not compared: test_lost" in said.err


def test_a_twin_is_preferred_and_the_rest_is_only_on_one_side(llmspeed, write):
    """Of two backends in NEW, the one that OLD has goes with it; the other stands alone."""
    write("old.json", a_run(1))
    write("new.json", a_run(2, a_test(), a_test(precision="bf16", slow=9)))
    said = llmspeed("compare", "--json", "old.json", "new.json")
    assert (said.code, said.json["only_new"]) == (0, [CHAT])
    assert [test["differs"] for test in said.json["tests"]] == [[]]


def test_tests_of_one_side_are_listed(llmspeed, write):
    """A test that went, and one that came."""
    write("old.json", a_run(1, a_test(), a_test("test_gone")))
    write("new.json", a_run(2, a_test(), a_test("test_new")))
    said = llmspeed("compare", "old.json", "new.json")
    assert "only in OLD: test_gone" in said.out
    assert "only in NEW: test_new" in said.out


def test_what_changed_is_said(llmspeed, write):
    """Recorded facts that differ: here the commit."""
    write("old.json", a_run(1, commit="aaa"))
    write("new.json", a_run(2, commit="bbb"))
    said = llmspeed("compare", "old.json", "new.json")
    assert "changed since OLD: commit: aaa → bbb" in said.out


def test_a_metric_with_a_budget_is_compared_and_the_budget_is_not_checked(llmspeed, write):
    """A missed budget of the run is no slowdown."""
    for day in (1, 2):
        write(f"{day}.json", a_run(day, a_test(budgets=(a_missed_budget(),))))
    said = llmspeed("compare", "1.json", "2.json")
    assert said.code == 0
    assert "e2e_ms" in said.out
    assert "budget" not in said.out


def test_failed_requests_are_invalid_and_fail(llmspeed, write, five_old):
    """A dead server does not look fast, in `measure` or in free calls."""
    nothing = {"error": "refused", "output_events": 0, "output_tokens": None, "itl_ms": ()} | dict.fromkeys(
        ("ttft_ms", "ttfo_ms", "tpot_ms", "e2e_ms", "throughput_tps")
    )
    for call in ("measure", "generate"):
        failed = Measurement(tuple(a_sample(1, call=call, **nothing) for _ in SHAPE))
        write("new.json", a_run(9, a_test(measurement=failed)))
        said = llmspeed("compare", "old", "new.json")
        assert said.code == 1
        assert "invalid: 10 of 10 requests failed, the last with: refused" in said.out


def test_too_few_requests_are_inconclusive_with_a_reason(llmspeed, write, five_old):
    """Too little is never passed."""
    write("new.json", a_run(9, a_test(shape=SHAPE[:3])))
    said = llmspeed("compare", "old", "new.json")
    assert said.code == 0
    assert "ttft_ms: 3 requests were measured, at least 5 are needed" in said.out


@pytest.mark.parametrize(
    ("old", "message"),
    [
        ("nowhere.json", "nowhere.json: no such file; name a report of pytest --llmspeed-json"),
        ("text.json", "text.json is corrupt: it is not JSON"),
        ("other.json", 'other.json is corrupt: it has no "schema"'),
        ("later.json", "its schema is 'llmspeed/9', this version reads 'llmspeed/2'; upgrade"),
        ("broken.json", "broken.json is corrupt: tests is missing"),
        ("words.json", "words.json is corrupt: tests[0].measurement.requests[0].ttft_ms is 'fast'"),
        ("empty", "empty: it contains no .json file"),
        ("new.json", "every run of new.json is also in new.json"),
        ("strange.json", "have no test in common (the one has test_strange; the other test_chat.py"),
    ],
)
def test_bad_input_is_one_clear_line(llmspeed, write, folder, old, message):
    """Exit code 2, nothing on stdout, the file and the fix on stderr."""
    write("new.json", a_run(2))
    (folder / "text.json").write_text("slow")
    write("other.json", {"totals": 1})
    write("later.json", {"schema": "llmspeed/9"})
    write("broken.json", {"schema": "llmspeed/1", "run": {}})
    words = json.dumps(run_to_builtins(a_run(1), text=True)).replace(
        '"ttft_ms": 100.0,', '"ttft_ms": "fast",'
    )
    (folder / "words.json").write_text(words)
    (folder / "empty").mkdir()
    write("strange.json", a_run(1, a_test("test_strange")))
    said = llmspeed("compare", old, "new.json")
    assert (said.code, said.out) == (2, "")
    assert message in said.err
    assert said.err.count("\n") == 1


def test_an_unreadable_file_of_a_folder_is_left_out_aloud(llmspeed, write, folder, five_old):
    """The others count."""
    (folder / "old" / "half.json").write_text("{")
    write("new.json", a_run(9))
    said = llmspeed("compare", "old", "new.json")
    assert said.code == 0
    assert "left out: old/half.json is corrupt: it is not JSON" in said.err


def test_the_new_run_is_not_its_own_baseline(llmspeed, write, five_old):
    """A report that lies in the old folder too is judged by the others."""
    write("old/9.json", a_run(9, a_test(slow=1.5)))
    assert llmspeed("compare", "old", "old/9.json").code == 1
