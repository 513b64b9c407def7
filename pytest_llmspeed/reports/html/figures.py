"""Figures of the HTML report, drawn as SVG: numbers in, markup out.

Points of one kind share a path, so that a figure of hundreds of points stays small. Colours are classes
of the style sheet; each figure has a label that says in words what it shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite

from markupsafe import Markup

WIDTH, LEFT, RIGHT, TOP = 360, 56, 8, 8
LEAST_SPAN = 0.25
"""An axis spans at least this share of its largest value, so that noise does not look like news."""
Label = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to places on an axis."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def over(cls, values: Iterable[float], start: float, end: float, *, from_zero: bool = False) -> Scale:
        """Return a scale that holds all values, with some room."""
        known = [value for value in values if isfinite(value)] or [0.0, 1.0]
        low, high = (0.0 if from_zero else min(known)), max(known)
        room = max((high - low) * 0.06, (LEAST_SPAN * high - (high - low)) / 2) or 1.0
        return cls(low if from_zero else low - room, high + room, start, end)

    def __call__(self, value: float) -> float:
        """Return the place of a value."""
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)

    @property
    def ticks(self) -> list[float]:
        """Three values along the axis."""
        span = self.high - self.low
        return [self.low + span * share for share in (0.08, 0.5, 0.92)]


@dataclass(frozen=True, slots=True)
class Bar:
    """One request: when it was sent, its wait for the first output, its end, and its tokens, in ms."""

    sent: float
    first: float | None
    end: float
    tokens: Sequence[float] = ()
    failed: bool = False


def strips(
    groups: Sequence[Sequence[float]], marks: Sequence[float], names: Sequence[str], label: Label
) -> Markup:
    """Draw one column of points a session, the last one of now; `marks` are what is compared of each."""
    height, base = 150, 128
    y = Scale.over([value for group in groups for value in group], base, TOP)
    step = (WIDTH - LEFT - RIGHT) / len(groups)
    parts = [*_y_axis(y, label)]
    for number, (group, mark) in enumerate(zip(groups, marks, strict=True)):
        centre, is_now = LEFT + (number + 0.5) * step, number == len(groups) - 1
        spread = min(step * 0.5, 14) / max(len(group), 1)
        points = (
            f"M{centre + (place - len(group) / 2) * spread:.1f} {y(value)}h0"
            for place, value in enumerate(group)
        )
        parts.append(_path("".join(points), "dots now" if is_now else "dots"))
        half = min(step * 0.4, 12)
        parts.append(
            _path(f"M{centre - half:.1f} {y(mark)}h{2 * half:.1f}", "mark now" if is_now else "mark")
        )
    parts += _x_ends(names, base)
    return _svg(parts, height, f"{len(groups) - 1} stored sessions and now: {names[0]} to {names[-1]}")


def waterfall(bars: Sequence[Bar], label: Label) -> Markup:
    """Draw a bar a request: waiting, then its tokens."""
    row = 11
    height = TOP + row * len(bars) + 20
    x = Scale.over([bar.end for bar in bars], LEFT, WIDTH - RIGHT, from_zero=True)
    parts = []
    for number, bar in enumerate(bars):
        top = TOP + row * number
        first = bar.end if bar.first is None else bar.first
        parts.append(
            _rect(x(bar.sent), top, x(first) - x(bar.sent), row - 4, "failed" if bar.failed else "wait")
        )
        if first < bar.end:
            parts.append(_rect(x(first), top, x(bar.end) - x(first), row - 4, "answer"))
        ticks = "".join(f"M{x(at)} {top}v{row - 4}" for at in bar.tokens)
        parts.append(_path(ticks, "tokens"))
        parts.append(_text(LEFT - 4, top + 7, str(number + 1), "end"))
    shown = ((x.low, "start"), ((x.low + x.high) / 2, "middle"), (x.high, "end"))
    parts += [_text(x(at), height - 6, label(at), anchor) for at, anchor in shown]
    return _svg(parts, height, f"{len(bars)} requests: the wait for the first output, then the tokens")


def line(
    values: Sequence[float],
    names: Sequence[str],
    label: Label,
    *,
    marked: Sequence[float] = (),
    said: str = "",
    from_zero: bool = False,
) -> Markup:
    """Draw a line over steps of equal width; `marked` are places to point out, also between two steps."""
    height, base = 130, 108
    y = Scale.over(values, base, TOP, from_zero=from_zero)
    step = (WIDTH - LEFT - RIGHT - 12) / max(len(values) - 1, 1)
    places = [LEFT + 6 + number * step for number in range(len(values))]
    parts = [*_y_axis(y, label)]
    parts += [_path(f"M{LEFT + 6 + at * step:.1f} {TOP}V{base}", "point-out") for at in marked]
    way = " ".join(f"{at:.1f},{y(value)}" for at, value in zip(places, values, strict=True))
    parts.append(Markup('<polyline class="line" points="{}"/>').format(way))
    dots = "".join(f"M{at:.1f} {y(value)}h0" for at, value in zip(places, values, strict=True))
    parts.append(_path(dots, "dots"))
    parts += _x_ends(names, base)
    return _svg(parts, height, said)


def _y_axis(y: Scale, label: Label) -> Iterator[Markup]:
    for tick in y.ticks:
        yield _path(f"M{LEFT} {y(tick)}H{WIDTH - RIGHT}", "grid")
        yield _text(LEFT - 4, y(tick) + 3, label(tick), "end")


def _x_ends(names: Sequence[str], base: float) -> Iterator[Markup]:
    yield _text(LEFT, base + 15, names[0], "start")
    if len(names) > 1:
        yield _text(WIDTH - RIGHT, base + 15, names[-1], "end")


def _svg(parts: Iterable[Markup], height: float, said: str) -> Markup:
    head = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">').format(WIDTH, round(height), said)
    return head + Markup("").join(parts) + Markup("</svg>")


def _path(d: str, kind: str) -> Markup:
    return Markup('<path class="{}" d="{}"/>').format(kind, d) if d else Markup()


def _rect(x: float, y: float, width: float, height: float, kind: str) -> Markup:
    shape = Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>')
    return shape.format(kind, x, y, round(max(width, 0.5), 1), height)


def _text(x: float, y: float, words: str, anchor: str) -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(x, y, anchor, words)
