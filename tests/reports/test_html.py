"""The HTML report: what it shows, that it stays small, and that hostile text stays text."""

import os
import re
import shutil
from html.parser import HTMLParser

import pytest
from helpers.reports import CHAT, SHAPE, a_missed_budget, a_run, a_sample, a_test

from pytest_llmspeed.baselines.sessions import session_of_record
from pytest_llmspeed.metrics.budgets import BudgetCheck
from pytest_llmspeed.metrics.load_curve import Curve, Point
from pytest_llmspeed.metrics.load_result import LoadResult
from pytest_llmspeed.metrics.measurement import Measurement
from pytest_llmspeed.metrics.reasons import Reason
from pytest_llmspeed.quality.findings import Finding, QualityStatus, SetFindings
from pytest_llmspeed.records.record import EngineRun
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


def loaded():
    """A test with a load and a sweep that saturates at 16."""

    def a_load(concurrency, stratum, slow=1.0, **figures):
        samples = tuple(a_sample(slow, call="load", stratum=stratum) for _ in range(10))
        return LoadResult(
            {"concurrency": concurrency},
            samples,
            stratum=stratum,
            peak_concurrency=concurrency,
            **figures,
        )

    chat = a_load(8, "load", label="chat", throughput_tps=431.2)
    levels = [(1, 2.4, 1.0), (4, 9.1, 1.1), (16, 30.0, 1.2), (64, 31.0, 4.5)]
    points = tuple(
        Point(level, a_load(level, f"level {level}", slow, requests_per_s=served))
        for level, served, slow in levels
    )
    loads = (chat, *(point.load for point in points))
    samples = tuple(sample for load in loads for sample in load.samples)
    return a_test(measurement=Measurement(samples, loads=loads, curves=(Curve("concurrency", points),)))


def test_what_fails_comes_first_and_is_open():
    """With its sentence, its figures and its place in the table."""
    record = slower()
    run = a_run(9, a_test("test_a.py::test_fine"), record, commit="abc123")
    page = html_report(run, {record.nodeid: a_side(record)})
    shown = Tags(page)
    details = [attrs for tag, attrs in shown.tags if tag == "details"]
    assert ["open" in attrs for attrs in details] == [True, False]
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
    assert "✗ 1 failed" in text
    assert "budget missed" in text


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({}, "✓ 1 passed"),
        ({"verdict": Verdict.INCONCLUSIVE}, "~ 1 inconclusive"),
        ({"verdict": Verdict.NO_BASELINE}, "– 1 without baseline"),
        ({"verdict": Verdict.SLOWER, "accepted": "larger model"}, "✓ 1 accepted"),
        ({"verdict": Verdict.INCONCLUSIVE, "problems": (Reason.AS_WRITTEN(text="strict"),)}, "✗ 1 failed"),
        ({"verdict": Verdict.INVALID, "problems": (Reason.AS_WRITTEN(text="broken"),)}, "⊘ 1 invalid"),
        ({"verdict": None, "partial": True}, "· 1 interrupted"),
    ],
)
def test_each_verdict_has_a_sign_and_a_word(fields, shown):
    """No colour is needed to tell them apart."""
    assert shown in Tags(html_report(a_run(9, a_test(**fields)))).text


def test_a_budget_without_a_figure_is_a_failure():
    """Nothing showed that it is kept."""
    check = BudgetCheck("ttft_ms", 100.0, None, kept=False)
    record = a_test(budgets=(check,), problems=(Reason.AS_WRITTEN(text="not measured"),))
    assert "✗ not measured" in Tags(html_report(a_run(9, record))).text


def test_a_run_without_tests_is_a_page_too():
    """Nothing was measured."""
    run = a_run(9)
    page = html_report(type(run)(run.started, run.run_id, None, None, {"cpu": "a cpu"}, {}))
    assert "0 tests measured: nothing" in Tags(page).text


def test_tests_that_passed_are_folded_below_the_others():
    """The table starts with what asks for a look."""
    compared = Comparison(Verdict.PASSED, metric="ttft_ms", stratum="prompt 1", baseline=100.0, now=101.0)
    fine = a_test("test_a.py::test_fine", comparisons=(compared,))
    text = Tags(html_report(a_run(9, fine, slower()))).text
    assert text.index("▼ slower") < text.index("1 test that passed") < text.index("✓ passed: no slowdown")
    assert "Nothing was compared" in Tags(html_report(a_run(9))).text


