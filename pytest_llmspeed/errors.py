"""Every error that a user can meet, drawn once.

    LLMSpeedError
    ├── SettingsError      a mark, an option or an ini value that cannot be used
    ├── EngineError        an engine that cannot start, or does not run what was asked
    ├── DeviceBusyError    a device that another measurement holds too long
    ├── GenerationError    one request that failed
    ├── TooFewSamplesError      a quantile asked of fewer samples than it needs
    └── StoreError         a baseline store that cannot be read or written

Foreign errors become one of these once, at the boundary, `from` the original.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_llmspeed.metrics.sample import Sample


class LLMSpeedError(Exception):
    """Base of all errors of pytest-llmspeed."""


class SettingsError(LLMSpeedError):
    """A mark, an option or an ini value that cannot be used; the message names it and the fix."""


class EngineError(LLMSpeedError):
    """An engine that cannot start, or that does not run what was asked."""


class DeviceBusyError(LLMSpeedError):
    """A device that cannot be had: the message names who holds it, for how long, and the fix."""


class GenerationError(LLMSpeedError):
    """A request that failed.

    `sample` is what was recorded of it; its latencies are None.
    """

    def __init__(self, message: str, sample: Sample | None = None) -> None:
        super().__init__(message)
        self.sample = sample


class TooFewSamplesError(LLMSpeedError):
    """A quantile asked of `n` samples that needs at least `needed`."""

    def __init__(self, quantile: float, n: int, needed: int) -> None:
        super().__init__(f"p{quantile * 100:g} needs at least {needed} samples, there are {n}")
        self.quantile = quantile
        self.n = n
        self.needed = needed


class StoreError(LLMSpeedError):
    """A baseline store that cannot be read or written."""


BUGS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    RuntimeError,
    TypeError,
    ValueError,
)


def hides_our_frames(excinfo: Any) -> bool:
    """Return True unless an exception may be a bug, whose place in our code is worth seeing.

    Modules that a user's call passes through have this as `__tracebackhide__`, which pytest looks up:
    a failed request is shown at the user's line, and `-l` shows no prompts and keys of our frames.
    """
    return excinfo is None or not isinstance(excinfo.value, BUGS)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `known` as a list for a message, led by the nearest match to `word` if there is one."""
    names = sorted(known)
    near = get_close_matches(word, names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}known: {', '.join(names)}"
