"""Simulated CI sessions: the seconds that requests take on a machine of a given temper.

A session multiplies all of its requests by a factor of its own, which is what makes CI machines hard.
Within it, the requests are an AR(1) series in logs; some are outliers, and spells of foreign load come
and go. Noise of the machine only ever slows, in outliers and spells. All spreads are standard
deviations of logs, so 0.02 is 2 %.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Seconds = NDArray[np.float64]

USUAL_S = 0.040
OUTLIER_FACTORS = (1.5, 3.5)
LOAD_FACTORS = (1.1, 2.2)


@dataclass(frozen=True, slots=True)
class Temper:
    """How a machine varies.

    `between_sd` is the spread of sessions, `start_sd` that of fresh processes of one session; in
    `outlier_share` of requests something else got in the way; `load_share` is the mean share of
    requests under foreign load, whose spells last `load_length` requests on average. Half of all
    sessions see none of it, the other half all.
    """

    between_sd: float = 0.02
    within_sd: float = 0.03
    correlation: float = 0.3
    outlier_share: float = 0.02
    load_share: float = 0.0
    load_length: float = 6.0
    start_sd: float = 0.0


def sessions(rng: np.random.Generator, temper: Temper, count: int, requests: int) -> Seconds:
    """Return seconds of shape (count, requests): so many sessions of one test."""
    moods = rng.normal(0.0, temper.between_sd, (count, 1))
    moods += rng.normal(0.0, temper.start_sd, (count, 1))
    return USUAL_S * np.exp(moods + within(rng, temper, count, requests))


def suite(
    rng: np.random.Generator, temper: Temper, tests: int, count: int, requests: int, *, common: float
) -> Seconds:
    """Return seconds of shape (tests, count, requests).

    The tests of a session share `common` of the variance between sessions.
    """
    shared = rng.normal(0.0, temper.between_sd * np.sqrt(common), (1, count, 1))
    own = rng.normal(0.0, temper.between_sd * np.sqrt(1 - common), (tests, count, 1))
    inner = within(rng, temper, tests * count, requests).reshape(tests, count, requests)
    return USUAL_S * np.exp(shared + own + inner)


def pairs(rng: np.random.Generator, temper: Temper, blocks: int, count: int) -> Seconds:
    """Return seconds of shape (blocks, count, 2): old and new of each pair, measured in turn.

    Both sides of all blocks are in one session; each block starts both afresh. The order flips from
    pair to pair, so neither side is always the first.
    """
    series = within(rng, temper, blocks, 2 * count).reshape(blocks, count, 2)
    series[:, 1::2] = series[:, 1::2, ::-1].copy()
    starts = rng.normal(0.0, temper.start_sd, (blocks, 1, 2))
    return USUAL_S * np.exp(rng.normal(0.0, temper.between_sd) + starts + series)


def slowed(rng: np.random.Generator, seconds: Seconds, factor: float, share: float = 1.0) -> Seconds:
    """Return seconds of which a share, drawn at random, is so many times as long."""
    return np.where(rng.random(seconds.shape) < share, seconds * factor, seconds)


def within(rng: np.random.Generator, temper: Temper, count: int, requests: int) -> Seconds:
    """Return logs of shape (count, requests): what happens inside of a session."""
    logs = temper.within_sd * correlated(rng, temper.correlation, count, requests)
    outliers = rng.random(logs.shape) < temper.outlier_share
    logs += outliers * np.log(rng.uniform(*OUTLIER_FACTORS, logs.shape))
    if temper.load_share:
        logs += foreign_load(rng, temper, count, requests)
    return logs


def correlated(rng: np.random.Generator, correlation: float, count: int, requests: int) -> Seconds:
    """Return rows of an AR(1) series of variance 1."""
    series = rng.standard_normal((count, requests))
    fresh = np.sqrt(1 - correlation**2)
    for place in range(1, requests):
        series[:, place] = correlation * series[:, place - 1] + fresh * series[:, place]
    return series


def foreign_load(rng: np.random.Generator, temper: Temper, count: int, requests: int) -> Seconds:
    """Return logs: spells in which others compute, each of a strength of its own."""
    busy_session = rng.random(count) < 0.5
    share = np.where(busy_session, min(2 * temper.load_share, 0.95), 0.0)
    begin = np.minimum(share / (1 - share) / temper.load_length, 1.0)
    logs = np.zeros((count, requests))
    loaded, strength = rng.random(count) < share, load_strength(rng, count)
    for place in range(requests):
        logs[:, place] = np.where(loaded, strength, 0.0)
        turn = rng.random(count)
        begins, ends = ~loaded & (turn < begin), loaded & (turn < 1 / temper.load_length)
        strength = np.where(begins, load_strength(rng, count), strength)
        loaded = (loaded | begins) & ~ends
    return logs


def load_strength(rng: np.random.Generator, count: int) -> Seconds:
    """Return logs of the factor by which a spell slows."""
    return np.log(rng.uniform(*LOAD_FACTORS, count))
