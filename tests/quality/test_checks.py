"""The five rungs on answers made by hand: what passes, what fails, what cannot be told."""

from __future__ import annotations

import re
from dataclasses import replace
from math import exp, log
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import binom

from pytest_llmspeed.engines.token_scores import TokenScores
from pytest_llmspeed.judging.quality import failures
from pytest_llmspeed.quality.answers import (
    Baseline,
    CheckedAnswer,
    CheckedSet,
    Limits,
    NoiseFloor,
    PlannedCheck,
    Probed,
)
from pytest_llmspeed.quality.checks import findings_of
from pytest_llmspeed.quality.findings import Finding, QualityStatus, SetFindings, from_builtins, to_builtins
from pytest_llmspeed.quality.prompts import PromptSet
from pytest_llmspeed.quality.snapshot import hash_of

EXACT = NoiseFloor(is_exact=True)


def scored(tokens: tuple[int, ...], lead: float = 3.0) -> TokenScores:
    """Scores that put each token first, `lead` nats above one other."""
    best, other = -log(1 + exp(-lead)), -log(1 + exp(lead))
    return TokenScores(tokens, (best,) * len(tokens), tuple(((t, best), (t + 1000, other)) for t in tokens))


def an_answer(place: int, **fields: Any) -> CheckedAnswer:
    """A right answer of four tokens, the same again when asked again."""
    tokens = (10, 20, 30, 40 + place)
    known: dict[str, Any] = {
        "texts": (f"answer {place}",),
        "token_ids": tokens,
        "kept": 1.0,
        "score": 1.0,
        "repeated": True,
        "scores": scored(tokens),
        "forced": scored(tokens),
    }
    return CheckedAnswer(f"prompt {place}", f"hash{place}", **{**known, **fields})


def wrong(place: int, **fields: Any) -> CheckedAnswer:
    """Another answer from the third token on, and a wrong one."""
    tokens = (10, 20, 1030, 99)
    known = {"texts": ("wrong",), "token_ids": tokens, "kept": 0.0, "score": 0.0, "scores": scored(tokens)}
    return an_answer(place, **{**known, "not_kept": ("it is not right",), **fields})


def ladder(
    now: list[CheckedAnswer],
    before: list[CheckedAnswer] | None = None,
    *,
    precision: str = "bf16",
    floor: NoiseFloor | None = EXACT,
    **limits: Any,
) -> SetFindings:
    """The findings of a check, by default against as many right answers."""
    stored = [an_answer(place) for place in range(len(now))] if before is None else before
    known = {each.hash: replace(each, answer_hash=hash_of(each)) for each in stored}
    plan = PlannedCheck(PromptSet("set", ()), Limits(**limits))
    checked = CheckedSet("set", tuple(now), floor, 1, precision)
    return findings_of(Probed(plan, checked, Baseline(known, floor, precision)))


def rung(found: SetFindings, name: str) -> Finding:
    return next(finding for finding in found.rungs if finding.rung == name)


def test_the_same_answers_pass() -> None:
    """All five rungs."""
    found = ladder([an_answer(place) for place in range(8)])
    assert {finding.status for finding in found.rungs} == {QualityStatus.PASSED}
    assert found.status is QualityStatus.PASSED
    assert [finding.number for finding in found.rungs] == [1, 2, 3, 4, 5]


def test_an_answer_that_broke_for_real_fails_the_contracts() -> None:
    """One is enough, where its baseline was sure of another token."""
    found = ladder([wrong(0), *(an_answer(place) for place in range(1, 40))])
    contracts = rung(found, "contracts")
    assert (contracts.status, str(contracts.explanation)) == (QualityStatus.FAILED, "1 of 40 answers broke")
    assert (
        str(rung(found, "divergence").explanation)
        == "39 of 40 answers unchanged; 1 beyond rounding, the first: 'prompt 0' at token 3"
    )
    assert [line.prompt for line in found.broken] == ["prompt 0"]


