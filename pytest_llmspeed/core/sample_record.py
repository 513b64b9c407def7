"""Sample ⇄ builtins: rows in reports, columns in the store. Times to a tenth of a microsecond."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_llmspeed.core.columns import to_columns
from pytest_llmspeed.core.metrics import Sample

DIGITS = 4
"""Decimals kept of a time in ms."""
STORED_FIELDS = tuple(name for name in Sample.__dataclass_fields__ if name not in ("text", "itl_ms", "flags"))
ROUNDED_FIELDS = (
    "ttft_ms",
    "ttfo_ms",
    "tpot_ms",
    "e2e_ms",
    "throughput_tps",
    "started_ms",
    "foreign_cpu",
    "queue_ms",
)


def samples_to_stored(samples: Sequence[Sample]) -> dict[str, Any]:
    """Return samples as the store keeps them: columns, without answers, of the gaps the median."""
    shown = {name: [getattr(sample, name) for sample in samples] for name in STORED_FIELDS}
    shown |= {name: list(map(rounded, shown[name])) for name in ROUNDED_FIELDS}
    shown["itl_p50_ms"] = [rounded(sample.value("itl_ms")) for sample in samples]
    shown["flags"] = [sorted(sample.flags) for sample in samples]
    return to_columns(shown, len(samples))


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
