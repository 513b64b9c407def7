"""Regular expressions on text that a model wrote: compiled once, each search with a time limit.

Python's own `re` cannot be interrupted: a pattern such as `^(a+)+$` takes exponential time on some answers.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Any

SEARCH_LIMIT_S = 2.0
"""No sensible pattern needs longer for one answer."""


class PatternError(ValueError):
    """A pattern that cannot be compiled, or that took too long on one answer."""


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Any:
    """Return a pattern, ready to search; raises `PatternError`, and `ImportError` without `regex`."""
    import regex

    try:
        return regex.compile(unicodedata.normalize("NFC", pattern))
    except (regex.error, ValueError, OverflowError, RecursionError) as error:
        raise PatternError(f"{pattern!r} is not a regular expression: {error}") from error


def matches(pattern: str, text: str) -> bool:
    """Return whether a pattern matches somewhere in a text, both in Unicode's form NFC.

    Raises `PatternError` where that is not known within `SEARCH_LIMIT_S`.
    """
    try:
        found = compiled(pattern).search(unicodedata.normalize("NFC", text), timeout=SEARCH_LIMIT_S)
    except TimeoutError as error:
        raise PatternError(
            f"{pattern!r} took more than {SEARCH_LIMIT_S:g} s on this answer; "
            "rewrite it without repeats inside repeats"
        ) from error
    return found is not None
