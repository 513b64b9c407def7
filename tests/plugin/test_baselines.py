"""Baselines from run to run: stored, compared, accepted, never touched; under a real pytest."""

from __future__ import annotations

import json
import os
from datetime import date, timedelta
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from helpers.project import RERUNS, shows

if TYPE_CHECKING:
    from pathlib import Path

    from helpers.project import Project

MEASURE = "def test_chat(llm_client): llm_client.measure('hello', max_tokens=8)"


@pytest.fixture
def chat(project: Project) -> Project:
    """A project with one measured test."""
    project.write(MEASURE)
    return project


def contents(files: list[Path]) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in files}


def test_an_update_writes_one_run_file(chat: Project) -> None:
    """One file, in the folder of the environment, in the schema of the report, without answers."""
    result = chat.run("--llmspeed-update-baseline")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*no baseline yet*")
    (path,) = chat.run_files
    stored = json.loads(path.read_text())
    assert path.parent.name == stored["tests"][0]["environment"]
    assert stored["schema"] == "llmspeed/2"
    assert "scripted answer" not in path.read_text()
    assert stored["tests"][0]["measurement"]["requests"]["count"] == 10


def test_without_the_flag_nothing_is_stored(chat: Project) -> None:
    """A plain run leaves no store behind."""
    chat.run()
    assert not (chat.path / ".llmspeed").exists()


def test_twenty_unchanged_runs_are_green(chat: Project) -> None:
    """On the fake clock, against five stored sessions, no run of the same engine is called slower."""
    chat.record(5)
    for seed in range(20):
        chat.script(seed=seed)
        chat.run().assert_outcomes(passed=1)
        assert set(chat.verdicts().values()) <= {"passed", "inconclusive"}


def test_a_slowdown_fails_ci(chat: Project) -> None:
    """60% slower than five stored sessions: exit code 1, a failure in JUnit, nothing stored."""
    chat.record(5)
    before = contents(chat.run_files)
    chat.script(factor=1.6)
    result = chat.run("--llmspeed-update-baseline", "--junitxml=junit.xml")
    assert result.ret == 1
    shows(result, "tpot_ms is slower than its baseline", "5 stored sessions", "--llmspeed-accept")
    case = ElementTree.parse(chat.path / "junit.xml").getroot().find(".//testcase")
    assert case is not None
    assert case.get("name") == "test_chat"
    assert case.find("failure") is not None
    assert contents(chat.run_files) == before


def test_a_rerun_of_a_slower_test_stays_slower(chat: Project) -> None:
    """The refused session did not become the baseline."""
    chat.record(5)
    chat.script(factor=1.6)
    chat.run("--llmspeed-update-baseline").assert_outcomes(failed=1)
    chat.run("--llmspeed-update-baseline").assert_outcomes(failed=1)


def test_an_accepted_slowdown_starts_a_level(chat: Project) -> None:
    """Accepted with its reason: printed, stored, and the new speed is the one to keep."""
    chat.record(5)
    chat.script(factor=1.6)
    result = chat.run("--llmspeed-update-baseline", "--llmspeed-accept", "longer context")
    result.assert_outcomes(passed=1)
    shows(result, "slower, accepted: longer context", "1 accepted")
    assert json.loads(chat.run_files[-1].read_text())["tests"][0]["accepted"] == "longer context"
    chat.script(seed=7)
    chat.run().assert_outcomes(passed=1)
    assert {found["sessions"] for found in chat.test()["comparisons"]} == {1}


def test_a_faster_session_starts_a_level(chat: Project) -> None:
    """After a speed-up was stored, a fall back to the old speed is a slowdown."""
    chat.record(5)
    chat.script(factor=0.6)
    chat.run("--llmspeed-update-baseline").assert_outcomes(passed=1)
    assert set(chat.verdicts().values()) == {"faster"}
    chat.script(factor=1, seed=9)
    chat.run().assert_outcomes(failed=1)