def test_a_failure_says_how_many_answers_changed_and_what_else_did() -> None:
    """All of them, after a change of an option: a template, most likely."""
    found = ladder([wrong(place) for place in range(6)], [an_answer(place) for place in range(6)])
    changed = ["option extra_args: none → --chat-template"]
    (failure,) = map(str, failures((found,), (), changed, show_answers=False))
    assert "; 6 of 6 answers changed (quality of" in failure
    assert "); changed since: option extra_args: none → --chat-template: 'prompt 0'" in failure
    (bare,) = map(str, failures((found,), (), show_answers=False))
    assert "changed since" not in bare


def test_answers_that_broke_at_near_ties_are_left_to_the_paired_test() -> None:
    """Six of forty are a suspicion there, seven a failure."""
    torn = scored((10, 20, 30, 40), lead=0.1)
    before = [an_answer(place, scores=torn) for place in range(40)]
    for broken, word in ((4, QualityStatus.PASSED), (6, QualityStatus.SUSPECT), (7, QualityStatus.FAILED)):
        now = [wrong(place) if place < broken else an_answer(place, forced=torn) for place in range(40)]
        now = [replace(each, forced=torn) for each in now]
        found = ladder(now, before)
        assert rung(found, "contracts").status is QualityStatus.PASSED
        assert rung(found, "task score").status is word


def test_what_nothing_explains_is_a_suspicion() -> None:
    """Without log-probabilities nobody knows whether rounding did it."""
    before = [an_answer(place, scores=None) for place in range(20)]
    now = [replace(each, forced=None, scores=None) for each in (wrong(0), *map(an_answer, range(1, 20)))]
    found = ladder(now, before, floor=None)
    assert rung(found, "contracts").status is QualityStatus.SUSPECT
    assert rung(found, "log-probabilities").status is QualityStatus.SKIPPED
    assert "1 changed without an explanation" in str(rung(found, "divergence").explanation)


def test_a_contract_that_the_baseline_broke_too_is_no_news() -> None:
    """A small model may be wrong, as long as it was so before."""
    before = [wrong(place) for place in range(10)]
    found = ladder([replace(each, forced=each.scores) for each in before], before)
    assert found.status is QualityStatus.PASSED
    assert str(rung(found, "contracts").explanation) == "0 of 10 contracts kept"


@pytest.mark.parametrize(("differing", "word"), [(0, QualityStatus.PASSED), (1, QualityStatus.FAILED)])
def test_drawing_is_seen_where_scores_repeat_to_the_last_bit(differing: int, word: QualityStatus) -> None:
    """Then no rounding could have made another answer of the same request."""
    now = [an_answer(place, repeated=place >= differing) for place in range(12)]
    assert rung(ladder(now), "self-consistency").status is word


@pytest.mark.parametrize(("differing", "word"), [(3, QualityStatus.PASSED), (6, QualityStatus.FAILED)])
def test_where_scores_are_noisy_repeats_are_compared_with_those_of_the_baseline(
    differing: int, word: QualityStatus
) -> None:
    """A few that differ are noise; half of them are not, if none did before."""
    now = [an_answer(place, repeated=place >= differing) for place in range(12)]
    assert rung(ladder(now, floor=NoiseFloor(0.01, 1e-4)), "self-consistency").status is word


def test_decoding_that_differs_from_scoring_fails() -> None:
    """Tokens that the engine itself scores three nats below others, where none was so before."""
    low = replace(scored((10, 20, 30, 40)), logprobs=(-3.0,) * 4)
    found = ladder([an_answer(place, scores=low) for place in range(4)])
    assert rung(found, "self-consistency").status is QualityStatus.FAILED
    assert "decoding differs from scoring" in str(rung(found, "self-consistency").explanation)


def test_without_a_baseline_an_inconsistency_is_a_suspicion() -> None:
    """There is nothing that says it is new."""
    found = ladder([an_answer(0, repeated=False), an_answer(1)], [])
    assert rung(found, "self-consistency").status is QualityStatus.SUSPECT
    assert rung(found, "log-probabilities").status is QualityStatus.NO_BASELINE


