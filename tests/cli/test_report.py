"""`llmspeed report`: the newest run on a page, the others beside it."""

from dataclasses import replace

import pytest
from helpers.reports import CHAT, a_run, a_test

from pytest_llmspeed.records.record import SuiteShift, SuiteVerdict, run_to_builtins
from pytest_llmspeed.regression.verdicts import Comparison, Verdict


def test_the_newest_run_is_shown_beside_those_before_it(llmspeed, write, folder):
    """Whatever the order of the files; history needs three earlier sessions."""
    for day in (4, 1, 3, 2):
        write(f"runs/{day}.json", a_run(day, commit=f"commit{day}"))
    said = llmspeed("report", "runs", "-o", "new/page.html")
    assert (said.code, said.err) == (0, "")
    assert said.out == "new/page.html: 1 test, 3 earlier runs\n"
    page = (folder / "new/page.html").read_text("utf-8")
    assert CHAT in page
    assert "commit commit4" in page
    assert 'aria-label="3 stored sessions and now: 2026-03-01 to now"' in page
    assert "ttft_ms over 3 sessions" in page


def test_what_the_tests_say_together_is_on_the_page(llmspeed, write, folder):
    """As on the page of the run itself."""
    shift = SuiteShift("box", "tpot_ms", Verdict.SLOWER, 1.15, (1.08, 1.22), 0.0001, 8, 5)
    alone = Comparison(Verdict.SLOWER, metric="ttft_ms", baseline=100.0, now=150.0, delta=1.5, ci=(1.4, 1.6))
    suite = SuiteVerdict(Verdict.SLOWER, (shift,), ((CHAT, alone),))
    write("run.json", replace(a_run(1), suite=suite))
    assert llmspeed("report", "run.json", "-o", "page.html").code == 0
    page = (folder / "page.html").read_text("utf-8")
    assert "the whole suite is slower: tpot_ms +15%" in page
    assert f"{CHAT}: ttft_ms is slower" in page


def test_a_damaged_verdict_on_the_suite_is_named(llmspeed, write):
    """With its file, its place and the fix."""
    content = run_to_builtins(a_run(1), text=True)
    write("run.json", {**content, "run": {**content["run"], "suite_verdict": {"verdict": "slower"}}})
    said = llmspeed("report", "run.json", "-o", "page.html")
    assert said.code == 2
    assert "run.json is corrupt (run.suite_verdict: KeyError: 'shifts'); restore or delete it" in said.err


@pytest.mark.parametrize("target", ["taken", "taken.txt/page.html"])
def test_a_page_that_cannot_be_written_is_named(llmspeed, write, folder, target):
    """A folder, or below a file."""
    write("run.json", a_run(1, a_test()))
    (folder / "taken").mkdir()
    (folder / "taken.txt").write_text("")
    said = llmspeed("report", "run.json", "-o", target)
    assert said.code == 2
    assert f"the report cannot be written to {target}" in said.err
