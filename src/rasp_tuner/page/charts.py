"""Pictures as inline SVG, drawn by hand: they need no package and no network, and follow the page's colours."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

import numpy as np

from rasp_tuner.page.axes import (
    BOTTOM,
    HEIGHT,
    LEFT,
    LEVEL_LABELS,
    RIGHT,
    TOP,
    WIDTH,
    Axis,
    Places,
    across,
    axis_for,
    shortened,
    spread_is_wide,
    svg,
    without_far,
    x_axis,
    y_axis,
)

CHART_STYLE = """
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
svg.chart .stopped { fill: none; stroke: var(--accent); stroke-width: 1.4 }
svg.chart .control { fill: none; stroke: var(--base); stroke-width: 1.6 }
svg.chart .failed { stroke: var(--bad); stroke-width: 1.8 }
svg.chart .trend { stroke: var(--accent); stroke-width: 2; fill: none }
svg.chart .bar { stroke: var(--base); stroke-width: 2 } svg.chart .dot { fill: var(--base) }
svg.chart .bar.good { stroke: var(--good) } svg.chart .dot.good { fill: var(--good) }
svg.chart .bar.bad { stroke: var(--bad) } svg.chart .dot.bad { fill: var(--bad) }
svg.chart .chosen { stroke: var(--good); stroke-width: 1.6 }
svg.chart .usual { stroke: var(--base); stroke-width: 1.4; fill: none }
svg.chart .dots { stroke-width: 5; stroke-linecap: round; fill: none }
svg.chart .dots.suggested { stroke: var(--accent); stroke-opacity: .5 }
svg.chart .dots.control { stroke: var(--base) } svg.chart .dots.failed { stroke: var(--bad) }
svg.chart .far { fill-opacity: 1 }
svg.chart .band { fill: var(--accent); fill-opacity: .16 }
"""


PIXELS_OF_A_LETTER = 6.7  # in the font of pictures, figures and brackets mixed
MEDIAN_OF = 10  # suggestions, of the line through a picture of runs
TENFOLD = 10.0  # values that differ by more have a log axis where a plain one is usual


@dataclass(frozen=True, slots=True)
class Point:
    """One run: where it lies, its mark, and what a pointer over it says."""

    x: float
    y: float | None  # None: it failed
    mark: str  # "suggested", "control", "failed", or "stopped": it would have come to `y` or more
    note: str


def timeline(
    points: Sequence[Point],
    y_label: str,
    level: float | None,
    usual: Sequence[tuple[float, float]] = (),
    best: float | None = None,
    trend: bool = True,
) -> str:
    """Runs over steps and the running median of suggestions; the default as a line at `level`, or a dash a step.

    `best` is a value that lies within the picture, however far from the others it is.
    """
    values = [point.y for point in points if point.y is not None]
    if not values:
        return ""
    values += [value for _, value in usual]
    log = spread_is_wide(values)
    within = [value for value in (level, best) if value is not None]
    y = axis_for(without_far(values, log), HEIGHT - BOTTOM, TOP + 10, log, within)
    x = steps_axis([point.x for point in points], WIDTH)
    body = [y_axis(y, WIDTH), x_axis(x, HEIGHT, "step")]
    if level is not None:
        body.append(across("one", WIDTH, y(level)))
    dashes = [f"M{x(at) - 3:.1f} {y(min(max(v, y.low), y.high)):.1f}h6" for at, v in usual]
    body += [f'<path class="usual" d="{"".join(dashes)}"/>'] if dashes else []
    body += [_mark(point, x(point.x), y, 4.0) for point in points]
    for stretch in _running_median(points) if trend else ():
        line = " ".join(f"{x(at):.1f},{y(min(max(v, y.low), y.high)):.1f}" for at, v in stretch)
        body.append(f'<polyline class="trend" points="{line}"/>')
    return f'<div class="scroll">{svg(WIDTH, HEIGHT, body, f"{y_label} over steps", y_label)}</div>'


def _running_median(points: Sequence[Point]) -> list[list[tuple[float, float]]]:
    """Stretches of the running median of suggestions. It has gaps where it hangs on runs that were stopped."""
    tried = [point for point in points if point.mark in ("suggested", "stopped") and point.y is not None]
    if len(tried) < MEDIAN_OF:
        return []
    least = [float(point.y or 0.0) for point in tried]
    most = [math.inf if point.mark == "stopped" else low for point, low in zip(tried, least, strict=True)]
    found = []
    for i in range(4, len(tried)):
        low, high = (float(np.median(side[max(0, i - MEDIAN_OF + 1) : i + 1])) for side in (least, most))
        found.append((tried[i].x, low, low == high))
    return [[(at, low) for at, low, _ in own] for known, own in groupby(found, lambda one: one[2]) if known]


def steps_axis(steps: Sequence[float], width: float) -> Axis:
    return Axis(min(steps) - 0.5, max(steps) + 0.5, LEFT, width - RIGHT, whole=True)


def running_gain(rows: Sequence[tuple[float, float, float, float]], y_label: str) -> str:
    """A gain over steps with its interval: rows of step, gain, low and high. Early intervals may leave the picture."""
    x = steps_axis([row[0] for row in rows], WIDTH)
    shown = without_far([value for row in rows[len(rows) // 4 :] for value in row[1:]], False)
    y = axis_for(shown, HEIGHT - BOTTOM, TOP + 10, within=(0.0,))

    def at(value: float) -> str:
        return f"{y(min(max(value, y.low), y.high)):.1f}"

    upper = [f"{x(step):.1f},{at(high)}" for step, _, _, high in rows]
    lower = [f"{x(step):.1f},{at(low)}" for step, _, low, _ in reversed(rows)]
    line = " ".join(f"{x(step):.1f},{at(gain)}" for step, gain, _, _ in rows)
    body = [
        y_axis(y, WIDTH),
        x_axis(x, HEIGHT, "step"),
        f'<polygon class="band" points="{" ".join(upper + lower)}"/>',
        across("one", WIDTH, y(0.0)),
        f'<polyline class="trend" points="{line}"/>',
    ]
    return f'<div class="scroll">{svg(WIDTH, HEIGHT, body, y_label, y_label)}</div>'


def knob_steps(name: str, points: Sequence[Point], places: Places, usual: float | None) -> str:
    """One knob over steps, with a line at the default; where a value is a word, not a number, `y` is None."""
    width, height, lane = 370, 200, 18
    words = any(point.y is None for point in points)
    x = steps_axis([point.x for point in points], width)
    y = places.axis(height - BOTTOM - (lane if words or places.word else 0), TOP + 14)
    floor = height - BOTTOM - 6
    body = [x_axis(x, height, "step")]
    for tick, label in places.ticks(y):
        body.append(across("axis", width, y(tick)))
        body.append(f'<text x="{LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{escape(label)}</text>')
    if places.word:
        label = escape(shortened(places.word, 9))
        body.append(f'<text x="{LEFT - 6}" y="{floor + 4}" text-anchor="end">{label}</text>')
    if usual is not None:
        at = floor if math.isnan(usual) else y(usual)
        body.append(across("one", width, at))
    for mark in ("suggested", "control", "failed"):
        own = [point for point in points if point.mark == mark]
        dots = "".join(f"M{x(p.x):.1f} {floor if p.y is None else y(p.y):.1f}h0" for p in own)
        body += [f'<path class="dots {mark}" d="{dots}"/>'] if dots else []
    return svg(width, height, body, f"{name} over steps", name)


def forest(rows: Sequence[tuple[str, float, float, float, str]], x_label: str, neutral: float = 1.0) -> str:
    """Ratios with their intervals: rows of label, value, low, high and the class of colour ("good", "bad" or "")."""
    drawn = [row for row in rows if all(math.isfinite(x) for x in row[1:4])]
    if not drawn:
        return ""
    left, height = 230, TOP + 30 * len(drawn) + BOTTOM
    values = [v for row in drawn for v in row[1:4]]
    log = neutral > 0.0 and spread_is_wide([*values, neutral], TENFOLD)
    said = [f"{_short(value)} ({_short(low)} to {_short(high)})" for _, value, low, high, _ in drawn]
    right = WIDTH - max(170.0, 15.0 + PIXELS_OF_A_LETTER * max(map(len, said)))
    x = axis_for(values, left, right, log, within=(neutral,))
    body = [x_axis(x, height, x_label)]
    body.append(
        f'<line class="one" x1="{x(neutral):.1f}" x2="{x(neutral):.1f}" y1="{TOP - 8}" y2="{height - BOTTOM}"/>'
    )
    for i, ((label, value, low, high, kind), words) in enumerate(zip(drawn, said, strict=True)):
        y = TOP + 30 * i + 15
        name = f'<text class="name" x="{left - 14}" y="{y + 4}" text-anchor="end">{escape(shortened(label, 30))}'
        body.append(f"{name}<title>{escape(label)}</title></text>")
        body.append(f'<line class="bar {kind}" x1="{x(low):.1f}" x2="{x(high):.1f}" y1="{y}" y2="{y}"/>')
        body.append(f'<circle class="dot {kind}" cx="{x(value):.1f}" cy="{y}" r="5"/>')
        body.append(f'<text x="{right + 15:.0f}" y="{y + 4}">{words}</text>')
    return f'<div class="scroll">{svg(WIDTH, height, body, x_label)}</div>'


def knob_panel(
    name: str,
    points: Sequence[Point],
    places: Places,
    usual: Sequence[float],
    chosen: Sequence[float],
    best: float | None = None,
) -> str:
    """One knob: each run at its value, with lines at the default and at what is recommended."""
    width, height = 370, 220
    values = [point.y for point in points if point.y is not None]
    if not values:
        return ""
    log = spread_is_wide(values)
    y = axis_for(without_far(values, log), height - BOTTOM, TOP + 24, log, (1.0,) if best is None else (1.0, best))
    body = [y_axis(y, width)]
    x = places.axis(LEFT, width - RIGHT)
    for tick, label in places.ticks(x):
        at, floor = x(tick), height - BOTTOM + 16
        place = f'transform="translate({at + 6:.1f} {floor - 4}) rotate(-24)" text-anchor="end"'
        if len(places.choices) <= LEVEL_LABELS:
            place = f'x="{at:.1f}" y="{floor}" text-anchor="middle"'
        body.append(f"<text {place}>{escape(label)}</text>")
    body.append(across("axis", width, height - BOTTOM))
    for value, kind in [*((value, "one") for value in usual), *((value, "chosen") for value in dict.fromkeys(chosen))]:
        at = x(value)
        body.append(f'<line class="{kind}" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP + 8}" y2="{height - BOTTOM}"/>')
    body += [_mark(point, x(point.x), y, 3.2) for point in points]
    return svg(width, height, body, f"runs by {name}", name)


def _short(value: float) -> str:
    return f"{value:.3f}" if 0.01 <= abs(value) < 100.0 else f"{value:.3g}"


def _mark(point: Point, x: float, y: Axis, size: float) -> str:
    note = f"<title>{escape(point.note)}</title>"
    if point.y is None:
        arm = 2 * size
        cross = f"M{x - size:.1f} {y.end - size:.1f}l{arm:.1f} {arm:.1f}m0 {-arm:.1f}l{-arm:.1f} {arm:.1f}"
        return f'<path class="failed" d="{cross}">{note}</path>'
    if y.low <= point.y <= y.high:
        if point.mark == "stopped":  # an arrow up from where it was ended
            head = f"m{-size:.1f} {size:.1f}l{size:.1f} {-size:.1f}l{size:.1f} {size:.1f}"
            arrow = f"M{x:.1f} {y(point.y):.1f}v{-3 * size:.1f}{head}"
            return f'<path class="stopped" d="{arrow}">{note}</path>'
        return f'<circle class="{point.mark}" cx="{x:.1f}" cy="{y(point.y):.1f}" r="{size}">{note}</circle>'
    edge, side = (y.low, -1.0) if point.y < y.low else (y.high, 1.0)  # beyond the picture: an arrow towards it
    tip = y(edge) + (size if y.start > y.end else -size) * -side * 1.4
    arrow = f"M{x - size:.1f} {y(edge):.1f}h{2 * size:.1f}L{x:.1f} {tip:.1f}z"
    return f'<path class="{point.mark} far" d="{arrow}">{note}</path>'
