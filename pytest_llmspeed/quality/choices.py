"""Which of some options an answer names, where options may be words of their own: the article "a", "no"."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
"""Scripts without spaces between words, or with endings set right behind one."""
_WORD = rf"(?:(?![{_UNSPACED}_])\w)"
_WORDS_OF_A_LETTER = "AaIi"
"""Letters that are words in English: unmarked ones are taken for those words."""
_CUES = re.compile(r"\b(?:option|choice|letter|answer:|and|or|nor)[\s*_(\"'`]*$", re.IGNORECASE)
_JOINED = re.compile(r"[\s*_)\"'`]*\b(?:and|or|nor|is|are)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an option stands; one that is `sure` cannot be another word of the same letters."""

    option: str
    start: int
    end: int
    sure: bool


def named_options(text: str, options: Sequence[str]) -> list[str]:
    """Return the options that a text names, in their own order, each in either case.

    An option within a longer word, or within a longer option, is not named. A single letter and "no" are
    ordinary words too: without punctuation, quotes or a cue they count only if nothing else is named.
    """
    written = unicodedata.normalize("NFKC", text)
    places = [place for option in options for place in _places(written, option)]
    outer = [place for place in places if not any(_within(place, other) for other in places)]
    named = {place.option for place in outer if place.sure} or {place.option for place in outer}
    return [option for option in options if option in named]


def _within(inner: _Place, outer: _Place) -> bool:
    longer = outer.end - outer.start > inner.end - inner.start
    return longer and outer.start <= inner.start and inner.end <= outer.end


def _places(text: str, option: str) -> Iterator[_Place]:
    word = unicodedata.normalize("NFKC", option)
    bounded = re.escape(word)
    if re.match(_WORD, word):
        bounded = rf"(?<!{_WORD})(?<!{_WORD}['’-])" + bounded
    if re.match(_WORD, word[-1:]):
        bounded += rf"(?!{_WORD})(?!['’-]{_WORD})"
    for found in re.finditer(bounded, text, re.IGNORECASE):
        start, end = found.span()
        if not _is_ambiguous(word) or _is_marked(text, start, end):
            yield _Place(option, start, end, sure=True)
        elif not _is_article(found.group(), word):
            yield _Place(option, start, end, sure=found.group().upper() not in ("A", "I", "NO"))


def _is_ambiguous(word: str) -> bool:
    return (len(word) == 1 and word.isalpha()) or word.casefold() == "no"


def _is_article(found: str, word: str) -> bool:
    """True for "a" and "i" in the middle of a sentence, where the option is a capital letter."""
    return len(word) == 1 and found in _WORDS_OF_A_LETTER and found.islower() and word.isupper()


def _is_marked(text: str, start: int, end: int) -> bool:
    """True if punctuation, quotes, an end or a cue sets it off from the sentence."""
    before, after = text[:start], text[end:]
    rest = after.lstrip(" \t")
    ends = not rest or rest[0] in ".,:;!?)]}*_\"'`”’»\n、。，：；！？）"
    opens = before[-1:] in tuple("([{*_\"'`“‘«（") and bool(before)
    return (
        ends
        or opens
        or bool(_CUES.search(before[-24:]))
        or bool(_JOINED.match(after) and text[start].isupper())
    )
