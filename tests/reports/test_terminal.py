"""The closing section, line by line, and the report's file."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from pytest_llmspeed.errors import StoreError
from pytest_llmspeed.metrics.budgets import BudgetCheck
from pytest_llmspeed.metrics.measurement import Measurement
from pytest_llmspeed.metrics.reasons import Reason
from pytest_llmspeed.records.record import TestRecord
from pytest_llmspeed.regression.verdicts import Comparison, Verdict
from pytest_llmspeed.reports.files import write_report
from pytest_llmspeed.reports.rows import counts
from pytest_llmspeed.reports.terminal import closing_section

SLOWER = Comparison(
    Verdict.SLOWER, metric="ttft_ms", baseline=240.0, now=312.4, delta=1.3017, ci=(1.18, 1.43), sessions=5
)
PASSED = Comparison(
    Verdict.PASSED, metric="tpot_ms", baseline=10.0, now=10.1, delta=1.01, ci=(0.97, 1.05), sessions=5
)


def a_record(*comparisons, nodeid="test_chat.py::test_chat", **fields):
    verdict = comparisons[0].verdict if comparisons else None
    return TestRecord(nodeid, nodeid, **{"comparisons": comparisons, "verdict": verdict, **fields})


def section(*records, verbose=False, **fields):
    return list(closing_section(records, verbose=verbose, **fields))


def rows(*records, verbose=False):
    """The cells of the table's rows, by their headers."""
    lines = section(*records, verbose=verbose)
    table = lines[: lines.index("")]
    edges = [0]
    for dashes in table[1].split("  "):
        edges.append(edges[-1] + len(dashes) + 2)
    return [[line[a:b].strip() for a, b in pairwise(edges)] for line in table[2:]]


def test_where_nothing_was_used_there_is_no_section():
    """A suite without a test of ours reads as if the plugin were not there."""
    assert section() == []
    assert section(verbose=True) == []


def test_a_passed_test_has_no_row():
    """One line of counts is enough for good news."""
    assert section(a_record(PASSED)) == ["1 test measured: 1 passed"]


def test_what_is_not_passed_has_a_row():
    """Test, metric, baseline, now, change with interval, verdict."""
    assert rows(a_record(SLOWER, PASSED)) == [
        ["test_chat.py::test_chat", "ttft_ms", "240 ms", "312 ms", "+30% (+18% to +43%)", "slower"]
    ]


def test_verbose_shows_every_row_and_names_the_test_once():
    """Passed rows say what they rule out."""
    assert rows(a_record(SLOWER, PASSED), verbose=True) == [
        ["test_chat.py::test_chat", "ttft_ms", "240 ms", "312 ms", "+30% (+18% to +43%)", "slower"],
        ["", "tpot_ms", "10 ms", "10.1 ms", "+1.0% (-3.0% to +5.0%)", "passed: no slowdown above 20%"],
    ]


def test_the_table_has_its_headers():
    """In the order of the cells."""
    assert section(a_record(SLOWER))[0].split() == ["test", "metric", "baseline", "now", "change", "verdict"]


def test_what_is_missing_is_a_dash():
    """No figure is no zero."""
    found = Comparison(Verdict.NO_BASELINE, metric="ttft_ms", now=100.0)
    assert rows(a_record(found)) == [
        ["test_chat.py::test_chat", "ttft_ms", "–", "100 ms", "–", "no baseline"]
    ]


def test_an_accepted_slowdown_is_shown_with_its_reason():
    """In its row and in the counts."""
    record = a_record(SLOWER, accepted="larger context")
    assert rows(record)[0][-1] == "slower, accepted: larger context"
    assert section(record)[-1] == "1 test measured: 1 accepted"


def test_of_several_strata_the_worst_of_each_metric_is_shown():
    """A test with ten prompts does not fill the screen."""
    good, bad = replace(SLOWER, verdict=Verdict.PASSED, label="a"), replace(SLOWER, label="b")
    assert [row[1] for row in rows(a_record(bad, good, PASSED, verdict=Verdict.SLOWER))] == ["ttft_ms of 'b'"]
    assert len(rows(a_record(good, bad, PASSED, verdict=Verdict.SLOWER), verbose=True)) == 2


def test_a_missed_budget_has_a_row_and_a_kept_one_only_if_verbose():
    """Limit with its direction, observed value, what became of it."""
    missed = BudgetCheck("ttft_p95_ms", 300.0, 412.0, False, (350.0, None))
    kept = BudgetCheck("throughput_tps", 25.0, 40.0, True)
    record = a_record(PASSED, budgets=(missed, kept))
    assert rows(record) == [
        ["test_chat.py::test_chat", "ttft_p95_ms ≤ 300 ms", "–", "412 ms", "–", "budget missed"]
    ]
    assert rows(record, verbose=True)[1] == [
        "",
        "throughput_tps ≥ 25 tokens/s",
        "–",
        "40 tokens/s",
        "–",
        "budget kept",
    ]


def test_a_budget_that_was_not_measured_says_so():
    """With its label."""
    check = BudgetCheck("tpot_ms", 40.0, None, False, None, "chat", "no token counts")
    assert rows(a_record(PASSED, budgets=(check,)))[0][1:] == [
        "tpot_ms of 'chat' ≤ 40 ms",
        "–",
        "–",
        "–",
        "not measured",
    ]


