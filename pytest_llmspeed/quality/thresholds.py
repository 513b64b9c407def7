"""How far two runs of one configuration may lie apart: by its precision, and by the noise measured."""

from __future__ import annotations

from pytest_llmspeed.quality.answers import NoiseFloor

MANTISSA_BITS = {"fp32": 23, "fp16": 10, "bf16": 7}
COARSEST = "bf16"
"""The coarsest precision that quantised models compute in."""
LOGIT_EXPONENT = 4
"""The logits that decide lie between 2^4 and 2^5 in most language models."""
ULPS = 2
"""Two logits, each rounded to the next number of its precision: their difference is off by up to two."""
LEAST_TIE_NATS = 1e-3
"""What sums of another order make of the logits in fp32, rounding of stored figures included."""
KL_ANCHORS = {"fp32": 1e-4, "fp16": 1e-3, "bf16": 1e-2}
"""Mean divergence per token, in nats, that kernels of one precision do not reach: see docs/quality.md."""
ONE_PROMPT = 5.0
"""The tokens of one prompt, fewer than those of all, may diverge by so many times as much."""
NOISE_FACTOR = 3.0
"""A change of so many times the measured noise is more than noise."""


def coarser(one: str | None, other: str | None) -> str:
    """Return the coarser of two precisions; one that is not known is taken for the coarsest."""
    known = [each if each in MANTISSA_BITS else COARSEST for each in (one, other)]
    return min(known, key=lambda precision: MANTISSA_BITS[precision])


def near_tie_nats(precision: str, floor: NoiseFloor | None) -> float:
    """Return the lead of a token over another below which rounding may turn them around."""
    ulp = 2.0 ** (LOGIT_EXPONENT - MANTISSA_BITS[precision])
    noise = NOISE_FACTOR * floor.delta if floor else 0.0
    return max(ULPS * ulp, LEAST_TIE_NATS, noise)


def kl_limit(precision: str, floor: NoiseFloor | None) -> float:
    """Return the mean divergence per token, in nats, from which on the log-probabilities have changed.

    `floor` is the noise that was measured with the baseline: that of the engine in question could
    be what is wrong with it.
    """
    noise = NOISE_FACTOR * floor.kl if floor else 0.0
    return max(KL_ANCHORS[precision], noise)
