"""Records → GitHub-flavoured markdown, for a pull request or a step summary. Decided elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_llmspeed.records.record import SuiteVerdict, TestRecord
from pytest_llmspeed.reports import side_by_side
from pytest_llmspeed.reports.curves import ShownCurve, curves_of
from pytest_llmspeed.reports.folding import MARKDOWN_LINES, TERMINAL_LINES, cut
from pytest_llmspeed.reports.rows import (
    HEADERS,
    AddressedSentence,
    counts,
    left_out,
    of_suite,
    rows_of_all,
    sentences,
)
from pytest_llmspeed.text.harmless import harmless_lines

RULE = ("---", "---", "---:", "---:", "---:", "---")
SIDES_RULE = ("---", "---", "---:", "---:", "---:", "---:", "---:")
JSON = "the report of `--llmspeed-json`"
_MARKUP = re.compile(r"[\\`*\[\]<>|~&]|(?<![^\W_])_|_(?![^\W_])")


def markdown(
    records: Sequence[TestRecord],
    *,
    suite: SuiteVerdict | None = None,
    stored: Sequence[Path] = (),
    problems: Sequence[str] = (),
) -> Iterator[str]:
    """Yield the lines of the report: counts as heading, a table, what failed and advice, all rows folded.

    The table has a row for what is not passed. It stands alone, so what fails a test is said too.
    Last come the engines side by side, where tests ran on several, and the curves of sweeps. Long lists
    are cut, as GitHub takes no more than 1 MiB; what fails comes first in each.
    """
    yield f"### LLM speed – {_text(counts(records))}"
    failing = sum(bool(record.problems) for record in records)
    most = min(max(TERMINAL_LINES, failing), MARKDOWN_LINES)
    shown, more = rows_of_all(records, verbose=False, most=most, keep_failures=False)
    yield from _after_a_blank(_table(shown))
    yield from _left_out(more, "row")
    addressed, left = cut(list(sentences(records, failures=True)), MARKDOWN_LINES)
    more_sentences = [left_out(left, "sentence", JSON)] if left else []
    yield from _after_a_blank(_list([*addressed, *of_suite(suite)], stored, [*more_sentences, *problems]))
    everything, beyond = rows_of_all(records, verbose=True, most=MARKDOWN_LINES, keep_failures=False)
    if len(everything) > len(shown):
        yield from ("", f"<details><summary>All rows ({len(everything) + beyond:,})</summary>")
        yield from _after_a_blank(_table(everything))
        yield from _left_out(beyond, "row")
        yield from ("", "</details>")
    sides = side_by_side.compared(records, verbose=True)
    engines, others = cut(list(side_by_side.rows(sides)), MARKDOWN_LINES)
    yield from _after_a_blank(_table(engines, side_by_side.HEADERS, SIDES_RULE))
    yield from _left_out(others, "row")
    yield from _after_a_blank(_list(list(side_by_side.sentences(sides)), (), ()))
    curves, beyond_these = cut(curves_of(records), MARKDOWN_LINES // 10)
    for curve in curves:
        yield from _curve(curve)
    yield from _left_out(beyond_these, "curve")


def _curve(curve: ShownCurve) -> Iterator[str]:
    """A table under the test's name: the first column is a level, not a test."""
    yield from ("", f"{_code(curve.nodeid)}: sweep by {curve.headers[0]} (times in ms)", "")
    yield _line(curve.headers)
    yield _line(["---:"] * (len(curve.headers) - 1) + ["---"])
    for row in curve.rows:
        yield _line([_text(cell) for cell in row])
    yield from _after_a_blank(_list([((), finding) for finding in curve.findings], (), ()))


def _left_out(number: int, thing: str) -> Iterator[str]:
    if number:
        yield from ("", left_out(number, thing, JSON))


def _after_a_blank(lines: Iterator[str]) -> Iterator[str]:
    """The lines after an empty one; nothing where there are none."""
    for place, line in enumerate(lines):
        if not place:
            yield ""
        yield line


def _table(
    shown: Sequence[Sequence[str]], headers: Sequence[str] = HEADERS, rule: Sequence[str] = RULE
) -> Iterator[str]:
    if not shown:
        return
    yield _line(headers)
    yield _line(rule)
    for nodeid, *cells in shown:
        named = _code(nodeid).replace("|", r"\|") if nodeid else ""
        yield _line([named, *map(_text, cells)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _list(
    addressed: Sequence[AddressedSentence], stored: Sequence[Path], problems: Sequence[str]
) -> Iterator[str]:
    for nodeids, sentence in addressed:
        yield f"- {_named(nodeids)}{_text(sentence)}"
    for problem in problems:
        yield f"- {_text(problem)}"
    for path in stored:
        yield f"- baseline stored: {_code(str(path))}"


def _named(nodeids: Sequence[str]) -> str:
    if not nodeids:
        return ""
    return f"{_code(nodeids[0]) if len(nodeids) == 1 else f'{len(nodeids):,} tests'}: "


def _text(words: str) -> str:
    """Words on one line, shown as they are: what markdown would read as markup is escaped."""
    return _MARKUP.sub(r"\\\g<0>", harmless_lines(" ".join(words.split())))


def _code(words: str) -> str:
    """Words as code, fenced by more backticks than they hold in a row."""
    fence = "`" * (1 + max(map(len, re.findall("`+", words)), default=0))
    padding = " " if len(fence) > 1 else ""
    return f"{fence}{padding}{harmless_lines(' '.join(words.split()))}{padding}{fence}"