def test_old_run_files_stay_as_they_are(chat: Project) -> None:
    """A further update adds a file and touches none."""
    chat.record(2)
    before = contents(chat.run_files)
    chat.record(1)
    assert contents([path for path in chat.run_files if path in before]) == before
    assert len(chat.run_files) == 3


def test_five_sessions_of_one_ci_job_count_as_one(chat: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of one job share the mood of its machine."""
    monkeypatch.setenv("CI_JOB_ID", "77")
    chat.record(4)
    result = chat.run("--llmspeed-update-baseline")
    assert {found["sessions"] for found in chat.test()["comparisons"]} == {1}
    shows(
        result, "1 session stored that will not count: an earlier one of the same CI job (CI_JOB_ID=77) does"
    )
    monkeypatch.setenv("LLMSPEED_JOB", "another machine")
    assert "will not count" not in str(chat.run("--llmspeed-update-baseline").outlines)


def test_only_what_passed_is_stored(project: Project) -> None:
    """Of a run with failures, the sessions of the tests that passed are stored."""
    project.write(
        """
        def test_good(llm_client): llm_client.measure("hello")
        def test_bad(llm_client):
            llm_client.measure("hello")
            assert False
        """
    )
    project.run("--llmspeed-update-baseline").assert_outcomes(passed=1, failed=1)
    (path,) = project.run_files
    assert [test["identity"] for test in json.loads(path.read_text())["tests"]] == ["test_it.py::test_good"]


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_test_that_passed_only_when_it_was_run_again_is_not_stored(project: Project, workers: str) -> None:
    """A body, a budget or a set-up that failed at first; the closing section says why."""
    project.write(
        """
        import pathlib
        import pytest

        def again(name):
            before = pathlib.Path(name).exists()
            pathlib.Path(name).touch()
            return before

        @pytest.fixture
        def set_up(): assert again("set_up")

        def test_body(llm_client):
            llm_client.measure("hello", max_tokens=8)
            assert again("body")

        @pytest.mark.llm_budget(ttft_ms=500)
        def test_budget(llm_client, monkeypatch):
            monkeypatch.setenv("SCRIPTED_FACTOR", "1" if again("budget") else "9")
            llm_client.measure("hello", max_tokens=8)

        def test_set_up(set_up, llm_client): llm_client.measure("hello", max_tokens=8)

        def test_good(llm_client): llm_client.measure("hello", max_tokens=8)
        """
    )
    result = project.run(*RERUNS, "--reruns=1", "--llmspeed-update-baseline", "-n", workers)
    assert result.parseoutcomes() == {"passed": 4, "rerun": 3}
    (path,) = project.run_files
    assert [test["identity"] for test in json.loads(path.read_text())["tests"]] == ["test_it.py::test_good"]
    shows(result, "3 tests: an earlier attempt of this test failed, so this run of it is not stored")


def test_another_key_is_incomparable_and_says_what_differs(project: Project) -> None:
    """Another precision, or another prompt of measure, does not meet the old baseline."""
    project.write(MEASURE)
    project.record(3, "--llmspeed-precision=fp32")
    result = project.run("--llmspeed-precision=bf16")
    result.assert_outcomes(passed=1)
    shows(result, "the baseline does not match this test (precision: fp32 → bf16)")
    project.run("--llmspeed-precision=bf16", "--llmspeed-require-baseline").assert_outcomes(failed=1)
    project.write(MEASURE.replace("hello", "good bye"))
    shows(project.run("--llmspeed-precision=fp32"), "workload: ")


FREE = """
    def test_it(llm_client):
        for number in llm_client.rounds(10):
            llm_client.generate(f"prompt {number}", max_tokens=8)
"""


def test_a_prompt_that_grew_is_a_slowdown_that_can_be_accepted(project: Project) -> None:
    """The times are judged, the sentence says the growth first, and a reason makes it the norm."""
    project.write(FREE)
    project.record(5)
    project.script(prompt_tokens=200, factor=2)
    result = project.run()
    result.assert_outcomes(failed=1)
    shows(result, "the prompt of call 1 grew from 12 to 200 tokens; ttft_ms is slower than its baseline: ")
    project.run("--llmspeed-update-baseline", "--llmspeed-accept", "longer context").assert_outcomes(passed=1)
    project.script(seed=7)
    project.run().assert_outcomes(passed=1)
    assert {found["sessions"] for found in project.test()["comparisons"]} == {1}


def test_a_prompt_that_grew_without_slowing_anything_passes(project: Project) -> None:
    """It is no failure by itself."""
    project.write(FREE)
    project.record(5)
    project.script(prompt_tokens=200, seed=7)
    project.run().assert_outcomes(passed=1)


def test_a_prompt_that_shrank_makes_no_new_norm_by_itself(project: Project) -> None:
    """Faster because shorter may be a mistake: it passes, and is stored only with a reason."""
    project.write(FREE)
    project.record(5)
    project.script(prompt_tokens=3, factor=0.5)
    result = project.run("--llmspeed-update-baseline")
    result.assert_outcomes(passed=1)
    shows(result, "the prompt of call 1 shrank from 12 to 3 tokens; ", " is faster: ", "--llmspeed-accept")
    shows(result, "baseline not updated: test_it faster with a shorter prompt")
    assert len(project.run_files) == 5
    project.run("--llmspeed-update-baseline", "--llmspeed-accept", "leaner").assert_outcomes(passed=1)
    assert len(project.run_files) == 6


def test_longer_answers_make_end_to_end_incomparable(project: Project) -> None:
    """E2E and throughput follow the length of the answer; TTFT and TPOT are judged as usual."""
    project.write(
        """
        import pytest

        @pytest.mark.llm_budget(e2e_ms=5000, throughput_tps=1)
        def test_it(llm_client): llm_client.measure("hello", max_tokens=64)
        """
    )
    project.record(5)
    project.script(tokens=12, seed=3)
    project.run().assert_outcomes(passed=1)
    verdicts = project.verdicts()
    assert (verdicts["e2e_ms"], verdicts["throughput_tps"]) == ("incomparable", "incomparable")
    assert verdicts["ttft_ms"] in ("passed", "inconclusive")


def test_what_changed_since_the_baseline_is_said(chat: Project) -> None:
    """An engine's new version is not keyed, it is what is being tested: the failure names it."""
    chat.record(5)
    chat.script(factor=1.6, version="2.0")
    shows(chat.run(), "changed since: scripted: 1.0 → 2.0")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{ half a fi", "is corrupt: it is not JSON"),
        (b'{"schema": "llmspeed/1", "run": {}, "tests": [{}]}', "is corrupt: run.started is missing"),
        (b'{"schema": "llmspeed/9"}', "its schema is 'llmspeed/9', this version reads 'llmspeed/2'"),
        (b"[]", 'is corrupt: it has no "schema"'),
    ],
)
def test_an_unreadable_run_file_is_named_and_the_others_count(
    chat: Project, content: bytes, message: str
) -> None:
    """A corrupt file, or one of a later schema, is left out aloud."""
    chat.record(3)
    bad = chat.run_files[0].parent / "20200101T000000-x-y.json"
    bad.write_bytes(content)
    result = chat.run()
    result.assert_outcomes(passed=1)
    shows(result, f"a baseline file is left out: {bad}", message)
    assert {found["sessions"] for found in chat.test()["comparisons"]} == {3}


