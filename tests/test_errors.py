"""Messages of errors: what they name, and the nearest match."""

import pytest

from pytest_llmspeed.errors import (
    EngineError,
    GenerationError,
    LLMSpeedError,
    SettingsError,
    StoreError,
    TooFewSamplesError,
    did_you_mean,
)


def test_a_misspelt_word_is_answered_with_its_nearest_match_first():
    """The hint leads, all known words follow in order."""
    assert did_you_mean("opnai", {"tiny", "openai"}) == "did you mean 'openai'? known: openai, tiny"


def test_a_word_like_no_other_is_answered_with_the_list_alone():
    """A far-fetched guess would only mislead."""
    assert did_you_mean("zzz", ["tiny", "openai"]) == "known: openai, tiny"


@pytest.mark.parametrize(
    "error",
    [
        SettingsError("x"),
        EngineError("x"),
        StoreError("x"),
        GenerationError("x"),
        TooFewSamplesError(0.9, 3, 10),
    ],
)
def test_every_error_is_one_of_ours(error):
    """One except clause catches them all."""
    assert isinstance(error, LLMSpeedError)


def test_a_generation_error_carries_what_was_recorded(sample):
    """The sample of a failed request is at hand."""
    failed = sample(error="HTTP 500")
    assert GenerationError("HTTP 500", failed).sample is failed
    assert GenerationError("HTTP 500").sample is None


def test_too_few_samples_are_told_with_both_numbers():
    """What there is, what is needed, of which quantile."""
    assert str(TooFewSamplesError(0.99, 7, 100)) == "p99 needs at least 100 samples, there are 7"
