"""The JSON of an answer: all of its text, or what one of its code fences holds."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator
from typing import NoReturn

_OPENING = re.compile(r"^(?P<margin>[ \t>]*)(?P<fence>`{3,}|~{3,})(?P<info>[^\n]*)$")


def json_values(text: str) -> tuple[list[object], str | None]:
    """Return the JSON values that an answer may mean, the likeliest first, and the first parse error.

    The whole text, else its fences: those that say json first, then those that say nothing, then others.
    A fence ends at a line that is a fence of the same kind and at least the same length, as in CommonMark,
    or with the answer. NaN and Infinity are not JSON.
    """
    values: list[object] = []
    error: str | None = None
    for candidate in _candidates(text):
        try:
            values.append(json.loads(candidate, parse_constant=_no_constant))
        except (ValueError, RecursionError) as problem:
            error = error or str(problem)
    return values, error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _candidates(text: str) -> Iterator[str]:
    fences = sorted(_fences(text), key=lambda fence: _rank(fence[0]))
    whole = text.strip().removeprefix("\ufeff")
    # where there is a fence, the text around it is not JSON: its error would say nothing
    yield from (content for _, content in fences)
    if not fences or whole[:1] in ("{", "[", '"'):
        yield whole.strip("`")


def _rank(tag: str) -> int:
    if "json" in tag.casefold():
        return 0
    return 1 if not tag else 2


def _fences(text: str) -> Iterator[tuple[str, str]]:
    """Tag and content of each code fence, in order."""
    lines = iter(text.splitlines())
    for line in lines:
        if one := _fence_on_one_line(line.strip(" \t>")):
            yield one
        elif opening := _OPENING.match(line):
            fence, quoted = opening["fence"], ">" in opening["margin"]
            content = []
            for inner in lines:
                bare = inner.lstrip(" \t>") if quoted else inner
                closing = bare.strip()
                if len(closing) >= len(fence) and set(closing) == {fence[0]}:
                    break
                content.append(bare)
            yield opening["info"].strip(), "\n".join(content)


def _fence_on_one_line(line: str) -> tuple[str, str] | None:
    """Tag and content of a fence that opens and closes on one line."""
    inner = line.strip("`")
    ticks = len(line) - len(line.lstrip("`"))
    if ticks < 3 or not inner or len(line) - len(line.rstrip("`")) != ticks:
        return None
    tag = inner[: len(inner) - len(inner.lstrip(string.ascii_letters))]
    return tag, inner[len(tag) :]
