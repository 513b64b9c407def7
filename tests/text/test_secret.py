"""Secrets do not show themselves, and are taken out of text that echoes them."""

from __future__ import annotations

import pickle

import pytest

from pytest_llmspeed.text.secret import Secret, Unshown, masked, names_a_secret, secret_values


def test_a_secret_shows_itself_to_nobody_who_prints_what_holds_it() -> None:
    """It is sent as it is, in this process and in another one."""
    secret = pickle.loads(pickle.dumps(Secret("sk-1234")))
    assert repr({"authorization": secret}) == "{'authorization': '***'}"
    assert f"Bearer {secret}" == "Bearer sk-1234"
    assert repr(Unshown(b"key")) == "<3 bytes>"


def test_a_secret_is_masked_in_every_spelling() -> None:
    """As it is, percent-encoded, and as JSON escapes it."""
    text = 'p"a/ss? p%22a%2Fss%3F p\\"a/ss?'
    assert masked(text, ['p"a/ss?']) == "*** *** ***"


def test_the_longest_secret_is_masked_first() -> None:
    """One that is part of another leaves nothing of it behind; one of three letters is not looked for."""
    assert masked("abcdefgh abc", ["abcd", "abcdefgh", "abc"]) == "*** abc"


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("OPENAI_API_KEY", True),
        ("api-key", True),
        ("x-apikey", True),
        ("HF_TOKEN", True),
        ("--hf-token", True),
        ("sig", True),
        ("MAX_TOKENS", False),
        ("--tokenizer", False),
        ("KEYBOARD", False),
    ],
)
def test_names_tell_secrets(name: str, *, is_secret: bool) -> None:
    """By whole words."""
    assert names_a_secret(name) is is_secret


def test_short_values_are_secret_by_their_name_only() -> None:
    """A level of logging is not masked wherever it occurs."""
    values = secret_values({"VLLM_LOGGING_LEVEL": "DEBUG", "HF_TOKEN": "hf_12", "PLAIN": "hunter2-42"})
    assert values == ("hf_12", "hunter2-42")
