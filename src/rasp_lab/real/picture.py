"""One picture for each system: total cost so far as times the default's, a line for each agent, as SVG."""

from functools import partial
from html import escape

import numpy as np

from rasp_lab.real.analysis import Runs, agents_of, running
from rasp_lab.real.harness import BASE

NAMES = {
    "rasp-budget": "RASP-Tuner",
    "rasp": "RASP-Tuner, budget off",
    "tpe": "TPE",
    "tpe-each": "TPE for each kind of work",
    "cma-es": "CMA-ES",
    "random": "random search",
    "best-of-grid": "best of a grid",
    "autotune": "Triton's autotuner",
    "best-fixed": "best fixed tile",
    "static-again": "the default again",
}
COLOURS = {
    "rasp-budget": "#e5484d",
    "rasp": "#d9822b",
    "tpe": "#3b82d6",
    "tpe-each": "#0d9aa8",
    "cma-es": "#2f9e5f",
    "random": "#a177c9",
    "best-of-grid": "#6e56cf",
    "autotune": "#b5306f",
    "best-fixed": "#8a6d3b",
    "static-again": "#787e86",
}
INK = "#787e86"  # legible on white and on black
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 620, 300, 40, 220, 14, 34
TICKS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.5, 2.0)  # ratios, on a log scale
SETTLED = 10  # steps after which a line must fit in; the first few ratios may be anything
POINTS = 75  # of a line


def picture(runs: Runs, title: str) -> str:
    """The picture; lines are named on the right, with their value at the end."""
    curves = {agent: running(runs, agent) for agent in agents_of(runs) if agent != BASE}
    curves = dict(sorted(curves.items(), key=lambda item: -float(item[1][-1])))
    steps = len(next(iter(curves.values())))
    shown = np.unique(np.linspace(0, steps - 1, POINTS).astype(int))
    ticks = _ticks([float(value) for curve in curves.values() for value in curve[min(SETTLED, steps - 1) :]])
    y = partial(_y, low=ticks[0], high=ticks[-1])
    parts = []
    for value in ticks:
        strength = 0.9 if value == 1.0 else 0.25
        parts += [
            f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - RIGHT}" stroke="{INK}" stroke-opacity="{strength}"/>',
            f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>',
        ]
    heights = apart([y(float(curve[-1])) for curve in curves.values()], 17.0, HEIGHT - BOTTOM)
    for (agent, curve), height in zip(curves.items(), heights, strict=True):
        points = " ".join(f"{_x(int(i), steps):.1f},{y(float(curve[i])):.1f}" for i in shown)
        style = f'stroke="{COLOURS[agent]}" stroke-width="{3 if agent == "rasp-budget" else 1.5}"'
        parts += [
            f'<polyline points="{points}" fill="none" {style}/>',
            f'<text x="{WIDTH - RIGHT + 8}" y="{height + 4:.1f}" fill="{COLOURS[agent]}">'
            f"{escape(NAMES[agent])} {curve[-1]:.2f}</text>",
        ]
    parts += [
        f'<text x="{LEFT}" y="{HEIGHT - 10}">step 1</text>',
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 10}" text-anchor="end">{steps}</text>',
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" fill="{INK}"'
        ' font-family="system-ui, -apple-system, Segoe UI, sans-serif" font-size="13">'
        f"<title>{escape(title)}: total cost so far as times the default's</title>{''.join(parts)}</svg>\n"
    )


def apart(wanted: list[float], gap: float, lowest: float) -> list[float]:
    """Heights near the wanted ones, which ascend, at least `gap` apart and none below `lowest`.

    >>> apart([10.0, 11.0, 95.0, 99.0], 10.0, 100.0)
    [10.0, 20.0, 90.0, 100.0]
    """
    placed: list[float] = []
    for y in wanted:
        placed.append(max(y, placed[-1] + gap) if placed else y)
    for i in reversed(range(len(placed))):  # push up what fell off the bottom
        placed[i] = min(placed[i], lowest)
        lowest = placed[i] - gap
    return placed


def _ticks(values: list[float]) -> list[float]:
    """Those between which the values lie, the default's 1 among them."""
    low = max([tick for tick in TICKS if tick <= min(values)], default=TICKS[0])
    high = min([tick for tick in TICKS if tick >= max(*values, 1.1)], default=TICKS[-1])
    return [tick for tick in TICKS if low <= tick <= high]


def _x(step: int, steps: int) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * step / max(1, steps - 1)


def _y(ratio: float, low: float, high: float) -> float:
    share = np.log(min(max(ratio, low), high) / low) / np.log(high / low)
    return float(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM))
