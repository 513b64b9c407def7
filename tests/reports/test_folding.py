"""Reports of thousands of tests: like advice is one sentence, long lists are cut, failures stand."""

from dataclasses import replace

import pytest

from pytest_llmspeed.messages import speed
from pytest_llmspeed.metrics.reasons import Reason
from pytest_llmspeed.records.record import TestRecord, test_from_builtins, test_to_builtins
from pytest_llmspeed.regression.verdicts import Comparison, Verdict
from pytest_llmspeed.reports.markdown import markdown
from pytest_llmspeed.reports.terminal import closing_section

UPDATE = "pytest --llmspeed-update-baseline"
MIB = 1 << 20


def undecided(place, **fields):
    """A test that four to six more sessions would decide, its figures its own."""
    known = {"metric": "ttft_ms", "now": 100.0 + place % 7, "delta": 1.05, "ci": (0.9, 1.2), "sessions": 2}
    known |= {"visible": 1.24 + place % 5 / 100, "more_sessions": ((1.2, 4 + place % 3), (1.1, None))}
    reason = Reason.CANNOT_RULE_OUT(slowdown=1.2 + place % 11 / 100)
    found = Comparison(Verdict.INCONCLUSIVE, reason, **known | fields)
    return a_test(place, found, advice=(Reason.UNDECIDED(comparison=found),))


def a_test(place, found, **fields):
    nodeid = f"test_chat.py::test_{place}"
    return TestRecord(nodeid, nodeid, comparisons=(found,), verdict=found.verdict, **fields)


def unknown(place):
    found = Comparison(Verdict.NO_BASELINE, metric="ttft_ms", now=100.0 + place)
    return a_test(place, found, advice=(Reason.NO_BASELINE(place="baselines/box"),))


def slower(place):
    found = Comparison(Verdict.SLOWER, metric="ttft_ms", baseline=100.0, now=150.0 + place)
    return a_test(place, found, problems=(Reason.AS_WRITTEN(text=f"test {place} is slower by {place}"),))


def section(records, *, verbose=False):
    return list(closing_section(records, verbose=verbose))


def test_tests_that_are_undecided_for_one_reason_share_a_sentence():
    """With the ranges of their figures, whichever each of them had."""
    said = (
        "9 tests: undecided so far; a slowdown under 24% to 28% would not show; 4 to 6 more sessions would "
        f"show 20%: {UPDATE}"
    )
    assert said in section([undecided(place) for place in range(9)])


def test_two_tests_keep_their_own_figures():
    """A sentence each is as short, and says more."""
    records = [undecided(0), undecided(1)]
    assert [str(record.advice[0]) in line for record in records for line in section(records)].count(True) == 2


def test_records_of_other_processes_fold_as_well():
    """Their figures are rounded on the way."""
    records = [undecided(place, visible=1.3111111111) for place in range(4)]
    crossed = [test_from_builtins(test_to_builtins(record, text=True)) for record in records]
    assert any(
        line.startswith("4 tests: undecided so far; a slowdown under 31%") for line in section(crossed)
    )


@pytest.mark.parametrize(
    ("fields", "end"),
    [
        ({"more_sessions": ((1.2, None), (1.1, None))}, speed.NOT_BY_SESSIONS),
        ({"more_sessions": ((1.2, 0), (1.1, 0))}, speed.RUN_AGAIN),
        ({"more_sessions": ((1.2, 1), (1.1, 3))}, f"1 more session would show 20%: {UPDATE}"),
    ],
)
def test_what_would_decide_them_is_said_once(fields, end):
    """More sessions, or another way."""
    folded = [line for line in section([undecided(place, **fields) for place in range(9)]) if ": und" in line]
    assert len(folded) == 1
    assert folded[0].endswith(f"would not show; {end}")


def test_different_reasons_are_different_sentences():
    """Each with the number of its tests."""
    few = {"visible": None, "more_sessions": (), "delta": None, "ci": None}
    records = [undecided(place) for place in range(3)]
    for place in range(3, 7):
        found = replace(
            undecided(place, **few).comparisons[0],
            reason=Reason.AS_WRITTEN(text="few requests"),
            label=f"call {place}",
        )
        records.append(a_test(place, found, advice=(Reason.UNDECIDED(comparison=found),)))
    said = [line for line in section(records) if "tests:" in line]
    assert [line.partition(":")[0] for line in said] == ["3 tests", "4 tests"]
    assert said[1] == "4 tests: undecided: few requests"


def test_a_busy_machine_is_one_sentence():
    """However many requests of each test it disturbed."""
    records = []
    for place in range(5):
        found = Comparison(
            Verdict.INCONCLUSIVE,
            Reason.OTHER_PROGRAMS(disturbed=10 + place, total=20),
            metric="ttft_ms",
            now=100.0,
        )
        records.append(a_test(place, found, advice=(Reason.MACHINE_BUSY(comparison=found),)))
    said = [line for line in section(records) if "machine busy" in line]
    assert len(said) == 1
    assert said[0].startswith("5 tests: machine busy: other programs took processor time")


@pytest.mark.parametrize("make", [undecided, unknown])
def test_five_thousand_tests_are_a_readable_section(make):
    """Fifty rows, how many more there are, and where; one sentence; the counts."""
    lines = section([make(place) for place in range(5000)])
    assert len(lines) < 60
    assert "… and 4,950 more rows; see -v or --llmspeed-json" in lines
    assert [line for line in lines if line.startswith("5,000 tests: ")]


def test_verbose_shows_everything():
    """Rows and sentences, each test with its own figures."""
    lines = section([undecided(place) for place in range(80)], verbose=True)
    assert sum("test_chat.py::test_" in line for line in lines) == 160
    assert not [line for line in lines if line.startswith("…")]


def test_failures_are_all_shown():
    """They come first where not everything fits."""
    lines = section([*(undecided(place) for place in range(500)), *(slower(place) for place in range(70))])
    rows = [line for line in lines if line.startswith("test_chat.py::")]
    assert len(rows) == 70
    assert all(row.endswith("slower") for row in rows)


def test_advice_that_does_not_fold_is_cut():
    """Figures of their own in each of hundreds of sentences."""
    records = [
        replace(unknown(place), advice=(Reason.AS_WRITTEN(text=f"sentence {place}"),)) for place in range(300)
    ]
    lines = section(records)
    assert "… and 250 more sentences; see -v or --llmspeed-json" in lines


@pytest.mark.parametrize("make", [undecided, unknown, slower])
def test_markdown_stays_below_what_github_takes(make):
    """1 MiB, whatever 5,000 tests have to say; what is left out is said."""
    lines = list(markdown([make(place) for place in range(5000)]))
    assert sum(len(line.encode()) + 1 for line in lines) < MIB / 2
    assert any(line.startswith("… and 4,000 more rows; see the report of") for line in lines)


def test_markdown_shows_what_fails_first():
    """In the table too, where not all rows fit."""
    lines = list(markdown([*(undecided(place) for place in range(2000)), slower(7)]))
    rows = [line for line in lines if line.startswith("| `test_chat.py::")]
    assert rows[0].startswith("| `test_chat.py::test_7` | ttft_ms | 100 ms | 157 ms")
