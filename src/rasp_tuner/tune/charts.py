"""Pictures as inline SVG, drawn by hand: they need no package and no network, and follow the page's colours."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

WIDTH, HEIGHT = 760, 300
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 14, 40
LEVEL_LABELS, MOST_LABELS = 4, 16  # choices that are named side by side; at a slant

STYLE = """
:root { --back: #fff; --raised: #f6f8fa; --ink: #16202b; --soft: #566270; --line: #dfe5ea; --accent: #0b66b0;
  --base: #7b8794; --good: #0a7355; --bad: #b3261e; color-scheme: light dark }
@media (prefers-color-scheme: dark) {
  :root { --back: #11161d; --raised: #181f28; --ink: #e7edf3; --soft: #a0adba; --line: #2b3540; --accent: #6cb4f0;
    --base: #8995a2; --good: #4fcfa3; --bad: #ff8a80 } }
svg.chart { display: block; width: 100%; max-width: none; height: auto; font: 12px system-ui, sans-serif }
.scroll { overflow-x: auto } .scroll svg.chart { min-width: 36rem }
svg.chart text { fill: var(--soft) } svg.chart .name { fill: var(--ink) }
svg.chart .axis { stroke: var(--line) } svg.chart .one { stroke: var(--base); stroke-dasharray: 4 3 }
svg.chart .suggested { fill: var(--accent); fill-opacity: .55 }
svg.chart .control { fill: none; stroke: var(--base); stroke-width: 1.6 }
svg.chart .failed { stroke: var(--bad); stroke-width: 1.8 }
svg.chart .trend { stroke: var(--accent); stroke-width: 2; fill: none }
svg.chart .bar { stroke: var(--base); stroke-width: 2 } svg.chart .dot { fill: var(--base) }
svg.chart .bar.good { stroke: var(--good) } svg.chart .dot.good { fill: var(--good) }
svg.chart .bar.bad { stroke: var(--bad) } svg.chart .dot.bad { fill: var(--bad) }
svg.chart .chosen { stroke: var(--good); stroke-width: 1.6 }
"""


@dataclass(frozen=True, slots=True)
class Point:
    """One run: where it lies, its mark ("suggested", "control" or "failed"), and what a pointer over it says."""

    x: float
    y: float | None  # None: it failed
    mark: str
    note: str


@dataclass(frozen=True)
class Axis:
    """Values -> pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        place = self._warp(value) - self._warp(self.low)
        return self.start + (self.end - self.start) * place / (self._warp(self.high) - self._warp(self.low))

    def ticks(self, count: int = 5) -> list[float]:
        """Round values on the axis."""
        if self.log and self.high / self.low > 4.0:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            steps = (1,) if self.high / self.low > 1000.0 else (1, 2, 5)
            found = [step * 10.0**power for power in powers for step in steps]
            inside = [tick for tick in found if self.low <= tick <= self.high]
            if len(inside) >= 2:
                return inside
        rough = (self.high - self.low) / count
        size = 10.0 ** math.floor(math.log10(rough))
        step = next(size * m for m in (1, 2, 5, 10) if size * m >= rough)
        first = math.ceil(self.low / step - 1e-9)
        return [k * step for k in range(first, math.floor(self.high / step + 1e-9) + 1)]

    def _warp(self, value: float) -> float:
        return math.log(value) if self.log else value


def axis_for(
    values: Sequence[float], start: float, end: float, log: bool = False, within: Sequence[float] = ()
) -> Axis:
    """An axis with a little room around the values and `within`."""
    low, high = min([*values, *within]), max([*values, *within])
    if log:
        low, high = low / 1.04, high * 1.04
    else:
        room = 0.05 * (high - low) or abs(high) or 1.0
        low, high = low - room, high + room
    return Axis(low, high, start, end, log)


def timeline(points: Sequence[Point], y_label: str, level: float | None) -> str:
    """Runs over steps, with a line at `level` (the default) and the running median of suggestions."""
    values = [point.y for point in points if point.y is not None]
    if not values:
        return ""
    log = _spread_is_wide(values)
    y = axis_for(_without_far(values, log), HEIGHT - BOTTOM, TOP + 10, log, () if level is None else (level,))
    x = Axis(-0.5, max(point.x for point in points) + 0.5, LEFT, WIDTH - RIGHT)
    body = [_y_axis(y, WIDTH), _x_axis(x, HEIGHT, "step")]
    if level is not None:
        body.append(f'<line class="one" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(level):.1f}" y2="{y(level):.1f}"/>')
    body += [_mark(point, x(point.x), y, 4.0) for point in points]
    suggested = [(point.x, point.y) for point in points if point.mark == "suggested" and point.y is not None]
    if len(suggested) >= 10:
        smooth = [
            (at, float(np.median([v for _, v in suggested[max(0, i - 9) : i + 1]])))
            for i, (at, _) in enumerate(suggested)
        ]
        line = " ".join(f"{x(at):.1f},{y(min(max(v, y.low), y.high)):.1f}" for at, v in smooth[4:])
        body.append(f'<polyline class="trend" points="{line}"/>')
    return f'<div class="scroll">{_svg(WIDTH, HEIGHT, body, f"{y_label} over steps", y_label)}</div>'


def forest(rows: Sequence[tuple[str, float, float, float, str]], x_label: str, neutral: float = 1.0) -> str:
    """Ratios with their intervals: rows of label, value, low, high and the class of colour ("good", "bad" or "")."""
    drawn = [row for row in rows if all(math.isfinite(x) for x in row[1:4])]
    if not drawn:
        return ""
    left, height = 230, TOP + 30 * len(drawn) + BOTTOM
    x = axis_for([v for row in drawn for v in row[1:4]], left, WIDTH - 170, within=(neutral,))
    body = [_x_axis(x, height, x_label)]
    body.append(
        f'<line class="one" x1="{x(neutral):.1f}" x2="{x(neutral):.1f}" y1="{TOP - 8}" y2="{height - BOTTOM}"/>'
    )
    for i, (label, value, low, high, kind) in enumerate(drawn):
        y = TOP + 30 * i + 15
        name = f'<text class="name" x="{left - 14}" y="{y + 4}" text-anchor="end">{escape(shortened(label, 30))}'
        body.append(f"{name}<title>{escape(label)}</title></text>")
        body.append(f'<line class="bar {kind}" x1="{x(low):.1f}" x2="{x(high):.1f}" y1="{y}" y2="{y}"/>')
        body.append(f'<circle class="dot {kind}" cx="{x(value):.1f}" cy="{y}" r="5"/>')
        body.append(f'<text x="{WIDTH - 155}" y="{y + 4}">{_short(value)} ({_short(low)} to {_short(high)})</text>')
    return f'<div class="scroll">{_svg(WIDTH, height, body, x_label)}</div>'


def knob_panel(
    name: str, points: Sequence[Point], places: "Places", usual: Sequence[float], chosen: Sequence[float]
) -> str:
    """One knob: each run at its value, with lines at the default and at what is recommended."""
    width, height = 370, 220
    values = [point.y for point in points if point.y is not None]
    if not values:
        return ""
    log = _spread_is_wide(values)
    y = axis_for(_without_far(values, log), height - BOTTOM, TOP + 24, log, (1.0,))
    body = [_y_axis(y, width)]
    x = places.axis(LEFT, width - RIGHT)
    for tick, label in places.ticks(x):
        at, floor = x(tick), height - BOTTOM + 16
        place = f'transform="translate({at + 6:.1f} {floor - 4}) rotate(-24)" text-anchor="end"'
        if len(places.choices) <= LEVEL_LABELS:
            place = f'x="{at:.1f}" y="{floor}" text-anchor="middle"'
        body.append(f"<text {place}>{escape(label)}</text>")
    body.append(f'<line class="axis" x1="{LEFT}" x2="{width - RIGHT}" y1="{height - BOTTOM}" y2="{height - BOTTOM}"/>')
    for value, kind in [*((value, "one") for value in usual), *((value, "chosen") for value in dict.fromkeys(chosen))]:
        at = x(value)
        body.append(f'<line class="{kind}" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP + 8}" y2="{height - BOTTOM}"/>')
    body += [_mark(point, x(point.x), y, 3.2) for point in points]
    return _svg(width, height, body, f"runs by {name}", name)


@dataclass(frozen=True)
class Places:
    """Where a knob's values lie on an axis: numbers at themselves, choices side by side."""

    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 1.0
    log: bool = False

    def axis(self, start: float, end: float) -> Axis:
        if self.choices:
            return Axis(-0.6, len(self.choices) - 0.4, start, end)
        return axis_for([self.low, self.high], start, end, self.log)

    def ticks(self, axis: Axis) -> list[tuple[float, str]]:
        if self.choices:
            every = math.ceil(len(self.choices) / MOST_LABELS)
            return [(float(i), shortened(c, 9)) for i, c in enumerate(self.choices) if i % every == 0]
        return [(tick, tick_words(tick)) for tick in axis.ticks(4)]


def shortened(text: str, most: int) -> str:
    """A text of at most so many characters, without its middle: names of files differ at their ends.

    >>> shortened("a-very-long-name-7.txt", 12)
    'a-ver…-7.txt'
    """
    if len(text) <= most:
        return text
    end = most // 2
    return f"{text[: most - end - 1]}…{text[-end:]}"


def _short(value: float) -> str:
    return f"{value:.3f}" if 0.01 <= abs(value) < 100.0 else f"{value:.3g}"


def tick_words(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) and abs(value) < 1e7 else f"{value:.4g}"


def _spread_is_wide(values: Sequence[float]) -> bool:
    return min(values) > 0.0 and max(values) / min(values) > 4.0


def _without_far(values: Sequence[float], log: bool) -> list[float]:
    """Without the few that would squeeze all others into a corner; those are drawn at the edge."""
    ordered = np.sort(np.log(values) if log else np.array(values))
    q1, q3 = np.quantile(ordered, [0.1, 0.9])
    width = max(q3 - q1, 1e-12 + 0.02 * abs(q3))
    kept = ordered[(ordered >= q1 - 1.5 * width) & (ordered <= q3 + 1.5 * width)]
    return [float(v) for v in (np.exp(kept) if log else kept)]


def _mark(point: Point, x: float, y: Axis, size: float) -> str:
    note = f"<title>{escape(point.note)}</title>"
    if point.y is None:
        arm = 2 * size
        cross = f"M{x - size:.1f} {y.end - size:.1f}l{arm:.1f} {arm:.1f}m0 {-arm:.1f}l{-arm:.1f} {arm:.1f}"
        return f'<path class="failed" d="{cross}">{note}</path>'
    at = y(min(max(point.y, y.low), y.high))
    return f'<circle class="{point.mark}" cx="{x:.1f}" cy="{at:.1f}" r="{size}">{note}</circle>'


def _y_axis(y: Axis, width: float) -> str:
    def line(tick: float) -> str:
        return (
            f'<line class="axis" x1="{LEFT}" x2="{width - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>'
            f'<text x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick_words(tick)}</text>'
        )

    return _each(y.ticks(), line)


def _x_axis(x: Axis, height: float, label: str) -> str:
    floor = height - BOTTOM

    def tick_at(tick: float) -> str:
        return f'<text x="{x(tick):.1f}" y="{floor + 16}" text-anchor="middle">{tick_words(tick)}</text>'

    middle = 0.5 * (x.start + x.end)
    return (
        f'<line class="axis" x1="{x.start}" x2="{x.end}" y1="{floor}" y2="{floor}"/>'
        + _each(x.ticks(), tick_at)
        + f'<text x="{middle:.0f}" y="{height - 6}" text-anchor="middle">{escape(label)}</text>'
    )


def _each(ticks: Sequence[float], draw: Callable[[float], str]) -> str:
    return "".join(draw(tick) for tick in ticks)


def _svg(width: float, height: float, body: Sequence[str], title: str, y_label: str = "") -> str:
    side = f'<text class="name" x="{LEFT - 50}" y="{TOP - 2}">{escape(y_label)}</text>' if y_label else ""
    return (
        f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">'
        f"{side}{''.join(body)}</svg>"
    )
