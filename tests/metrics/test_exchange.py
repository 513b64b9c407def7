"""What a request asks for, and how an exchange is read."""

from enum import Enum, StrEnum

import pytest

from pytest_llmspeed.metrics.exchange import Event, Exchange, Request, plain_text

MESSAGES = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"})


def test_a_text_is_one_user_message():
    """A plain prompt becomes a chat of one message."""
    assert Request("Hello").messages == [{"role": "user", "content": "Hello"}]


def test_messages_are_passed_on_as_copies():
    """Changing what comes out does not change the request."""
    request = Request(MESSAGES)
    request.messages[0]["content"] = "changed"
    assert request.messages == list(MESSAGES)


def test_the_hash_of_a_prompt_depends_on_its_content_only():
    """Equal prompts have equal hashes whatever the order of keys; different ones differ."""
    turned = tuple(dict(reversed(message.items())) for message in MESSAGES)
    assert Request(MESSAGES).prompt_hash == Request(turned).prompt_hash
    assert Request(MESSAGES).prompt_hash == Request(MESSAGES, max_tokens=5).prompt_hash
    assert Request(MESSAGES).prompt_hash != Request(MESSAGES[::-1]).prompt_hash
    assert Request("Hello").prompt_hash != Request("Hello ").prompt_hash


def test_the_hash_of_a_prompt_is_stable_across_processes():
    """Stored keys stay valid: the hash of a known prompt is a known one, and shows nothing of it."""
    assert Request("Hello").prompt_hash == "c25bf945aaff"
    assert len(Request("secret " * 1000).prompt_hash) == 12


def test_a_broken_surrogate_in_a_prompt_is_hashed():
    """Text that is no valid Unicode does not crash the measurement."""
    assert Request("\ud800").prompt_hash != Request("\ud801").prompt_hash


@pytest.mark.parametrize(
    ("request_", "forced"),
    [
        (Request("x", max_tokens=8), None),
        (Request("x", max_tokens=128, output_tokens=16), 16),
        (Request("x", max_tokens=8, extra_body={"ignore_eos": True}), 8),
        (Request("x", max_tokens=8, extra_body={"min_tokens": 5}), 5),
        (Request("x", max_tokens=8, extra_body={"min_tokens": 0}), None),
        (Request("x", extra_body={"ignore_eos": False}), None),
    ],
)
def test_the_forced_length_is_what_the_request_rules_out_to_undercut(request_, forced):
    """output_tokens and min_tokens force themselves, ignore_eos max_tokens, and nothing forces nothing."""
    assert request_.forced_tokens == forced


@pytest.mark.parametrize("part", ["text", "refusal", "tool_call"])
def test_all_but_reasoning_is_an_answer(part):
    """Text, refusals and tool calls are answers, beside reasoning too."""
    assert Event(0.0, **{part: "x"}).is_answer
    assert Event(0.0, reasoning="hm", **{part: "x"}).is_answer
    assert not Event(0.0, reasoning="hm").is_answer


def test_a_failed_exchange_keeps_what_had_come():
    """The error is added, the events stay."""
    events = (Event(1.0, text="a"),)
    failed = Exchange(Request("x"), 0.0, events, finish_reason="stop").failed("it broke")
    assert (failed.error, failed.events) == ("it broke", events)


WORD = (Event(1.0, text="a"),)


@pytest.mark.parametrize(
    ("came", "failure"),
    [
        ({"events": WORD, "finish_reason": "stop"}, None),
        ({"events": WORD, "finish_reason": "stop", "error": "it broke \ud800"}, "it broke \ufffd"),
        ({}, "the stream ended without any output"),
        ({"events": WORD}, "the stream ended without a finish reason: the answer was cut"),
        ({"events": WORD, "notes": frozenset({"cancelled"})}, None),
    ],
)
def test_an_answer_of_nothing_and_one_that_was_cut_are_failures(came, failure):
    """Beside what has an error; one that its caller closed is none."""
    assert Exchange(Request("x"), 0.0, **came).failure == failure


def test_parts_are_joined_from_the_first_choice():
    """Each part of the answer is put together on its own."""
    events = (
        Event(1.0, reasoning="hm"),
        Event(2.0, text="a"),
        Event(3.0, text="z", choice=1),
        Event(4.0, text="b"),
    )
    exchange = Exchange(Request("x"), 0.0, events)
    assert (exchange.joined("text"), exchange.joined("reasoning")) == ("ab", "hm")


def test_a_forced_length_is_the_limit_too():
    """max_tokens has a default, so that a forced length must win over it."""
    assert Request("x", max_tokens=128, output_tokens=200).limit == 200
    assert Request("x", max_tokens=128).limit == 128


class Label(StrEnum):
    CHAT = "chat"


class OldLabel(str, Enum):  # noqa: UP042 (people have them)
    CHAT = "chat"


@pytest.mark.parametrize("member", [Label.CHAT, OldLabel.CHAT, "chat"])
def test_a_member_of_an_enum_is_the_text_that_it_stands_for(member):
    """Its value, without its class; what is no text stays."""
    assert plain_text(member) == "chat"
    assert type(plain_text(member)) is str
    assert plain_text(None) is None
