"""The search for the first slow commit, with a model of a noisy machine in the place of engines."""

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pytest_llmspeed.experiments.bisection import SKIPPED, Bisection, SearchEnd, Step, UntestableError
from pytest_llmspeed.experiments.judged import Judged
from pytest_llmspeed.regression.looks import EARLY_LOOK, FIRST_LOOK, LAST_LOOK
from pytest_llmspeed.regression.paired_test import compare_pairs
from pytest_llmspeed.regression.verdicts import Verdict

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from noise_model import Temper, pairs

PLACE = ("test_chat.py::test_chat", "prompt 1", "tpot_ms")
NOISY = Temper(between_sd=0.05, start_sd=0.02, load_share=0.1)


class Commits:
    """Commits on a noisy machine: from `culprit` on each is slower by `factor`; some do not build."""

    def __init__(self, seed, culprit, factor=1.15, broken=()):
        self.rng = np.random.default_rng(seed)
        self.culprit, self.factor, self.broken = culprit, factor, set(broken)
        self.blocks = 0

    def measure(self, old, new):
        for place in (old, new):
            if place in self.broken:
                raise UntestableError(place, "it does not build")
        seconds = pairs(self.rng, NOISY, 5, 10)
        for side, place in enumerate((old, new)):
            seconds[:, :, side] *= self.factor if place >= self.culprit else 1.0
        blocks = [[(before, after) for before, after in block] for block in seconds.tolist()]
        for count in range(FIRST_LOOK, len(blocks) + 1):
            look = EARLY_LOOK if count < len(blocks) else LAST_LOOK
            found = compare_pairs(blocks[:count], look=look)
            if found.verdict is not Verdict.INCONCLUSIVE:
                break
        self.blocks += count
        return Found(replace(found, metric="tpot_ms", stratum="prompt 1"))


class Found(Judged):
    """What one test came to."""

    def __init__(self, comparison):
        super().__init__()
        object.__setattr__(self, "found", comparison)

    @property
    def by_place(self):
        return {PLACE: self.found}

    @property
    def verdict(self):
        return self.found.verdict


def searched(commits, count=33, **fields):
    bisection = Bisection(count, commits.measure, **fields)
    return bisection, bisection.run()


def test_the_right_commit_in_nineteen_of_twenty_searches():
    """33 commits, 15% on a machine whose starts differ by 2%, others busy, and three that do not build."""
    right, steps = 0, 0
    for seed in range(20):
        rng = np.random.default_rng(1000 + seed)
        culprit = int(rng.integers(1, 34))
        broken = rng.choice([k for k in range(1, 33) if k not in (culprit, culprit - 1)], 3, replace=False)
        bisection, answer = searched(Commits(seed, culprit, broken=broken.tolist()))
        right += answer is SearchEnd.FOUND and bisection.culprits == [culprit]
        steps += len(bisection.steps)
    assert right >= 19
    assert steps / 20 < 12


def test_every_search_ends_with_the_culprit_against_its_parent():
    """So that the answer rests on these two."""
    bisection, answer = searched(Commits(3, culprit=9))
    assert answer is SearchEnd.FOUND
    assert bisection.culprits == [9]
    assert (8, 9, "slower") in [(step.old, step.new, step.verdict) for step in bisection.steps]
    assert bisection.suspects.probability(8, 9) >= 0.95


def test_a_commit_that_does_not_build_is_not_tried_again():
    """Its neighbour is taken."""
    bisection, answer = searched(Commits(1, culprit=20, broken=[16, 17]))
    tried = Counter(step.new for step in bisection.steps if step.verdict == SKIPPED)
    assert set(tried.values()) <= {1}
    assert (answer, bisection.culprits) == (SearchEnd.FOUND, [20])


def test_commits_that_cannot_be_told_apart_are_all_named():
    """The culprit follows two that do not build: it may be any of the three."""
    bisection, answer = searched(Commits(2, culprit=11, broken=[10, 11]))
    assert answer is SearchEnd.FOUND
    assert sorted(bisection.culprits) == [10, 11, 12]


def test_a_bad_commit_that_is_not_slower_ends_the_search():
    """There is nothing to look for."""
    bisection, answer = searched(Commits(4, culprit=99))
    assert answer is SearchEnd.NOT_SLOWER
    assert len(bisection.steps) == 1


def test_a_good_commit_that_does_not_build_is_an_error():
    """Nothing can be measured against it."""
    with pytest.raises(UntestableError):
        searched(Commits(5, culprit=4, broken=[0]))


def test_a_search_goes_on_where_it_was_interrupted():
    """Its steps, as builtins, are all that it needs."""
    whole, answer = searched(Commits(6, culprit=21))
    kept = [Step.from_builtins(step.to_builtins()) for step in whole.steps[:3]]
    commits = Commits(7, culprit=21)
    resumed, again = searched(commits, steps=kept, watched=whole.watched)
    assert (answer, again) == (SearchEnd.FOUND, SearchEnd.FOUND)
    assert resumed.steps[:3] == whole.steps[:3]
    assert resumed.culprits == [21]


def test_one_commit_needs_one_measurement_more():
    """Two neighbours: the whole is the commit against its parent."""
    bisection, answer = searched(Commits(8, culprit=1), count=1)
    assert (answer, bisection.culprits) == (SearchEnd.FOUND, [1])
    assert len(bisection.steps) == 1