def test_log_probabilities_beyond_the_limit_fail() -> None:
    """The limit is that of the precision, unless one is given."""
    now = [an_answer(place, forced=scored((10, 20, 30, 40 + place), lead=2.0)) for place in range(8)]
    assert rung(ladder(now), "log-probabilities").status is QualityStatus.FAILED
    assert rung(ladder(now, max_kl=0.1), "log-probabilities").status is QualityStatus.PASSED
    assert not rung(ladder(now), "log-probabilities").by_limit
    assert rung(ladder(now, max_kl=0.01), "log-probabilities").by_limit


def test_one_prompt_that_is_hurt_alone_is_not_hidden_by_the_others() -> None:
    """Of four hundred one has lost its context: the mean is below the limit, its own is not."""
    hurt = an_answer(0, forced=scored((1, 2, 3, 4)))
    hurt = replace(hurt, forced=replace(scored((1, 2, 3, 4)), token_ids=hurt.token_ids or ()))
    found = rung(ladder([hurt, *(an_answer(place) for place in range(1, 400))]), "log-probabilities")
    assert found.status is QualityStatus.FAILED
    assert found.figures["kl"] < found.figures["max_kl"]  # type: ignore[operator]
    assert "'prompt 0' alone" in str(found.explanation)


def test_noise_of_the_baseline_widens_the_limit() -> None:
    """Three times its mean divergence."""
    now = [an_answer(place, forced=scored((10, 20, 30, 40 + place), lead=2.0)) for place in range(8)]
    assert rung(ladder(now, floor=NoiseFloor(0.1, 0.05)), "log-probabilities").status is QualityStatus.PASSED


def test_another_precision_may_break_answers_as_far_as_its_limits_go() -> None:
    """What broke is counted by the paired test alone."""
    now = [wrong(0), *(an_answer(place) for place in range(1, 40))]
    found = ladder(now, quality_vs="fp32", max_kl=10, min_top1=0.5)
    assert str(rung(found, "contracts").explanation) == "1 of 40 answers broke"
    assert found.status is QualityStatus.PASSED


def test_a_failed_request_fails_whatever_the_rest_says() -> None:
    """And cannot be accepted."""
    failed = CheckedAnswer("prompt 0", "hash0", error="timed out")
    found = ladder([failed, an_answer(1)])
    assert str(rung(found, "contracts").explanation) == "1 of 2 requests failed, the first with: timed out"
    assert not found.may_be_accepted


def test_what_changed_may_be_accepted() -> None:
    """Then it counts as passed."""
    found = ladder([wrong(0), *(an_answer(place) for place in range(1, 4))])
    assert found.may_be_accepted
    assert replace(found, accepted="new template").status is QualityStatus.PASSED


def test_findings_survive_a_report() -> None:
    """As builtins and back; without texts nothing of an answer is left."""
    found = ladder([wrong(0), *(an_answer(place) for place in range(1, 4))], max_kl=0.5)
    shown = to_builtins((found,), text=True)
    (again,) = from_builtins(shown)
    assert again.status is found.status
    assert [str(f.explanation) for f in again.rungs] == [str(f.explanation) for f in found.rungs]
    assert again.answers[0].text == "wrong"
    (bare,) = from_builtins(to_builtins((found,), text=False))
    assert (bare.answers[0].text, bare.answers[0].baseline_text, bare.answers[0].not_kept) == ("", "", ())


def test_the_power_table_of_the_documentation_is_exact() -> None:
    """Each figure is the binomial probability that seven or more answers break."""
    text = (Path(__file__).parents[2] / "docs" / "quality.md").read_text(encoding="utf-8")
    table = [
        re.split(r"\s*\|\s*", line.strip("| ")) for line in text.splitlines() if re.match(r"\| \d", line)
    ]
    head = next(line for line in text.splitlines() if line.startswith("| prompts |"))
    losses = [int(number) / 100 for number in re.findall(r"(\d+)%", head)]
    rows = [row for row in table if row[0].isdigit() and len(row) == len(losses) + 1]
    assert len(rows) == 7
    for prompts, *cells in rows:
        for cell, loss in zip(cells, losses, strict=True):
            assert float(cell) == pytest.approx(100 * binom.sf(6, int(prompts), loss), abs=0.0501)