def test_a_write_that_fails_is_told_and_leaves_no_half_file(
    chat: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk at the end of the run: the run says so and does not end well."""

    def full_disk(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    result = chat.run("--llmspeed-update-baseline")
    assert result.ret == 1
    result.assert_outcomes(passed=1, errors=1)  # the last line is no "1 passed" alone
    shows(result, "the baseline store cannot be written", "No space left on device")
    assert [path for path in (chat.path / ".llmspeed").rglob("*") if path.is_file()] == []


def test_another_environment_is_named_where_it_has_the_baselines(chat: Project) -> None:
    """A runner class of another name has no baseline yet; the advice says where there is one."""
    chat.run("--llmspeed-update-baseline", "-o", "llmspeed_environment=CI Runner L4")
    shows(chat.run(), "there is one for ci-runner-l4", "llmspeed_environment")


@pytest.mark.parametrize("workers", ["0", "2"])
def test_workers_give_the_same_verdicts_and_the_controller_writes(project: Project, workers: str) -> None:
    """Under xdist the gate is on, and one run file is written."""
    project.write(
        """
        import pytest

        @pytest.mark.parametrize("n", range(4))
        def test_it(llm_client, n): llm_client.measure(f"hello {n}", max_tokens=8)
        """
    )
    project.record(5, "-n", workers)
    assert len(project.run_files) == 5
    project.script(factor=1.6)
    result = project.run("-n", workers)
    result.assert_outcomes(failed=4)
    shows(result, "4 tests measured: 4 slower")


def test_small_steps_do_not_become_the_norm(chat: Project) -> None:
    """3% slower each session: suspects do not count until they are cleared, so it fails in the end."""
    for number in range(11):
        chat.script(seed=300 + number, factor=1.03**number)
        if chat.run("--llmspeed-update-baseline").ret != 0:
            break
    assert set(chat.verdicts().values()) & {"slower"}


def test_an_old_baseline_is_said_to_be_old(chat: Project) -> None:
    """Past thirty days one line says so; the verdict stands."""
    chat.record(3)
    for path in chat.run_files:
        run = json.loads(path.read_text())
        run["run"]["started"] = "2020-01-01T00:00:00+00:00"
        path.write_text(json.dumps(run))
    result = chat.run()
    result.assert_outcomes(passed=1)
    shows(result, "days old: store a new session")


def test_a_speed_up_of_one_metric_starts_a_level(project: Project) -> None:
    """Where TPOT became faster and TTFT is undecided, a later fall back of TPOT is still seen."""
    test = """
        import pytest

        @pytest.mark.llm_backend("scripted", tpot_ms={tpot})
        def test_it(llm_client): llm_client.measure("hello", max_tokens=8)
        """
    project.write(test.format(tpot=20))
    project.script(mood=0.001)
    project.record(5)
    project.write(test.format(tpot=12))
    project.run("--llmspeed-update-baseline").assert_outcomes(passed=1)
    assert project.verdicts()["tpot_ms"] == "faster"
    project.write(test.format(tpot=20))
    project.script(seed=9)
    project.run().assert_outcomes(failed=1)


def test_two_marks_that_differ_in_options_have_their_own_baselines(project: Project) -> None:
    """The same engine with another option is another test: neither is held against the other."""
    project.write(
        """
        import pytest

        @pytest.mark.llm_backend("scripted", tpot_ms=20)
        @pytest.mark.llm_backend("scripted", tpot_ms=60)
        def test_it(llm_client): llm_client.measure("hello", max_tokens=8)
        """
    )
    project.record(3)
    project.run().assert_outcomes(passed=2)
    assert len({test["identity"] for test in project.report["tests"]}) == 2
    assert {c["sessions"] for test in project.report["tests"] for c in test["comparisons"]} == {3}


def test_the_order_of_prompts_does_not_matter_to_measure(project: Project) -> None:
    """Prompts of measure are told apart by what they are, not by when they came."""
    test = """
        def test_it(llm_client):
            for prompt, tokens in {order}:
                llm_client.measure(prompt, max_tokens=tokens)
        """
    project.write(test.format(order=[("short", 2), ("long", 8)]))
    project.record(3)
    before = {c["stratum"] for c in project.test()["comparisons"]}
    project.write(test.format(order=[("long", 8), ("short", 2)]))
    project.run().assert_outcomes(passed=1)
    assert {c["stratum"] for c in project.test()["comparisons"]} == before
    assert {c["sessions"] for c in project.test()["comparisons"]} == {3}


def test_a_failed_subtest_is_not_stored(project: Project) -> None:
    """The body went through, a subtest did not: the test failed, so nothing of it is a baseline."""
    pytest.importorskip("_pytest.subtests")
    project.write(
        """
        def test_it(llm_client, subtests):
            llm_client.measure("hello", max_tokens=8)
            with subtests.test("one"):
                assert False
        """
    )
    assert project.run("--llmspeed-update-baseline").ret == 1
    assert project.run_files == []


BOTH = """
    def test_old(llm_client): llm_client.measure("hello", max_tokens=8)
    def test_kept(llm_client): llm_client.measure("hello", max_tokens=8)
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_tests_that_no_longer_exist_are_reported_on_a_full_run(project: Project, workers: str) -> None:
    """A renamed test is told; a selection, which leaves tests out on purpose, says nothing."""
    project.write(BOTH)
    project.record(2)
    assert "not collected" not in project.run("-n", workers, "-k", "kept").stdout.str()
    assert "not collected" not in project.run("-n", workers).stdout.str()
    project.write(BOTH.replace("test_old", "test_new"))
    shows(
        project.run("-n", workers),
        "1 test has a baseline but was not collected: test_it.py::test_old; if you removed or",
    )
    assert "not collected" not in project.run("-n", workers, "test_it.py").stdout.str()


def test_a_test_that_no_longer_exists_is_reported_until_the_next_update(project: Project) -> None:
    """Its old run files may be needed by others: they say nothing once a newer one is without it."""
    project.write(BOTH)
    project.record(2)
    (project.path / "test_it.py").unlink()
    project.pytester.makepyfile(test_new=BOTH.replace("test_old", "test_new"))
    shows(
        project.run("--llmspeed-update-baseline"),
        "2 tests have baselines but were not collected: test_it.py::test_kept, test_it.py::test_old",
    )
    assert "not collected" not in project.run().stdout.str()


def test_a_test_in_a_file_that_was_not_looked_into_is_not_gone(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pytest was started in a folder, or could not import a module: nothing is known of the others."""
    project.write(BOTH)
    below = project.pytester.mkpydir("below")
    (below / "test_below.py").write_text("def test_it(llm_client): llm_client.measure('hello', max_tokens=8)")
    project.record(2)
    (project.path / "test_it.py").write_text("raise ImportError")
    broken = project.run("--continue-on-collection-errors")
    assert broken.parseoutcomes() == {"passed": 1, "errors": 1}
    monkeypatch.chdir(below)
    result = project.run()
    result.assert_outcomes(passed=1)
    assert "not collected" not in broken.stdout.str() + result.stdout.str()


def test_a_deselected_test_is_not_stored_and_keeps_its_baseline(project: Project) -> None:
    """An update stores the selected tests only."""
    project.write(
        """
        def test_one(llm_client): llm_client.measure("hello", max_tokens=8)
        def test_two(llm_client): llm_client.measure("hello", max_tokens=8)
        """
    )
    project.record(1)
    project.record(1, "-k", "one")
    stored = [[t["identity"] for t in json.loads(p.read_text())["tests"]] for p in project.run_files]
    assert sorted(map(len, stored)) == [1, 2]


def test_sessions_of_one_afternoon_do_not_shrink_the_prior(chat: Project) -> None:
    """Eight runs in a row agree because it is one afternoon; spread over days they are evidence."""
    chat.record(8)
    chat.script(factor=1.12, seed=7)
    chat.run()
    assert set(chat.verdicts().values()) == {"suspect"}
    for day, path in enumerate(chat.run_files, start=1):
        run = json.loads(path.read_text())
        run["run"]["started"] = f"{date.today() - timedelta(days=day)}T12:00:00+00:00"
        path.write_text(json.dumps(run))
    chat.run()
    assert set(chat.verdicts().values()) == {"slower"}
