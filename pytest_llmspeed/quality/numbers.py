"""The number that an answer ends on, as people and models write it.

One spelling can mean two numbers: `3/4` is three quarters, or the last of two; `10,5` is a German ten and
a half, or a list. Such a number has several *readings*, the likeliest first, and keeps a contract if any of
them does: a false alarm costs more trust than a miss.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from math import isfinite

_LETTER = "A-Za-z\u00c0-\u024f\u0370-\u03ff\u0400-\u04ff"
"""Scripts that put spaces between words: a digit after one of these letters belongs to a name, as in CO2."""
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_GROUPS = r"\d{1,3}(?:\ \d{3})+(?!\d)|\d{1,3}(?:[,.'’_\u00a0\u2009\u202f]\d{3})+(?!\d)(?:[.,]\d+)?"
_PLAIN = rf"{_GROUPS}|\d+(?:[.,]\d+)?|(?<!\d)\.\d+"
_POWER = r"\^\s*\{?\s*(?P<power>[-+−]?\d{1,4})\}?|(?P<raised>[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]{1,4})"
_TOKEN = re.compile(
    rf"""
    (?P<name>(?<![{_LETTER}])[{_LETTER}]+(?:\^\s*\{{?\s*[-+−]?\d+\}}?|\d[\d.]*))              # CO2, m2, s^-1
  | (?P<frac_sign>[-−]?)\\[dt]?frac\s*
        \{{\s*(?P<inner_sign>[-−]?)(?P<above>\d+)\s*\}}\s*\{{\s*(?P<below>\d+)\s*\}}
  | (?P<sign>(?<![\w)\]}}%])[-+−–])?
    (?<!\d)(?:
        (?<!\d/)(?:(?P<whole>\d+)\ +)?(?P<top>\d+)\s?[/⁄]\s?(?P<bottom>\d+)(?![\d/⁄])   # 3/4, 1 1/2
      | (?P<before>\d+)?\ ?(?P<vulgar>[¼-¾⅐-⅞])
      | (?P<plain>{_PLAIN})(?P<exponent>[eE][-+]?\d+(?!\w))?
        (?:\s*(?:[×·*x]|\\times|\\cdot)\s*10(?:{_POWER})
         |(?P<own>{_POWER.replace("power", "own_power").replace("raised", "own_raised")}))?
    )
    (?P<percent>\s?%)?(?P<scale>\s?(?:thousand|million|billion|trillion)\b|[kKM]\b)?
    """,
    re.VERBOSE,
)
_SCALES = {
    "thousand": 1e3,
    "k": 1e3,
    "m": 1e6,
    "million": 1e6,
    "billion": 1e9,
    "trillion": 1e12,
}


def last_number(text: str) -> tuple[float, ...]:
    """Return the readings of the last number in a text, the likeliest first; empty if there is none.

    A digit within a name (CO2, m²) counts only where there is no other number.
    """
    last: tuple[float, ...] = ()
    named: tuple[float, ...] = ()
    for found in _TOKEN.finditer(text):
        if found["name"]:
            digits = re.findall(r"\d+(?:\.\d+)?", found["name"])
            named = (float(digits[-1]),)
        elif readings := tuple(dict.fromkeys(filter(isfinite, _readings(found)))):
            last = readings
    return last or named


def _readings(found: re.Match[str]) -> Iterator[float]:
    for value in _unsigned(found):
        for signed in _signed(found, value):
            yield signed
            if found["percent"]:
                yield signed / 100
            if found["scale"]:
                yield signed * _SCALES[found["scale"].strip().lower()]


def _signed(found: re.Match[str], value: float) -> Iterator[float]:
    sign = found["sign"] or found["frac_sign"] or found["inner_sign"] or ""
    yield -value if sign and sign in "-−–" else value
    if sign == "–":  # a dash before a number may be no more than a dash
        yield value


def _unsigned(found: re.Match[str]) -> Iterator[float]:
    if found["above"] is not None:
        yield from _fraction(0.0, found["above"], found["below"])
    elif found["top"] is not None:
        yield from _fraction(float(found["whole"] or 0), found["top"], found["bottom"])
        yield float(found["bottom"])
    elif found["vulgar"] is not None:
        yield float(found["before"] or 0) + unicodedata.numeric(found["vulgar"])
    else:
        yield from _scaled(found)


def _fraction(whole: float, above: str, below: str) -> Iterator[float]:
    if divisor := float(below):
        yield whole + float(above) / divisor
        if whole:
            yield float(above) / divisor


def _scaled(found: re.Match[str]) -> Iterator[float]:
    """A plain number, with its power of ten or its own power where it has one."""
    exponent = float(f"1{found['exponent']}") if found["exponent"] else 1.0
    for value in _plain(found["plain"]):
        if (of_ten := _power(found["power"], found["raised"])) is not None:
            yield value * _raised(10.0, of_ten)
        elif (of_it := _power(found["own_power"], found["own_raised"])) is not None:
            yield _raised(value, of_it)
            yield value
        else:
            yield value * exponent


def _power(caret: str | None, superscript: str | None) -> int | None:
    text = caret or (superscript or "").translate(_SUPERSCRIPTS)
    return int(text.replace("−", "-")) if text else None


def _raised(base: float, power: int) -> float:
    try:
        return float(base**power)
    except (OverflowError, ZeroDivisionError):
        return float("nan")


def _plain(text: str) -> Iterator[float]:
    """Digits with separators: groups of three, and a decimal point or, in other languages, a comma."""
    if " " in text:  # 100 000, or a list that ends on three digits
        yield float(text.replace(" ", ""))
        yield float(text.rpartition(" ")[2])
        return
    unspaced = re.sub(r"['’_\u00a0\u2009\u202f]", "", text)
    points, commas = unspaced.count("."), unspaced.count(",")
    if points and commas:
        thousands = "," if unspaced.rindex(".") > unspaced.rindex(",") else "."
        yield float(unspaced.replace(thousands, "").replace(",", "."))
    elif commas:
        yield from _comma(unspaced)
    elif points > 1:
        yield float(unspaced.replace(".", ""))
    else:
        yield float(unspaced)
        if re.fullmatch(r"[1-9]\d{0,2}\.\d{3}", unspaced):
            yield float(unspaced.replace(".", ""))


def _comma(text: str) -> Iterator[float]:
    if re.fullmatch(r"\d{1,3}(?:,\d{3})+", text):
        yield float(text.replace(",", ""))
    if text.count(",") == 1:
        yield float(text.replace(",", "."))
        yield float(text.partition(",")[2])