def test_an_error_rate_is_shown_as_a_share():
    """Without a unit."""
    check = BudgetCheck("error_rate", 0.05, 0.1, False)
    assert rows(a_record(PASSED, budgets=(check,)))[0][1] == "error_rate ≤ 0.05"


def test_an_invalid_test_shows_its_reason():
    """The first part of the sentence; the fix stands in the failure."""
    record = a_record(
        verdict=Verdict.INVALID,
        problems=(Reason.AS_WRITTEN(text="1 of 10 requests failed; allow them with …"),),
    )
    assert rows(record)[0][-1] == "invalid: 1 of 10 requests failed"


def test_a_test_that_measured_nothing_has_a_row():
    """It fails, so the table does not pass over it."""
    record = a_record(problems=(Reason.AS_WRITTEN(text="nothing was measured: …"),))
    assert rows(record)[0][-1] == "nothing measured"


def test_one_request_is_singular():
    """Grammar is part of trust."""
    record = a_record(partial=True, measurement=Measurement((object(),)))
    assert rows(record)[0][-1] == "interrupted after 1 request"


def test_what_is_inconclusive_shows_what_it_could_not_see():
    """The smallest slowdown that would have been called slower."""
    found = replace(SLOWER, verdict=Verdict.INCONCLUSIVE, visible=1.27)
    assert rows(a_record(found))[0][-1] == "inconclusive: a slowdown under 27% would not show"


def test_a_close_call_is_shown_as_one():
    """Its row, with -v, says that the budget was kept only just."""
    check = BudgetCheck("ttft_ms", 300.0, 290.0, True, (280.0, 310.0))
    assert rows(a_record(budgets=(check,)), verbose=True)[0][-1] == "budget kept, a close call"


def test_a_test_without_a_baseline_has_one_row():
    """All its figures stand in it; with -v each metric has its own."""
    unknown = [
        Comparison(Verdict.NO_BASELINE, metric=m, now=n) for m, n in (("ttft_ms", 99.0), ("tpot_ms", 20.0))
    ]
    assert [row[1:4] for row in rows(a_record(*unknown))] == [["ttft_ms, tpot_ms", "–", "99 ms, 20 ms"]]
    assert len(rows(a_record(*unknown), verbose=True)) == 2


def test_an_interrupted_test_shows_how_far_it_came():
    """Its partial figures are not judged."""
    record = a_record(partial=True, measurement=Measurement())
    assert rows(record)[0][-1] == "interrupted after 0 requests"
    assert section(record)[-1] == "1 test measured: 1 interrupted"


def test_advice_of_one_test_names_it():
    """Which test, then what to do."""
    assert (
        section(a_record(PASSED, advice=(Reason.AS_WRITTEN(text="do this"),)))[0]
        == "test_chat.py::test_chat: do this"
    )


def test_the_same_advice_of_several_tests_is_said_once():
    """With the number of tests that it is for."""
    several = [
        a_record(PASSED, nodeid=f"t{n}", advice=(Reason.AS_WRITTEN(text="store one"),)) for n in range(3)
    ]
    assert section(*several) == ["3 tests: store one", "3 tests measured: 3 passed"]


def test_problems_of_the_store_are_told_without_a_measured_test_too():
    """A broken baseline file is never passed over."""
    assert section(problems=["baseline file x is left out"]) == [
        "baseline file x is left out",
        "0 tests measured: nothing",
    ]


def test_stored_files_come_last():
    """Where the baseline went."""
    assert section(a_record(PASSED), stored=[Path("a.json")])[-1] == "baseline stored: a.json"


def test_counts_go_from_the_gravest_to_the_mildest():
    """What matters stands first; missed budgets are counted beside."""
    missed = BudgetCheck("ttft_ms", 1.0, 2.0, False)
    records = [
        a_record(PASSED),
        a_record(PASSED, budgets=(missed, missed)),
        a_record(SLOWER),
        a_record(Comparison(Verdict.NO_BASELINE)),
        a_record(),
    ]
    assert counts(records) == (
        "4 tests measured: 1 slower, 1 without baseline, 1 passed, 1 failed by a budget, 1 not measured, "
        "2 budgets missed"
    )


def test_a_single_missed_budget_is_singular():
    """Grammar is part of trust."""
    missed = BudgetCheck("ttft_ms", 1.0, 2.0, False)
    assert (
        counts([a_record(PASSED, budgets=(missed,))])
        == "1 test measured: 1 failed by a budget, 1 budget missed"
    )


def test_the_report_is_written_with_its_folder(tmp_path):
    """As JSON that every reader takes, whatever the answers hold."""
    path = tmp_path / "new" / "report.json"
    write_report(path, {"text": "Grüße 🚀 \ud800"})
    assert json.loads(path.read_bytes()) == {"text": "Grüße 🚀 \ud800"}


def test_a_report_that_cannot_be_written_is_told(tmp_path):
    """The path and the system's reason."""
    (tmp_path / "file").write_text("I was here first")
    path = tmp_path / "file" / "report.json"
    with pytest.raises(StoreError, match="the report cannot be written") as told:
        write_report(path, {})
    assert str(path) in str(told.value)
