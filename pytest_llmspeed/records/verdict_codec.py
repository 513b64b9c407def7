"""Explanations, comparisons and budget checks ⇄ builtins: a code, its figures, and the sentence beside them.

A report of the schema "llmspeed/1" has sentences only; they are read as they are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from math import isfinite
from typing import Any

from pytest_llmspeed.metrics.budgets import BudgetCheck
from pytest_llmspeed.metrics.reasons import Explanation, Reason
from pytest_llmspeed.records.sample_codec import rounded
from pytest_llmspeed.regression.verdicts import Comparison, Verdict

UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""Errors of reading or wording what a later version wrote, or somebody edited."""


def explanation_to_builtins(explanation: Explanation) -> dict[str, Any]:
    """Return the code, the figures and the sentence of an explanation."""
    return {
        "reason": explanation.reason.value,
        "figures": {name: _figure(value) for name, value in explanation.figures.items()},
        "sentence": str(explanation),
    }


def explanation_from_builtins(shown: str | Mapping[str, Any]) -> Explanation:
    """Return the explanation that was shown; of the first schema, the sentence as it is written."""
    if isinstance(shown, str):
        return Reason.AS_WRITTEN(text=shown)
    try:
        figures = {name: _read(name, value) for name, value in shown["figures"].items()}
        explanation = Explanation(Reason(shown["reason"]), figures)
        str(explanation)
    except UNREADABLE:
        return Reason.AS_WRITTEN(text=shown["sentence"])
    return explanation


def _figure(value: Any) -> Any:
    if isinstance(value, Explanation):
        return explanation_to_builtins(value)
    if isinstance(value, Comparison):
        return comparison_to_builtins(value)
    if isinstance(value, BudgetCheck):
        return budget_check_to_builtins(value)
    if isinstance(value, Mapping):
        return {str(name): _figure(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_figure(item) for item in value]
    return significant(value)


def _read(name: str, value: Any) -> Any:
    if isinstance(value, Mapping) and "reason" in value and "figures" in value and name not in _DECIDED:
        return explanation_from_builtins(value)
    if isinstance(value, Mapping) and name in _DECIDED:
        return _DECIDED[name](value)
    if isinstance(value, list):
        return [_read("", item) for item in value]
    return value


def comparison_to_builtins(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison with its reason as code, figures and sentence."""
    shown = {each.name: significant(getattr(comparison, each.name)) for each in fields(Comparison)}
    shown |= _reason_to_builtins(comparison.reason)
    shown["verdict"] = comparison.verdict.value
    shown["ci"] = None if comparison.ci is None else [significant(bound) for bound in comparison.ci]
    shown["more_sessions"] = [[slow, more] for slow, more in comparison.more_sessions]
    shown["prompt_tokens"] = None if comparison.prompt_tokens is None else list(comparison.prompt_tokens)
    return shown


def comparison_from_builtins(shown: Mapping[str, Any]) -> Comparison:
    """Return the comparison that `comparison_to_builtins` showed, in this schema or the first."""
    return Comparison(
        **{
            **_without_sentence(shown),
            "reason": _reason_from_builtins(shown),
            "verdict": Verdict(shown["verdict"]),
            "ci": _pair(shown["ci"]),
            "more_sessions": tuple((slow, more) for slow, more in shown["more_sessions"]),
            "prompt_tokens": _pair(shown.get("prompt_tokens")),
        }
    )


def budget_check_to_builtins(check: BudgetCheck) -> dict[str, Any]:
    """Return a budget check with its reason as code, figures and sentence."""
    shown = {each.name: getattr(check, each.name) for each in fields(BudgetCheck)}
    shown |= _reason_to_builtins(check.reason)
    ci = None if check.ci is None else [rounded(bound) for bound in check.ci]
    return {**shown, "observed": rounded(check.observed), "ci": ci}


def budget_check_from_builtins(shown: Mapping[str, Any]) -> BudgetCheck:
    """Return the check that `budget_check_to_builtins` showed, in this schema or the first."""
    return BudgetCheck(
        **{**_without_sentence(shown), "reason": _reason_from_builtins(shown), "ci": _pair(shown["ci"])}
    )


def _reason_to_builtins(reason: Explanation | None) -> dict[str, Any]:
    if reason is None:
        return {"reason": None, "figures": {}, "sentence": ""}
    return explanation_to_builtins(reason)


def _reason_from_builtins(shown: Mapping[str, Any]) -> Explanation | None:
    if "figures" not in shown:
        return explanation_from_builtins(shown["reason"]) if shown["reason"] else None
    return None if shown["reason"] is None else explanation_from_builtins(shown)


def _without_sentence(shown: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in shown.items() if name not in ("figures", "sentence")}


def _pair(values: Sequence[Any] | None) -> tuple[Any, Any] | None:
    return None if values is None else (values[0], values[1])


def significant(value: Any) -> Any:
    """A float with six significant digits: ratios and p values span many magnitudes; None for NaN and Inf."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.6g}") if isfinite(value) else None


_DECIDED = {"comparison": comparison_from_builtins, "check": budget_check_from_builtins}
"""Figures that are decisions themselves, by name."""
