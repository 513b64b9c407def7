"""A server's usage object → Usage: the counts in one convention, whichever the server's own. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from pytest_llmspeed.metrics.exchange import Usage

MOST_TOKENS = 10**9
"""A count above this is a mistake of the server's, not an answer."""


class CountNames(NamedTuple):
    """The names that an API gives its counts."""

    prompt: str
    output: str


COMPLETIONS = CountNames("prompt_tokens", "completion_tokens")
RESPONSES = CountNames("input_tokens", "output_tokens")


def usage_of(given: Any, names: CountNames = COMPLETIONS) -> Usage | None:
    """Return the counts of a usage object, None if it holds none.

    `output_tokens` includes the reasoning tokens. OpenAI counts them within its output tokens; xAI and
    Gemini count them in addition, and `total_tokens` tells which. A count that is not a number of tokens
    (negative, a fraction, a word) is None.
    """
    if not isinstance(given, dict):
        return None
    prompt_details, output_details = _details(given, names.prompt), _details(given, names.output)
    prompt = token_count(given.get(names.prompt))
    cached = token_count(prompt_details.get("cached_tokens"))
    output, reasoning = _with_reasoning(
        prompt,
        cached,
        output=token_count(given.get(names.output)),
        reasoning=token_count(output_details.get("reasoning_tokens", given.get("reasoning_tokens"))),
        total=token_count(given.get("total_tokens")),
    )
    usage = Usage(prompt, output, cached, reasoning)
    return None if usage == Usage() else usage


def miscounts(given: Any, names: CountNames = COMPLETIONS) -> bool:
    """Return True if a usage object has an output count that is not a number of tokens."""
    if not isinstance(given, dict) or (count := given.get(names.output)) is None:
        return False
    return token_count(count) is None


def merged(earlier: Usage | None, later: Usage | None) -> Usage | None:
    """Return the later counts, and the earlier ones where the later object has none.

    A count of the output only grows, so a zero after it says nothing.
    """
    if earlier is None or later is None:
        return later or earlier
    return replace(
        later,
        prompt_tokens=earlier.prompt_tokens if later.prompt_tokens is None else later.prompt_tokens,
        output_tokens=later.output_tokens or earlier.output_tokens,
        cached_tokens=earlier.cached_tokens if later.cached_tokens is None else later.cached_tokens,
        reasoning_tokens=later.reasoning_tokens or earlier.reasoning_tokens,
    )


def token_count(given: Any) -> int | None:
    """Return a count as a server may write it (12, 12.0, "12"), None if it is not a count."""
    if isinstance(given, str) and given.isascii() and given.isdigit() and len(given) < 12:
        return int(given)
    if isinstance(given, float) and given.is_integer():
        given = int(given)
    return given if type(given) is int and 0 <= given <= MOST_TOKENS else None


def _details(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    details = given.get(f"{name}_details")
    return details if isinstance(details, dict) else {}


def _with_reasoning(
    prompt: int | None, cached: int | None, *, output: int | None, reasoning: int | None, total: int | None
) -> tuple[int | None, int | None]:
    """The output tokens with the reasoning within them, and the reasoning."""
    if output is None:
        return None, reasoning
    more = None if total is None or prompt is None else total - prompt - output
    if not reasoning:
        # Gemini's total holds thoughts that no other count names; a prompt may leave out its cached part
        unnamed = more if more is not None and more > 0 and more != cached else 0
        return output + unnamed, unnamed or reasoning
    is_beside = reasoning > output or (more is not None and more >= reasoning)
    return output + (reasoning if is_beside else 0), reasoning
