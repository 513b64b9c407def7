"""Log-probabilities side by side: divergence, agreement, the first token that differs, near-ties."""

from __future__ import annotations

from math import exp, inf, isfinite, log, nan

import pytest
from scipy.stats import entropy

from pytest_llmspeed.engines.token_scores import TokenScores
from pytest_llmspeed.quality.answers import NoiseFloor
from pytest_llmspeed.quality.scores import ScoreChange, first_divergence, gap_at, token_changes, truncated_kl
from pytest_llmspeed.quality.thresholds import coarser, kl_limit, near_tie_nats


def top(**shares: float) -> list[tuple[int, float]]:
    """Tokens a, b, … with their shares, likeliest first."""
    ordered = sorted(shares.items(), key=lambda pair: -pair[1])
    return [(ord(name), log(share)) for name, share in ordered]


def test_the_same_distribution_does_not_diverge() -> None:
    """Not by rounding either."""
    assert truncated_kl(top(a=0.7, b=0.2), top(a=0.7, b=0.2)) == pytest.approx(0, abs=1e-12)


def test_the_divergence_is_over_listed_tokens_and_the_rest_as_one() -> None:
    """As SciPy's, with one more class."""
    found = truncated_kl(top(a=0.7, b=0.2), top(a=0.5, b=0.3, c=0.1))
    assert found == pytest.approx(entropy([0.7, 0.2, 0.1], [0.5, 0.3, 0.2]), rel=1e-9)


def test_a_token_that_is_not_listed_now_counts_as_the_last_that_is() -> None:
    """Two lists without a common token lie far apart."""
    assert truncated_kl(top(a=0.9), top(b=0.9, c=0.001)) > 5


def test_certainty_on_both_sides_is_no_divergence() -> None:
    """Shares that rounding lifted above 1 are shares still."""
    assert truncated_kl([(1, 1e-7)], [(1, 0.0)]) == pytest.approx(0, abs=1e-6)


def scores(tokens: str, *tops: list[tuple[int, float]]) -> TokenScores:
    listed = [dict(each) for each in tops]
    logprobs = tuple(each[ord(token)] for token, each in zip(tokens, listed, strict=True))
    return TokenScores(tuple(map(ord, tokens)), logprobs, tuple(tuple(each) for each in tops))


def test_scores_are_numbers_unless_one_is_nan_or_above_all_numbers() -> None:
    """-Inf is that of a token that a model never says."""
    for logprob, is_one in ((-1.0, True), (-inf, True), (inf, False), (nan, False)):
        assert TokenScores((1,), (logprob,), (((1, -1.0),),)).are_numbers is is_one
        assert TokenScores((1,), (-1.0,), (((1, -1.0), (2, logprob)),)).are_numbers is is_one


def test_a_token_that_is_impossible_before_and_now_has_not_changed() -> None:
    """Nor is its change from possible beyond all numbers."""
    possible, never = (TokenScores((1,), (logprob,), (((2, -0.1),),)) for logprob in (-1.0, -inf))
    (same,), (changed,) = token_changes(never, never), token_changes(possible, never)
    assert same.delta == 0
    assert isfinite(changed.delta)


def test_changes_are_summed_up_over_tokens() -> None:
    """Mean divergence, share of unchanged likeliest tokens, mean change of the tokens' own."""
    before = scores("ab", top(a=0.8, b=0.1), top(b=0.5, a=0.4))
    now = scores("ab", top(a=0.8, b=0.1), top(a=0.5, b=0.4))
    found = ScoreChange.of(token_changes(before, now))
    assert (found.tokens, found.top1) == (2, 0.5)
    assert found.delta == pytest.approx(log(0.4 / 0.5) / 2)
    assert found.largest_delta == pytest.approx(log(0.5 / 0.4))
    assert found.kl == pytest.approx(entropy([0.5, 0.4, 0.1], [0.4, 0.5, 0.1]) / 2)


def test_a_token_falls_short_of_the_likeliest() -> None:
    """By its distance in nats; the likeliest itself does not."""
    assert scores("ab", top(a=0.8, b=0.1), top(a=0.5, b=0.4)).shortfalls == pytest.approx((0, log(0.5 / 0.4)))


@pytest.mark.parametrize(
    ("before", "now", "place"), [("abc", "abc", None), ("abc", "abd", 2), ("abc", "ab", 2), ("", "a", 0)]
)
def test_where_two_answers_part(before: str, now: str, place: int | None) -> None:
    """At the first token that differs, the end of one of them included."""
    assert first_divergence([*map(ord, before)], [*map(ord, now)]) == place


def test_the_gap_is_the_baselines_own() -> None:
    """How much likelier its token was than the one that came instead; at least, if that is not listed."""
    before = scores("a", top(a=0.6, b=0.3, c=0.05))
    assert gap_at(before, 0, ord("b")) == pytest.approx(log(2))
    assert gap_at(before, 0, ord("z")) == pytest.approx(log(0.6 / 0.05))
    assert gap_at(before, 1, ord("b")) is None


def test_the_near_tie_that_turns_a_capital_around() -> None:
    """0.1 nats between "The" and "L": rounding of bf16 explains that, rounding of fp32 does not."""
    before = scores("T", top(T=exp(-1.0), L=exp(-1.1)))
    gap = gap_at(before, 0, ord("L"))
    assert gap == pytest.approx(0.1)
    assert near_tie_nats("bf16", None) >= gap > near_tie_nats("fp16", None) > near_tie_nats("fp32", None)


def test_measured_noise_widens_what_is_a_tie_and_what_is_no_change() -> None:
    """Three times the noise, where that is more than the precision's own."""
    noisy = NoiseFloor(delta=0.5, kl=0.1)
    assert near_tie_nats("fp32", noisy) == pytest.approx(1.5)
    assert kl_limit("bf16", noisy) == pytest.approx(0.3)
    assert kl_limit("bf16", NoiseFloor()) == kl_limit("bf16", None)


@pytest.mark.parametrize(
    ("one", "other", "coarse"),
    [("fp32", "fp32", "fp32"), ("fp32", "bf16", "bf16"), ("fp16", "fp32", "fp16"), ("q4_0", "fp32", "bf16")],
)
def test_the_coarser_precision_rules(one: str, other: str, coarse: str) -> None:
    """A precision that is not known computes in nothing coarser than bf16."""
    assert coarser(one, other) == coarser(other, one) == coarse
