"""Records of one test on several engines: grouped, in order, relative to the first."""

import pytest

from pytest_llmspeed.engines.backend import Backend
from pytest_llmspeed.metrics.measurement import Measurement
from pytest_llmspeed.records.record import EngineRun, TestRecord
from pytest_llmspeed.reports.engines_compared import side_by_side

TEST = "test_chat.py::test_chat"


@pytest.fixture
def run(sample):
    """Make the record of a test's run on one engine."""

    def make(engine, place, test=TEST, peak_mib=None, cache="cold", load_s=None, **fields):
        backend = Backend(engine, prefix_cache=cache, load_s=load_s)
        measured = Measurement((sample(**fields),), peak_memory_mib=peak_mib)
        name = f"{test}[{engine}]"
        return TestRecord(
            name, test, backend=backend, side=EngineRun(test, engine, place), measurement=measured
        )

    return make


def test_figures_are_relative_to_the_first_engine(run):
    """The ratio of each figure to that of the engine that stands first, 1 for that engine itself."""
    slow = run("b", 1, ttft_ms=250.0, throughput_tps=10.0, peak_mib=600.0, load_s=9.0)
    usual = run("a", 0, ttft_ms=100.0, throughput_tps=40.0, peak_mib=400.0, load_s=3.0)
    (found,) = side_by_side([usual, slow])
    first, second = found.engines
    assert set(first.ratios.values()) == {1.0}
    assert second.values["ttft_ms"] == 250.0
    assert second.ratios == {
        "ttft_ms": 2.5,
        "tpot_ms": 1.0,
        "throughput_tps": 0.25,
        "peak_memory_mib": 1.5,
        "load_s": 3.0,
    }


def test_the_order_is_that_of_the_marks_not_of_the_run(run):
    """Workers finish in any order; the first mark stays the measure."""
    (found,) = side_by_side([run("b", 1), run("c", 2), run("a", 0)])
    assert [engine.engine for engine in found.engines] == ["a", "b", "c"]


def test_what_is_unknown_is_absent(run):
    """No figure, no ratio; and none where the first engine has no figure."""
    (found,) = side_by_side([run("a", 0, tpot_ms=None), run("b", 1, ttft_ms=None, peak_mib=5.0)])
    assert found.engines[1].values.keys() == {"tpot_ms", "throughput_tps", "peak_memory_mib"}
    assert found.engines[1].ratios.keys() == {"throughput_tps"}


@pytest.mark.parametrize("others", [[], [0]], ids=["one engine only", "another test"])
def test_a_test_on_one_engine_is_not_compared(run, others):
    """Nothing stands beside it, not even another test on another engine."""
    assert side_by_side([run("a", 0), *(run("b", place, test="test_other.py::t") for place in others)]) == []


def test_tests_that_measured_nowhere_are_left_out(run):
    """A test that failed on all engines has no figures to compare."""
    sides = [EngineRun(TEST, engine, place) for place, engine in enumerate("ab")]
    assert side_by_side([TestRecord(TEST, TEST, side=side) for side in sides]) == []


def test_several_tests_are_also_one_by_geometric_means(run):
    """Of 2 and 8 times the time the mean is 4 times; memory is the most, load time the engine's."""
    records = [
        run(engine, place, test=test, ttft_ms=100.0 * factor**place, peak_mib=peak_mib, load_s=2.0 + place)
        for test, factor, peak_mib in (("t1", 2, 300.0), ("t2", 8, 500.0))
        for place, engine in enumerate("ab")
    ]
    *alone, together = side_by_side(records)
    assert [each.test for each in alone] == ["t1", "t2"]
    assert (together.test, together.tests) == ("all 2 tests", 2)
    assert together.engines[1].ratios["ttft_ms"] == pytest.approx(4.0)
    assert together.engines[1].values == {"peak_memory_mib": 500.0, "load_s": 3.0}


def test_tests_of_other_engines_are_not_gathered(run):
    """A mean over tests means something only where all ran on the same engines."""
    records = [run(engine, place, test="t1") for place, engine in enumerate("ab")]
    records += [run(engine, place, test="t2") for place, engine in enumerate("ac")]
    assert [each.tests for each in side_by_side(records)] == [1, 1]


UNLIKE = {
    "answers": ({"output_tokens": 64}, {"output_tokens": 17}, "answers had 64 tokens on a, 17 on b"),
    "prompts": ({"prompt_tokens": 37}, {"prompt_tokens": 38}, "prompts had 37 tokens on a, 38 on b"),
    "caches": ({"cache": "cold"}, {"cache": "unknown"}, "the prefix cache is cold on a, unknown on b"),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_work_that_was_not_the_same_is_told(run, name):
    """Other lengths of answers, other prompts, another cache: one sentence each."""
    one, other, sentence = UNLIKE[name]
    (found,) = side_by_side([run("a", 0, **one), run("b", 1, **other)])
    assert [text.startswith(sentence) for text in found.unlike] == [True]


def test_lengths_that_nearly_agree_are_not_told(run):
    """Up to a tenth more tokens is the same work."""
    (found,) = side_by_side([run("a", 0, output_tokens=60), run("b", 1, output_tokens=66)])
    assert found.unlike == ()
