"""Series of samples: quantiles and their refusal, summaries, labels, pooled gaps."""

from dataclasses import asdict

import numpy as np
import pytest

from pytest_llmspeed.errors import TooFewSamplesError
from pytest_llmspeed.metrics.measurement import Answer, Measurement
from pytest_llmspeed.metrics.summary import needed_samples, quantile, summarise


@pytest.mark.parametrize("q", [0.01, 0.1, 0.25, 0.5, 0.9, 0.95, 0.99])
def test_a_quantile_interpolates_linearly(q):
    """Quantiles are NumPy's default ones."""
    values = np.random.default_rng(1).normal(100, 10, 137).tolist()
    assert quantile(values, q) == pytest.approx(np.quantile(values, q))


def test_the_median_of_an_even_number_is_the_middle_of_two():
    """Two values have their mean for a median."""
    assert quantile([30.0, 10.0], 0.5) == 20.0
    assert quantile([7.0], 0.5) == 7.0


@pytest.mark.parametrize(
    ("q", "needed"), [(0.5, 1), (0.9, 10), (0.95, 20), (0.99, 100), (0.1, 10), (0.01, 100)]
)
def test_a_quantile_of_too_few_samples_is_refused_with_the_number_it_needs(q, needed):
    """p90 wants 10, p95 20, p99 100, and low quantiles as many as high ones."""
    assert needed_samples(q) == needed
    quantile([1.0] * needed, q)
    with pytest.raises(
        TooFewSamplesError, match=f"at least {needed} samples, there are {needed - 1}"
    ) as refused:
        quantile([1.0] * (needed - 1), q)
    assert (refused.value.n, refused.value.needed) == (needed - 1, needed)


def test_a_refusal_names_the_quantile():
    """The message says which quantile was asked for."""
    with pytest.raises(TooFewSamplesError, match=r"^p95 needs"):
        quantile([1.0], 0.95)


def test_a_summary_holds_the_plain_statistics():
    """n, mean, extremes and quantiles agree with NumPy."""
    values = np.random.default_rng(2).normal(100, 10, 200).tolist()
    summary = asdict(summarise(values))
    assert summary.pop("n") == 200
    expected = {f"p{p}": np.percentile(values, p) for p in (50, 90, 95, 99)}
    expected |= {"mean": np.mean(values), "min": np.min(values), "max": np.max(values)}
    assert summary == pytest.approx(expected)


def test_a_summary_leaves_out_quantiles_that_want_more_samples():
    """With twelve samples p90 is there, p95 and p99 are None, not the largest value."""
    summary = summarise([float(v) for v in range(12)])
    assert summary.p90 is not None
    assert (summary.p95, summary.p99) == (None, None)


def test_a_metric_that_no_request_gave_has_no_summary(measured):
    """Missing is None, never a mean of 0 ms."""
    measurement = measured([None, None])
    assert measurement.summary("ttft_ms") is None
    assert measurement.median("ttft_ms") is None
    assert Measurement().summary("ttft_ms") is None


def test_requests_without_a_figure_are_left_out_of_it(measured):
    """Two of three requests gave it, so the summary is of two."""
    measurement = measured([10.0, None, 30.0])
    assert measurement.values("ttft_ms") == [10.0, 30.0]
    assert measurement.summary("ttft_ms").n == 2
    assert measurement.median("ttft_ms") == 20.0


def test_failures_are_told_apart(sample):
    """Failed requests are kept, listed, and enter no figure."""
    good, bad = sample(), sample(error="HTTP 500")
    measurement = Measurement((good, bad, good))
    assert measurement.failures == (bad,)
    assert measurement.values("e2e_ms") == [35.0, 35.0]


def test_the_text_is_the_last_answer_that_succeeded(sample):
    """A failure after it does not hide the last answer; without any there is none."""
    first, last, bad = sample(text="first"), sample(text="last"), sample(error="HTTP 500")
    assert Measurement((first, last, bad)).text == "last"
    assert Measurement((bad,)).text == ""


def test_labels_come_in_order_of_first_use(sample):
    """Requests without a label have none."""
    labels = ["b", None, "a", "b"]
    assert Measurement(tuple(sample(label=label) for label in labels)).labels == ("b", "a")


def test_one_label_can_be_looked_at_alone(sample):
    """Only its requests remain, the warm-up count with them; None is everything."""
    measurement = Measurement(tuple(sample(label=label) for label in ("a", "b", "a")), warmup_requests=2)
    assert len(measurement.labelled("a").samples) == 2
    assert measurement.labelled("a").warmup_requests == 2
    assert measurement.labelled(None) is measurement
    assert measurement.labelled("c").samples == ()


def test_gaps_between_tokens_are_pooled_over_requests(sample):
    """ITL takes every gap of every request whose events carry one token each."""
    one, other = sample(itl_ms=(1.0, 2.0)), sample(itl_ms=(3.0,))
    chunky = sample(itl_ms=(9.0,), output_events=2, output_tokens=8)
    assert Measurement((one, chunky, other)).values("itl_ms") == [1.0, 2.0, 3.0]


def test_an_answer_shows_the_figures_of_its_sample(sample):
    """The answer and its sample cannot disagree."""
    answer = Answer(sample(text="yes", tpot_ms=None))
    assert (answer.text, answer.finish_reason, answer.output_tokens) == ("yes", "stop", 4)
    assert (answer.ttft_ms, answer.tpot_ms, answer.e2e_ms) == (20.0, None, 35.0)


def test_the_hit_rate_of_the_prefix_cache_is_the_share_of_cached_prompt_tokens(sample):
    """Over all requests whose engine said both; None where none did."""
    told = [sample(prompt_tokens=100, cached_tokens=cached) for cached in (0, 96, 80)]
    assert Measurement((*told, sample(cached_tokens=None))).cache_hit_rate == pytest.approx(176 / 300)
    assert Measurement((sample(cached_tokens=None),)).cache_hit_rate is None


def test_the_peak_of_memory_stays_with_the_requests_of_a_label(sample):
    """It is the whole test's: nobody can tell it apart by labels."""
    assert Measurement((sample(),), peak_memory_mib=9.0).labelled("x").peak_memory_mib == 9.0
