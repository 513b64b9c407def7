"""Text of servers and models is made harmless before it is shown."""

from __future__ import annotations

import pytest

from pytest_llmspeed.text.harmless import encodable, harmless, harmless_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, even “quoted” 日本語", "plain text, even “quoted” 日本語"),
        ("\x1b[31mred\x1b]0;title\x07", r"\x1b[31mred\x1b]0;title\x07"),
        ("one\ntwo\r\nthree\tfour", r"one\ntwo\r\nthree\tfour"),
        ("\u202egnp.exe\u2066", r"\u202egnp.exe\u2066"),
        ("line\u2028break\x85next", r"line\u2028break\x85next"),
        ("half \ud83d of a character", r"half \ud83d of a character"),
        ("::error file=a::b", r"\x3a:error file=a::b"),
        ("see ##[section] and ##vso[task.x]", r"see #\x23[section] and #\x23vso[task.x]"),
        ("## a heading, std::vector", "## a heading, std::vector"),
        ("👩\u200d💻 नमस्\u200dते", "👩\u200d💻 नमस्\u200dते"),
        ("no\xa0break", "no\xa0break"),
    ],
)
def test_what_could_do_harm_is_escaped(text: str, shown: str) -> None:
    """Everything else stays as it is; doing it twice changes nothing."""
    assert harmless(text) == shown
    assert harmless(shown) == shown


def test_a_long_text_is_cut_and_says_how_long_it_was() -> None:
    """A megabyte of an error message is not printed."""
    assert harmless("x" * 2**20, 5) == "xxxxx… (1,048,576 characters)"


def test_a_report_keeps_its_lines_and_no_line_is_a_command() -> None:
    """Lines of ours stay; one that a CI system would obey is broken, indented or not."""
    assert harmless_lines("one\n  ::set-output name=a::b\n\x1b[2Jtwo") == (
        "one\n  \\x3a:set-output name=a::b\n\\x1b[2Jtwo"
    )


def test_a_lone_surrogate_can_be_written() -> None:
    """Whatever else the text holds stays as it is."""
    assert encodable("a\ud800 é\n\x1b") == "a\\ud800 é\n\x1b"
    assert encodable("a\ud800").encode() == b"a\\ud800"
