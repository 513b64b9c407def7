"""How numbers are shown: changes, sizes, counts, and values with their units."""

from __future__ import annotations


def percent(ratio: float) -> str:
    """A ratio as a signed change: 1.28 → "+28%"."""
    change = (ratio - 1) * 100
    return f"{change:+.0f}%" if abs(change) >= 10 else f"{change:+.1f}%"


def size(ratio: float) -> str:
    """A slowdown's factor as its size: 1.28 → "28%"."""
    return f"{(ratio - 1) * 100:.0f}%"


def counted(number: int, thing: str) -> str:
    """A number with its thing: "1 request", "2 requests"."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def quantity(value: float, metric: str) -> str:
    """A value of a metric with its unit, to three figures: 312.4 of `ttft_ms` → "312 ms"."""
    figures = f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"
    units = (("_ms", " ms"), ("_tps", " tokens/s"), ("_mib", " MiB"), ("load_s", " s"))
    for unit, shown in (*units, ("_per_s", " requests/s")):
        if metric.endswith(unit):
            return figures + shown
    return figures