def test_a_test_that_measured_nothing_says_so():
    """Whatever ended it: its section is not empty."""
    record = a_test(measurement=Measurement(), verdict=None, outcome="failed")
    text = Tags(html_report(a_run(9, record))).text
    assert "· not measured" in text
    assert "Nothing was measured" in text


def test_quality_stands_beside_the_speed_of_a_test():
    """Each check with its status and its finding, foreign words made harmless."""
    kept = Finding("contracts", QualityStatus.PASSED, Reason.CONTRACTS_KEPT, {"kept": 11, "asked": 12})
    checked = SetFindings("support\x1b.yaml", (kept,), accepted="as meant")
    text = Tags(html_report(a_run(9, a_test(quality=(checked,))))).text
    assert r"Quality of support\x1b.yaml" in text
    assert "contracts passed 11 of 12 contracts kept" in text
    assert "accepted: as meant" in text


def test_loads_and_sweeps_have_tables_and_the_knee_is_pointed_out():
    """A load of a sweep is in the table of the sweep only."""
    text = Tags(page := html_report(a_run(9, loaded()))).text
    assert "Load 'chat' concurrency=8" in text
    assert "10 requests, 0 failed, at most 8 at once, throughput_tps 431 tokens/s" in text
    assert "knee: concurrency 16; more load only adds queueing" in text
    assert text.count("Load ") == 1
    captions = ["Requests per second by concurrency", "Median TTFT by concurrency"]
    assert [f"{caption}, the knee dashed" in text for caption in captions] == [True, True]
    assert page.count('class="point-out"') == 2


def test_engines_stand_side_by_side():
    """With the ratio to the first."""
    sides = [
        a_test(f"{CHAT}[{engine}]", slow=slow, side=EngineRun(CHAT, engine, place))
        for place, (engine, slow) in enumerate([("vllm", 1.0), ("sglang", 0.8)])
    ]
    text = Tags(html_report(a_run(9, *sides))).text
    assert "Engines side by side" in text
    assert "(0.8×)" in text


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


@pytest.fixture
def browser():
    """Chromium without a window, which looks nothing up."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=options, env=dict(os.environ))
        yield started
        started.close()


@pytest.fixture
def report(tmp_path):
    """A report with all that can be in one, hostile text included."""
    record, hostile = slower(), a_test(HOSTILE, problems=(Reason.AS_WRITTEN(text=HOSTILE),))
    path = tmp_path / "report.html"
    run = a_run(9, record, hostile, loaded(), a_test("test_a.py::test_fine"))
    path.write_text(html_report(run, {record.nodeid: a_side(record)}), "utf-8")
    return path.as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 840, 1400])
def test_a_browser_shows_it_without_a_complaint(browser, report, width, scheme):
    """No message on the console, no horizontal scroll, and axe-core finds nothing serious."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe")
    said = []
    page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(report)
    page.eval_on_selector_all("details", "all => all.forEach(one => one.open = true)")
    scroll_width = page.evaluate("document.documentElement.scrollWidth")
    found = axe.Axe().run(page).response["violations"]
    assert said == []
    assert scroll_width <= width
    assert [violation["id"] for violation in found if violation["impact"] in ("serious", "critical")] == []


def test_a_link_opens_the_test_it_leads_to(browser, report):
    """Without a script: by keyboard, the summary stays in sight."""
    page = browser.new_page(viewport={"width": 1000, "height": 600})
    page.goto(report)
    link = page.locator("nav a").last
    name = link.get_attribute("href").removeprefix("#")
    opened = page.locator(f"details:has(> #{name})")
    assert opened.get_attribute("open") is None
    link.press("Enter")
    assert opened.get_attribute("open") is not None
    assert page.locator("nav").bounding_box()["y"] == 0
    summary = opened.locator("summary").bounding_box()
    assert page.locator("nav").bounding_box()["height"] <= summary["y"] < 600


def test_it_is_printed_dark_on_white_with_all_tests_open(browser, report):
    """Whatever the scheme of the system."""
    page = browser.new_context(color_scheme="dark").new_page()
    page.goto(report)
    page.emulate_media(media="print", color_scheme="dark")
    colours = "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    assert page.evaluate(colours) == ["rgb(28, 31, 35)", "rgb(255, 255, 255)"]
    drawings = page.locator("main > details svg")
    assert all(drawing.bounding_box()["height"] > 50 for drawing in drawings.all())
