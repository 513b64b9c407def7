"""The markdown report: what GitHub shows, with nothing of a user's words read as markup."""

from pathlib import Path

import pytest

from pytest_llmspeed.errors import StoreError
from pytest_llmspeed.metrics.reasons import Reason
from pytest_llmspeed.records.record import TestRecord
from pytest_llmspeed.regression.verdicts import Comparison, Verdict
from pytest_llmspeed.reports.files import append_lines, write_lines
from pytest_llmspeed.reports.markdown import markdown

SLOWER = Comparison(
    Verdict.SLOWER, metric="ttft_ms", baseline=240.0, now=312.4, delta=1.3017, ci=(1.18, 1.43), sessions=5
)
PASSED = Comparison(
    Verdict.PASSED, metric="tpot_ms", baseline=10.0, now=10.1, delta=1.01, ci=(0.97, 1.05), sessions=5
)
HEADING = "### LLM speed – 1 test measured: "


def a_record(*comparisons, nodeid="test_chat.py::test_chat", **fields):
    verdict = comparisons[0].verdict if comparisons else None
    return TestRecord(nodeid, nodeid, **{"comparisons": comparisons, "verdict": verdict, **fields})


def lines(*records, **fields):
    return list(markdown(records, **fields))


def test_good_news_is_a_heading_and_folded_rows():
    """Nothing to look at stands open."""
    assert lines(a_record(PASSED)) == [
        f"{HEADING}1 passed",
        "",
        "<details><summary>All rows (1)</summary>",
        "",
        "| test | metric | baseline | now | change | verdict |",
        "| --- | --- | ---: | ---: | ---: | --- |",
        "| `test_chat.py::test_chat` | tpot_ms | 10 ms | 10.1 ms | +1.0% (-3.0% to +5.0%) "
        "| passed: no slowdown above 20% |",
        "",
        "</details>",
    ]


def test_what_is_not_passed_has_a_row_and_its_sentences():
    """What failed comes before advice: the report stands alone. All rows shown, nothing is folded."""
    assert lines(
        a_record(
            SLOWER,
            problems=(Reason.AS_WRITTEN(text="it is slower"),),
            advice=(Reason.AS_WRITTEN(text="accept it"),),
        )
    ) == [
        f"{HEADING}1 slower",
        "",
        "| test | metric | baseline | now | change | verdict |",
        "| --- | --- | ---: | ---: | ---: | --- |",
        "| `test_chat.py::test_chat` | ttft_ms | 240 ms | 312 ms | +30% (+18% to +43%) | slower |",
        "",
        "- `test_chat.py::test_chat`: it is slower",
        "- `test_chat.py::test_chat`: accept it",
    ]


def test_advice_of_several_tests_is_said_once():
    """With the number of tests that it is for."""
    several = [
        a_record(PASSED, nodeid=f"t{n}", advice=(Reason.AS_WRITTEN(text="store one"),)) for n in range(3)
    ]
    assert "- 3 tests: store one" in lines(*several)


def test_problems_and_stored_files_are_list_items():
    """As the terminal's closing section has them."""
    shown = lines(a_record(), problems=["file x is left out"], stored=[Path("a.json")])
    assert shown[1:] == ["", "- file x is left out", "- baseline stored: `a.json`"]


@pytest.mark.parametrize(
    ("nodeid", "cell"),
    [
        ("t.py::test[a|b]", r"`t.py::test[a\|b]`"),
        ("t.py::test[a`b]", "`` t.py::test[a`b] ``"),
        ("t.py::test[a``b]", "``` t.py::test[a``b] ```"),
        ("t.py::test[<b>]", "`t.py::test[<b>]`"),
    ],
)
def test_a_node_id_is_code_in_its_cell(nodeid, cell):
    """Parameters may hold anything; a pipe would end the cell, a backtick the code."""
    assert lines(a_record(SLOWER, nodeid=nodeid))[4].startswith(f"| {cell} | ttft_ms |")


@pytest.mark.parametrize(
    ("reason", "cell"),
    [
        ("a | b", r"a \| b"),
        ("two\nlines", "two lines"),
        ("</details> & *so* on", r"\</details\> \& \*so\* on"),
        ("__init__ of the_model", r"\_\_init\_\_ of the_model"),
        ("[a](b)", r"\[a\](b)"),
    ],
)
def test_words_are_shown_as_they_are(reason, cell):
    """What a person wrote is no markup."""
    assert lines(a_record(SLOWER, accepted=reason))[4].endswith(f"| slower, accepted: {cell} |")


def test_lines_are_written_and_added_to(tmp_path):
    """A surrogate half in an error message costs no report."""
    path = tmp_path / "new" / "report.md"
    write_lines(path, ["a", "half \ud800"])
    append_lines(path, ["b"])
    assert path.read_text(encoding="utf-8") == "a\nhalf \\ud800\nb\n"


def test_a_report_that_cannot_be_written_is_told(tmp_path):
    """The path and the system's reason."""
    with pytest.raises(StoreError, match="the report cannot be written"):
        append_lines(tmp_path, ["a"])
