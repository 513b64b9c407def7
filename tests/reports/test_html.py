"""The HTML report: what it shows, that it stays small, and that hostile text stays text."""

import os
import re
import shutil
from html.parser import HTMLParser

import pytest
from helpers.reports import CHAT, SHAPE, a_missed_budget, a_run, a_sample, a_test

from pytest_llmspeed.baselines.sessions import session_of_record
from pytest_llmspeed.metrics.measurement import Measurement
from pytest_llmspeed.metrics.reasons import Reason
from pytest_llmspeed.regression.verdicts import Comparison, Verdict
from pytest_llmspeed.reports.html.figures import Bar, Scale, line, strips, waterfall
from pytest_llmspeed.reports.html.page import html_report
from pytest_llmspeed.reports.stored_side import StoredSide

HOSTILE = "<script>alert(1)</script> | `x` \x1b[31m ::error:: \u202e </style> " + "a" * 100_000
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Tags(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.words = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def slower(**fields):
    comparison = Comparison(
        Verdict.SLOWER,
        metric="ttft_ms",
        stratum="prompt 1",
        baseline=100.0,
        now=150.0,
        delta=1.5,
        ci=(1.4, 1.6),
        sessions=3,
    )
    known = {
        "slow": 1.5,
        "verdict": Verdict.SLOWER,
        "comparisons": (comparison,),
        "problems": (Reason.SLOWER(comparison=comparison),),
    }
    return a_test(**{**known, **fields})


def a_side(record):
    stored = [
        session_of_record(a_test(slow=level), a_run(day)) for day, level in enumerate((1, 1.02, 0.98), 1)
    ]
    return StoredSide(stored, session_of_record(record, a_run(9)), stored * 3)


def test_what_fails_comes_first_and_is_open():
    """With its sentence, its figures and its place in the table."""
    record = slower()
    run = a_run(9, a_test("test_a.py::test_fine"), record, commit="abc123")
    page = html_report(run, {record.nodeid: a_side(record)})
    shown = Tags(page)
    details = [attrs for tag, attrs in shown.tags if tag == "details"]
    assert [("open" in attrs, attrs["id"]) for attrs in details] == [(True, "test-1"), (False, "test-2")]
    assert shown.text.index(CHAT) < shown.text.index("test_a.py::test_fine")
    assert "ttft_ms is slower than its baseline: 100 ms → 150 ms" in shown.text
    assert "commit abc123" in shown.text
    labels = [attrs["aria-label"] for tag, attrs in shown.tags if tag == "svg"]
    assert "3 stored sessions and now: 2026-03-01 to now" in labels
    assert "10 requests: the wait for the first output, then the tokens" in labels
    assert any("sessions" in label for label in labels[2:])


def test_it_needs_nothing_but_itself():
    """No script, no address, and a policy that forbids both."""
    page = html_report(a_run(9, slower()))
    tags = Tags(page).tags
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in tags}
    assert not re.search(r"(?:src|href)=\"(?!#)", page)
    policies = [attrs["content"] for tag, attrs in tags if attrs.get("http-equiv")]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_hostile_text_stays_text():
    """In node ids, labels, answers and errors: no tag of it, no control character, no length."""
    sample = a_sample(1.0, label=HOSTILE, text=HOSTILE, error=HOSTILE)
    record = a_test(HOSTILE, measurement=Measurement((sample,)), problems=(Reason.AS_WRITTEN(text=HOSTILE),))
    harmless = html_report(a_run(9, slower()))
    page = html_report(a_run(9, record, commit="c"), problems=[HOSTILE[:200]])
    assert {tag for tag, _ in Tags(page).tags} <= {tag for tag, _ in Tags(harmless).tags} | {"ul", "li"}
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert len(page) < 60_000
    assert "alert(1)" in Tags(page).text


def test_a_budget_that_is_missed_is_seen():
    """It fails the test, though nothing is slower."""
    problem = Reason.AS_WRITTEN(text="e2e_ms is 130 ms, above its budget of 100 ms")
    record = a_test(budgets=(a_missed_budget(),), problems=(problem,))
    text = Tags(html_report(a_run(9, record))).text
    assert "▼ 1 failed" in text
    assert "budget missed" in text


def test_a_run_without_tests_is_a_page_too():
    """Nothing was measured."""
    run = a_run(9)
    page = html_report(type(run)(run.started, run.run_id, None, None, {"cpu": "a cpu"}, {}))
    assert "0 tests measured: nothing" in Tags(page).text


# figures


def test_a_scale_spans_a_quarter_of_its_values_at_least():
    """So that noise does not look like news."""
    scale = Scale.over([100.0, 101.0], 0, 100)
    assert scale.high - scale.low == pytest.approx(0.25 * 101)
    assert scale(scale.low) == 0
    assert scale(scale.high) == 100


def test_a_failed_request_has_a_bar_of_its_own():
    """And one that is not streamed is all waiting."""
    drawn = waterfall([Bar(0, None, 1, failed=True), Bar(0, None, 50), Bar(0, 10, 50, [10, 20])], str)
    assert drawn.count('class="failed"') == 1
    assert drawn.count('class="wait"') == 2
    assert drawn.count('class="answer"') == 1


def test_points_of_one_kind_share_a_path():
    """A column of stored requests and one of now."""
    drawn = strips([SHAPE, SHAPE], [1.0, 1.0], ["2026-03-01", "now"], str)
    assert drawn.count('class="dots"') == 1
    assert drawn.count('class="dots now"') == 1
    assert drawn.count("h0") == 2 * len(SHAPE)


def test_a_marked_place_is_pointed_out():
    """Between two steps."""
    assert line([1, 2, 3], ["a", "b", "c"], str, marked=[1.5], said="x").count('class="point-out"') == 1


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_a_browser_shows_it_without_a_complaint(tmp_path, width, scheme):
    """No message on the console, no horizontal scroll, and axe-core finds nothing serious."""
    playwright = pytest.importorskip("playwright.sync_api")
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    record = slower()
    path = tmp_path / "report.html"
    path.write_text(html_report(a_run(9, record, a_test(HOSTILE)), {record.nodeid: a_side(record)}), "utf-8")
    options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
    said = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=options, env=dict(os.environ))
        page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(path.as_uri())
        scroll_width = page.evaluate("document.documentElement.scrollWidth")
        found = axe.Axe().run(page).response["violations"]
        browser.close()
    assert said == []
    assert scroll_width <= width
    assert [violation["id"] for violation in found if violation["impact"] in ("serious", "critical")] == []
