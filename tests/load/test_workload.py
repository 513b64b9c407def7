"""What a load asks: seeded, the same whoever asks for it, and known by its hash."""

from __future__ import annotations

import pickle
from collections import Counter
from statistics import fmean, median

import pytest

from pytest_llmspeed import Lengths, Trace, Workload
from pytest_llmspeed.errors import SettingsError
from pytest_llmspeed.load.trace import TraceRow

CHAT = [{"role": "system", "content": "short"}, {"role": "user", "content": "hello"}]


def prompt(workload: Workload, place: int) -> str:
    (turn,) = workload.conversation(place)
    assert isinstance(turn.prompt, str)
    return turn.prompt


def tokens(workload: Workload, place: int) -> int:
    return len(prompt(workload, place).split(" "))


def test_prompts_are_asked_in_turn() -> None:
    """A list begins anew after its last prompt."""
    workload = Workload.of(["a", "b", "c"])
    assert [prompt(workload, place) for place in range(5)] == ["a", "b", "c", "a", "b"]


def test_one_prompt_or_one_chat_is_a_workload() -> None:
    """A text, and a list of messages, stand for themselves; a list of chats is two prompts."""
    assert prompt(Workload.of("hello"), 7) == "hello"
    assert Workload.of(CHAT).conversation(0)[0].prompt == tuple(CHAT)
    assert Workload.of([CHAT, "x"]).conversation(1)[0].prompt == "x"


def test_no_prompt_is_refused() -> None:
    """A load of nothing says so."""
    with pytest.raises(SettingsError, match="the workload is empty"):
        Workload.of([])


def test_synthetic_prompts_have_the_exact_number_of_words() -> None:
    """Each word is one token, so a fixed length is exact, and a range is kept."""
    fixed = Workload.synthetic(input_tokens=300, output_tokens=64)
    assert {tokens(fixed, place) for place in range(20)} == {300}
    assert {fixed.conversation(place)[0].output_tokens for place in range(20)} == {64}
    ranged = Workload.synthetic(input_tokens=(10, 20), output_tokens=(5, 9))
    lengths = [tokens(ranged, place) for place in range(500)]
    assert (min(lengths), max(lengths)) == (10, 20)


def test_no_two_synthetic_prompts_are_alike() -> None:
    """A prefix cache finds nothing that was not asked for."""
    workload = Workload.synthetic(input_tokens=50, output_tokens=1)
    assert len({prompt(workload, place)[:40] for place in range(200)}) == 200


def test_a_place_is_the_same_whoever_asks() -> None:
    """A conversation depends on seed and place, not on what was drawn before, nor on the process."""
    workload = Workload.synthetic(input_tokens=(1, 99), output_tokens=(1, 99), seed=4)
    copy = pickle.loads(pickle.dumps(workload))
    assert copy.conversation(17) == workload.conversation(17)
    assert workload.conversation(17) != workload.conversation(18)


def test_shared_prefixes_are_shared() -> None:
    """Every prompt begins with one of so many prefixes, which count among its tokens."""
    workload = Workload.synthetic(input_tokens=100, output_tokens=1, shared_prefix_tokens=60, prefixes=3)
    beginnings = Counter(" ".join(prompt(workload, place).split(" ")[:60]) for place in range(90))
    assert len(beginnings) == 3
    assert {tokens(workload, place) for place in range(90)} == {100}


def test_several_turns() -> None:
    """A synthetic conversation has so many turns, each of the asked length; given ones stand."""
    turns = Workload.synthetic(input_tokens=10, output_tokens=4, turns=3).conversation(0)
    assert [len(str(turn.prompt).split(" ")) for turn in turns] == [10, 10, 10]
    assert [turn.prompt for turn in Workload.conversations([["a", "b"]]).conversation(0)] == ["a", "b"]


def test_a_mix_has_as_many_turns_as_its_parts_agree_on() -> None:
    """None where they differ."""
    talk = Workload.conversations([["hello", "and now?"]])
    assert Workload.mix((1, "a"), (1, ["b", "c"])).turns_each == 1
    assert Workload.mix((1, "a"), (1, talk)).turns_each is None
    assert Workload.mix((1, talk)).turns_each == 2


def test_a_mix_follows_its_weights() -> None:
    """Each part comes as often as its weight says."""
    mixed = Workload.mix((3, "chat"), (1, "document"))
    seen = Counter(prompt(mixed, place) for place in range(4000))
    assert seen["chat"] / 4000 == pytest.approx(0.75, abs=0.03)


def test_the_hash_knows_what_is_asked() -> None:
    """The same workload has the same hash; another prompt, length, weight or seed another one."""
    workloads = [
        Workload.of("a"),
        Workload.of("b"),
        Workload.synthetic(input_tokens=10, output_tokens=10),
        Workload.synthetic(input_tokens=10, output_tokens=11),
        Workload.synthetic(input_tokens=10, output_tokens=10, seed=1),
        Workload.mix((1, "a"), (1, "b")),
        Workload.mix((1, "a"), (2, "b")),
    ]
    assert len({workload.hash for workload in workloads}) == len(workloads)
    assert Workload.of(["a"]).hash == Workload.of("a").hash


def lengths(shape: Lengths) -> list[int]:
    workload = Workload.synthetic(input_tokens=shape, output_tokens=1)
    return [tokens(workload, place) for place in range(2000)]


def test_distributions_of_lengths() -> None:
    """A bell, one with a long tail, and lengths that were seen elsewhere."""
    assert fmean(lengths(Lengths.normal(200, 20))) == pytest.approx(200, rel=0.02)
    long_tail = lengths(Lengths.lognormal(100, 0.8, at_most=600))
    assert median(long_tail) == pytest.approx(100, rel=0.1)
    assert max(long_tail) == 600
    assert set(lengths(Lengths.of([5, 50]))) == {5, 50}


@pytest.mark.parametrize("length", [0, (0, 5)])
def test_a_length_below_one_is_refused(length: int | tuple[int, int]) -> None:
    """A prompt or an answer has at least one token."""
    with pytest.raises(SettingsError, match="at least one token"):
        Workload.synthetic(input_tokens=length, output_tokens=1)


def test_a_trace_begins_at_zero_in_order() -> None:
    """Rows are put in order, and count from the first; a faster replay brings them closer."""
    trace = Trace.from_rows([TraceRow(7.0, input_tokens=3, output_tokens=1), TraceRow(5.0, input_tokens=9)])
    assert trace.offsets_s == (0.0, 2.0)
    assert [tokens(trace, place) for place in range(2)] == [9, 3]
    assert trace.faster(4).offsets_s == (0.0, 0.5)


def test_rows_that_share_blocks_share_text() -> None:
    """The prompts of a trace have in common what its blocks say, and nothing else."""
    rows = [TraceRow(float(place), None, 1300, 1, blocks) for place, blocks in enumerate([(1, 2), (1, 3)])]
    first, second = (prompt(Trace.from_rows(rows), place).split(" ") for place in range(2))
    assert len(first) == len(second) == 1300
    assert first[:512] == second[:512]
    assert first[512:1024] != second[512:1024]
    assert first[1024:] != second[1024:]
