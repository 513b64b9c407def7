"""Text of servers, models and files → the same text, safe to draw in a terminal, a CI log or a table.

Such text may hold escape sequences, bidirectional overrides, line breaks that forge lines of ours, and
commands that CI systems read from logs (`::error`, `##[`). It is escaped where it becomes part of a
sentence, and whole reports once more where they are drawn. Escaping twice changes nothing.
"""

from __future__ import annotations

import re
from typing import Any
from unicodedata import category

LONGEST = 1000
"""Characters of foreign text that a sentence quotes at most."""
JOINERS = "\u200c\u200d"
"""Invisible, but part of how some scripts and emoji are written."""
HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
NAMED = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
COMMAND_AT_START = re.compile(r"^(\s*):(?=:)", re.MULTILINE)
COMMAND_ANYWHERE = re.compile(r"##(?=\w*\[)")


def harmless(text: object, longest: int = LONGEST) -> str:
    r"""Return `text` as one harmless line: control characters as `\x1b`, cut with its length if too long."""
    whole = str(text)
    cut = whole[:longest]
    shown = cut if cut.isprintable() else "".join(map(_escaped, cut))
    if len(whole) > longest:
        shown += f"… ({len(whole):,} characters)"
    return _without_commands(shown)


def harmless_lines(text: str) -> str:
    """Return a whole report or message with its line breaks kept, and everything else escaped."""
    if text.isprintable():
        return _without_commands(text)
    return _without_commands("".join(each if each == "\n" else _escaped(each) for each in text))


def encodable(text: str) -> str:
    """Return `text` with lone surrogates escaped, so that it can be written as UTF-8; the rest stays."""
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def encodable_all(shown: Any) -> Any:
    """Return builtins with every text in them `encodable`, tuples as lists."""
    if type(shown) is str:
        return encodable(shown)
    if isinstance(shown, dict):
        return {encodable_all(name): encodable_all(value) for name, value in shown.items()}
    if isinstance(shown, list | tuple):
        return [encodable_all(value) for value in shown]
    return shown


def _escaped(character: str) -> str:
    if character.isprintable() or character in JOINERS or category(character) not in HIDDEN:
        return character
    code = ord(character)
    return NAMED.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def _without_commands(text: str) -> str:
    """Break what a CI system would take for a command: at the start of a line, or anywhere."""
    if "::" in text:
        text = COMMAND_AT_START.sub(r"\1\\x3a", text)
    return COMMAND_ANYWHERE.sub(r"#\\x23", text) if "##" in text else text
