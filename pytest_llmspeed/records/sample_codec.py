"""Sample ⇄ builtins: rows in reports, columns in the store. Times to a tenth of a microsecond."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from pytest_llmspeed.metrics.sample import Sample
from pytest_llmspeed.records.columns import to_columns

DIGITS = 4
"""Decimals kept of a time in ms."""
STORED_FIELDS = tuple(name for name in Sample.__dataclass_fields__ if name not in ("text", "itl_ms", "flags"))


def samples_to_stored(samples: Sequence[Sample]) -> dict[str, Any]:
    """Return samples as the store keeps them: columns, without answers, of the gaps the median."""
    if not samples:
        return to_columns({}, 0)
    fields = zip(*map(attrgetter(*STORED_FIELDS), samples), strict=True)
    shown: dict[str, list[Any]] = dict(zip(STORED_FIELDS, map(list, fields), strict=True))
    shown["itl_p50_ms"] = [sample.value("itl_ms") for sample in samples]
    shown["flags"] = [sorted(sample.flags) for sample in samples]
    stored = to_columns(shown, len(samples))
    stored["same"] = {name: rounded(value) for name, value in stored["same"].items()}
    stored["each"] = {name: list(map(rounded, values)) for name, values in stored["each"].items()}
    return stored


def sample_to_builtins(sample: Sample, *, text: bool) -> dict[str, Any]:
    """Return one sample as a report shows it, with or without its answer."""
    shown: dict[str, Any] = {}
    for name in Sample.__dataclass_fields__:
        value = getattr(sample, name)
        shown[name] = rounded(value)
    shown["itl_ms"] = [rounded(gap) for gap in sample.itl_ms]
    shown["flags"] = sorted(sample.flags)
    if not text:
        del shown["text"]
    return shown


def samples_from_builtins(requests: Iterable[Mapping[str, Any]]) -> Iterable[Sample]:
    """Yield the samples of a report."""
    for shown in requests:
        fields = {"text": "", **shown}
        fields["itl_ms"], fields["flags"] = tuple(shown["itl_ms"]), frozenset(shown["flags"])
        yield Sample(**fields)


def rounded(value: Any) -> Any:
    """A float cut to `DIGITS` decimals, as a builtin also where it came from NumPy."""
    return round(float(value), DIGITS) if isinstance(value, float) else value
