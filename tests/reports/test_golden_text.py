"""Every verdict as a person reads it, held against a file: a changed word shows in review.

Regenerate the file with LLMSPEED_GOLDEN=write, and read it aloud before you commit it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from pytest_llmspeed.engines.backend import Backend
from pytest_llmspeed.metrics.budgets import BudgetCheck
from pytest_llmspeed.metrics.measurement import Measurement
from pytest_llmspeed.metrics.reasons import Explanation, Reason
from pytest_llmspeed.metrics.sample import Sample
from pytest_llmspeed.records.record import EngineRun, SuiteShift, SuiteVerdict, TestRecord
from pytest_llmspeed.regression.verdicts import Comparison, Verdict
from pytest_llmspeed.reports.markdown import markdown
from pytest_llmspeed.reports.terminal import closing_section

GOLDEN = Path(__file__).with_name("golden_closing_section.txt")
WRITE = "LLMSPEED_GOLDEN"
HINT = f"the wording changed; if that is meant: {WRITE}=write pytest {Path(__file__).name}, and read {GOLDEN}"

PASSED = Comparison(
    Verdict.PASSED,
    metric="tpot_ms",
    baseline=10.0,
    now=10.1,
    delta=1.01,
    ci=(0.97, 1.05),
    visible=1.09,
    sessions=5,
)
SLOWER = replace(
    PASSED, verdict=Verdict.SLOWER, metric="ttft_ms", baseline=240.0, now=312.4, delta=1.30, ci=(1.18, 1.43)
)
AT_FASTEST = replace(SLOWER, at="the fastest 10%", at_baseline=231.0, at_now=300.0)
SUSPECT = replace(
    SLOWER, verdict=Verdict.SUSPECT, reason=Reason.COULD_BE_CHANCE(), now=269.0, delta=1.12, ci=(1.01, 1.24)
)
FASTER = replace(PASSED, verdict=Verdict.FASTER, now=6.0, delta=0.6, ci=(0.55, 0.66))
OPEN = replace(SUSPECT, verdict=Verdict.INCONCLUSIVE, visible=1.27, more_sessions=((1.2, 2), (1.1, 6)))
HOPELESS = replace(OPEN, visible=1.92, more_sessions=((1.2, None), (1.1, None)))
SETTLED = replace(OPEN, visible=1.07, more_sessions=((1.2, 0), (1.1, 0)))
BARE = Comparison(Verdict.INCONCLUSIVE, metric="ttft_ms", now=240.0)
UNKNOWN = Comparison(Verdict.NO_BASELINE, metric="ttft_ms", now=240.0)
LENGTH = Comparison(
    Verdict.INCOMPARABLE, Reason.LENGTHS_DIFFER(before=64, now=80), metric="e2e_ms", now=900.0
)
MISSED = BudgetCheck("ttft_p95_ms", 300.0, 412.0, False, (350.0, None))
TOO_SLOW = BudgetCheck("throughput_tps", 25.0, 21.0, False, (20.0, 22.5), "chat")
UNMEASURED = BudgetCheck(
    "tpot_ms", 40.0, None, False, None, None, Reason.AS_WRITTEN(text="the answers had fewer than two tokens")
)
CLOSE = BudgetCheck("ttft_ms", 300.0, 290.0, True, (280.0, 310.0))


def a_test(name: str, *found: Comparison, **fields: object) -> TestRecord:
    verdict = found[0].verdict if found else None
    nodeid = f"test_chat.py::test_{name}"
    return TestRecord(nodeid, nodeid, **{"comparisons": found, "verdict": verdict, **fields})


def undecided(name: str, found: Comparison, reason: Explanation, **fields: object) -> TestRecord:
    """A test of an inconclusive verdict, with the advice on it."""
    told = replace(found, reason=reason)
    return a_test(name, told, advice=(Reason.UNDECIDED(comparison=told),), **fields)


def judged() -> Iterator[TestRecord]:
    """Tests whose comparison decided something."""
    yield a_test("passed", PASSED)
    changed = ["torch: 2.5 → 2.6"]
    yield a_test(
        "slower",
        SLOWER,
        problems=(Reason.SLOWER(comparison=SLOWER, changed=changed),),
        advice=(Reason.HOW_TO_ACCEPT(),),
    )
    yield a_test("elsewhere", AT_FASTEST, problems=(Reason.SLOWER(comparison=AT_FASTEST),))
    yield a_test("accepted", SLOWER, accepted="larger context")
    yield a_test("faster", FASTER, advice=(Reason.FASTER(comparison=FASTER),))
    yield a_test("suspect", SUSPECT, PASSED, advice=(Reason.SUSPECT(comparison=SUSPECT),))
    crept = replace(SUSPECT, reason=Reason.CREPT(since="2026-03-01"))
    yield a_test("creeping", crept, advice=(Reason.SUSPECT(comparison=crept),))
    strict = Reason.FAILS_BY_OPTION(option="--llmspeed-strict", because=Reason.SUSPECT(comparison=SUSPECT))
    yield a_test("strict", SUSPECT, problems=(strict,))


def open_ended() -> Iterator[TestRecord]:
    """Tests whose comparison decided nothing, for every reason there is."""
    yield undecided("wide", OPEN, Reason.CANNOT_RULE_OUT(slowdown=1.24))
    yield undecided("noisy", HOPELESS, Reason.SESSIONS_DIFFER())
    yield undecided("median", OPEN, Reason.ONLY_THE_MEDIAN_MOVED(slowdown=1.12))
    yield undecided("tail", SETTLED, Reason.TAIL_GREW(slow=3, total=10))
    yield undecided("one_request", BARE, Reason.TOO_FEW_REQUESTS(requests=1, least=5))
    yield undecided("thin_baseline", BARE, Reason.NO_FULL_SESSION(least=5))
    yield undecided("no_figure", replace(BARE, now=None), Reason.NO_TIME())
    busy = replace(BARE, now=None, reason=Reason.OTHER_PROGRAMS(disturbed=18, total=20))
    yield a_test("busy", busy, advice=(Reason.MACHINE_BUSY(comparison=busy),))


def unknown() -> Iterator[TestRecord]:
    """Tests without a baseline that fits, and one whose baseline is old."""
    yield a_test("new", UNKNOWN, advice=(Reason.NO_BASELINE(place="baselines/box"),))
    yield a_test("also_new", UNKNOWN, advice=(Reason.NO_BASELINE(place="baselines/box"),))
    yield a_test(
        "elsewhere", UNKNOWN, advice=(Reason.NO_BASELINE(place="baselines/box", elsewhere=["h100-linux"]),)
    )
    required = Reason.FAILS_BY_OPTION(
        option="--llmspeed-require-baseline", because=Reason.NO_BASELINE(place="baselines/box")
    )
    yield a_test("required", UNKNOWN, problems=(required,))
    other = replace(
        UNKNOWN,
        verdict=Verdict.INCOMPARABLE,
        reason=Reason.BASELINE_DIFFERS(differs=["precision: bf16 → fp8"]),
    )
    yield a_test("other_precision", other, advice=(Reason.INCOMPARABLE(differs=["precision: bf16 → fp8"]),))
    yield a_test("longer_answers", LENGTH, PASSED, advice=(Reason.LENGTH_NOT_COMPARED(comparison=LENGTH),))
    yield a_test("old", PASSED, advice=(Reason.BASELINE_IS_OLD(days=45),))


def budgeted() -> Iterator[TestRecord]:
    """Tests that missed a budget, or nearly."""
    missed = (
        Reason.BUDGET_MISSED(check=MISSED, unit_of="ttft_ms"),
        Reason.BUDGET_MISSED(check=TOO_SLOW, unit_of="throughput_tps"),
    )
    yield a_test("budget", PASSED, budgets=(MISSED, TOO_SLOW), problems=missed)
    not_measured = (Reason.BUDGET_MISSED(check=UNMEASURED, unit_of="tpot_ms"),)
    yield a_test("unmeasured", PASSED, budgets=(UNMEASURED,), problems=not_measured)
    yield a_test(
        "close", PASSED, budgets=(CLOSE,), advice=(Reason.CLOSE_CALL(check=CLOSE, unit_of="ttft_ms"),)
    )


def broken(one_sample: Callable[..., Sample]) -> Iterator[TestRecord]:
    """Tests whose figures say nothing."""
    failed = Reason.REQUESTS_FAILED(failed=1, total=10, error="HTTP 500: out of memory")
    yield a_test("failing", verdict=Verdict.INVALID, problems=(failed,))
    yield a_test("interrupted", partial=True, measurement=Measurement((one_sample(),)))
    yield a_test("nothing", problems=(Reason.NOTHING_MEASURED(),))


def on_engines(one_sample: Callable[..., Sample], name: str) -> Iterator[TestRecord]:
    """A test on three engines: of the second no memory is known, the third did not start."""
    nodeid = f"test_chat.py::test_{name}"
    first = Measurement((one_sample(),), peak_memory_mib=612.4)
    second = Measurement((one_sample(ttft_ms=48.0, output_tokens=3, prompt_tokens=101),))
    for place, (engine, load_s, measurement) in enumerate(
        (("transformers-fp32", 3.14, first), ("vllm", 41.5, second), ("llama-cpp", None, Measurement()))
    ):
        backend = Backend(engine, prefix_cache="cold", load_s=load_s) if measurement.samples else None
        yield TestRecord(
            f"{nodeid}[{engine}]",
            nodeid,
            backend=backend,
            side=EngineRun(nodeid, engine, place),
            measurement=measurement,
        )


def suite() -> SuiteVerdict:
    """All tests slower together, one of them more than the others."""
    shift = SuiteShift("box", "tpot_ms", Verdict.SLOWER, 1.15, (1.08, 1.22), 0.0001, 8, 5)
    return SuiteVerdict(Verdict.SLOWER, (shift,), (("test_chat.py::test_passed", SLOWER),))


def told(one_sample: Callable[..., Sample]) -> Iterator[str]:
    """The whole text: each kind of test in a section of its own, then the run's own sentences."""
    kinds = {
        "decided": judged(),
        "undecided": open_ended(),
        "without a baseline that fits": unknown(),
        "budgets": budgeted(),
        "invalid": broken(one_sample),
    }
    for kind, tests in kinds.items():
        yield from _section(kind, list(tests))
    bad = "baseline file .llmspeed/baselines/box/1.json is left out: it is corrupt (…); restore or delete it"
    around = {"suite": suite(), "stored": [Path(".llmspeed/baselines/box/2.json")], "problems": [bad]}
    yield "======== the run as a whole ========"
    yield from closing_section([a_test("passed", PASSED)], verbose=False, **around)
    yield "======== all is well ========"
    yield from closing_section([a_test("passed", PASSED)], verbose=False)
    yield "======== engines side by side ========"
    two = [record for name in ("chat", "summary") for record in on_engines(one_sample, name)]
    yield from closing_section(two, verbose=False)
    yield "======== many tests side by side ========"
    many = [record for name in ("a", "b", "c", "d") for record in on_engines(one_sample, name)]
    yield from closing_section(many, verbose=False)
    yield "======== as markdown ========"
    yield from markdown([*judged(), *budgeted()], **around)
    yield "======== engines side by side, as markdown ========"
    yield from markdown(list(on_engines(one_sample, "chat")))


def _section(kind: str, tests: list[TestRecord]) -> Iterator[str]:
    silent = [replace(test, advice=()) for test in tests]
    for title, records, verbose in (
        (f"{kind}", tests, False),
        (f"{kind}, all rows, without advice", silent, True),
    ):
        yield f"======== {title} ========"
        yield from closing_section(records, verbose=verbose)
    yield f"======== {kind}: what the failures say ========"
    for test in tests:
        for problem in map(str, test.problems):
            yield f"{test.nodeid}: {problem}"


def test_the_closing_section_reads_as_agreed(one_sample: Callable[..., Sample]) -> None:
    """Every verdict with and without advice, word for word."""
    text = "".join(f"{line.rstrip()}\n" for line in told(one_sample))
    if os.environ.get(WRITE) == "write":
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8"), HINT
