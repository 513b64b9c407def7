"""What the store keeps of a checked set, and what a baseline makes of it again."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from pytest_llmspeed.engines.token_scores import TokenScores
from pytest_llmspeed.quality.answers import CheckedAnswer, CheckedSet, NoiseFloor
from pytest_llmspeed.quality.scores import STORED_TOP
from pytest_llmspeed.quality.snapshot import PLAIN, baseline_of, hash_of, to_stored


def an_answer(seed: int = 1, tokens: int = 64) -> CheckedAnswer:
    """An answer with scores of twenty tokens at each position."""
    draw = random.Random(seed)
    ids = tuple(draw.randrange(150_000) for _ in range(tokens))
    top = tuple(
        tuple((draw.randrange(150_000), -draw.random() * (rank + 0.1)) for rank in range(20)) for _ in ids
    )
    return CheckedAnswer(
        prompt="capital",
        hash=f"hash{seed}",
        texts=("Paris",),
        finish_reason="stop",
        prompt_tokens=12,
        token_ids=ids,
        kept=1.0,
        score=1.0,
        repeated=True,
        scores=TokenScores(ids, tuple(each[0][1] for each in top), top),
    )


def a_set(*answers: CheckedAnswer, **fields: object) -> CheckedSet:
    made = CheckedSet("support.yaml", answers or (an_answer(),), NoiseFloor(0.01, 1e-4), 4, "bf16")
    return replace(made, **fields)  # type: ignore[arg-type]


def stored(checked: CheckedSet, *, text: bool = True) -> dict[str, object]:
    """The set as it comes out of a run file."""
    found: dict[str, object] = json.loads(json.dumps(to_stored(checked, text=text)))
    return found


def test_an_answer_comes_back_with_its_scores() -> None:
    """Tokens exactly, log-probabilities to a 2000th, eight of the likeliest."""
    before = an_answer()
    found = baseline_of([stored(a_set(before))]).answers["hash1"]
    assert (found.texts, found.token_ids, found.kept, found.repeated) == (
        ("Paris",),
        before.token_ids,
        1.0,
        True,
    )
    assert found.answer_hash == hash_of(before)
    assert before.scores is not None
    assert found.scores is not None
    assert found.scores.logprobs == pytest.approx(before.scores.logprobs, rel=5e-4)
    for kept, given in zip(found.scores.top, before.scores.cut(STORED_TOP).top, strict=True):
        assert [token for token, _ in kept] == [token for token, _ in given]
        assert [value for _, value in kept] == pytest.approx([value for _, value in given], rel=5e-4)


def test_without_text_nothing_can_be_read_from_it() -> None:
    """Hashes, counts and scores only."""
    (answer,) = stored(a_set(), text=False)["answers"]  # type: ignore[misc]
    assert set(answer) == {*PLAIN, "answer_hash"}
    assert baseline_of([stored(a_set(), text=False)]).answers["hash1"].token_ids is None


def test_it_is_compact() -> None:
    """Forty answers of 64 tokens with eight log-probabilities each take less than 200 kB."""
    answers = [an_answer(seed) for seed in range(40)]
    assert len(json.dumps(to_stored(a_set(*answers), text=True))) < 200_000


def test_of_each_prompt_the_first_answer_of_the_level_counts() -> None:
    """A prompt that was added later has its first answer then."""
    first, later = an_answer(1), replace(an_answer(1), texts=("Lyon",))
    found = baseline_of([stored(a_set(first)), stored(a_set(later, an_answer(2)))]).answers
    assert {name: answer.texts for name, answer in found.items()} == {
        "hash1": ("Paris",),
        "hash2": ("Paris",),
    }


def test_of_the_noise_the_largest_counts() -> None:
    """Of all sessions of the level."""
    sets = [stored(a_set(floor=floor)) for floor in (NoiseFloor(0.1, 1e-5), None, NoiseFloor(0.02, 1e-3))]
    assert baseline_of(sets).floor == NoiseFloor(0.1, 1e-3)


def test_nothing_stored_is_no_baseline() -> None:
    """No answers, no noise."""
    assert baseline_of([]).answers == {}
    assert baseline_of([]).floor is None


def test_what_is_impossible_is_stored_as_next_to_it() -> None:
    """A token that a mask forbids has no finite log-probability."""
    scores = TokenScores((1,), (float("-inf"),), (((2, 0.0), (1, float("-inf"))),))
    answer = replace(an_answer(), token_ids=(1,), scores=scores)
    found = baseline_of([stored(a_set(answer))]).answers["hash1"]
    assert found.scores is not None
    assert found.scores.logprobs[0] < -1000
