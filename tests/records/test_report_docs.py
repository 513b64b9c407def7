"""docs/report.md names each field of the JSON report, so that the page cannot fall behind the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from helpers.reports import a_missed_budget, a_run, a_test

from pytest_llmspeed.records.record import run_to_builtins
from pytest_llmspeed.regression.verdicts import Comparison, Verdict

PAGE = (Path(__file__).parents[2] / "docs" / "report.md").read_text(encoding="utf-8")
OPEN = ("options", "versions", "environment")
"""Mappings whose names are the user's or the machine's."""


def names(shown: Any) -> Iterator[str]:
    """The field names of a report, at any depth."""
    if isinstance(shown, dict):
        for name, value in shown.items():
            yield name
            if name not in OPEN:
                yield from names(value)
    elif isinstance(shown, list):
        for each in shown:
            yield from names(each)


def test_the_page_names_each_field() -> None:
    """Those of a run, a test, its requests, budgets and comparisons."""
    compared = Comparison(Verdict.PASSED, metric="ttft_ms")
    test = a_test(budgets=(a_missed_budget(),), comparisons=(compared,))
    written = run_to_builtins(a_run(1, test), text=True)
    described = set(re.findall(r"`([\w/]+)`", PAGE))
    assert sorted(set(names(written)) - described) == []
    assert {each.name for each in fields(Comparison)} <= described
