"""The one picture of a report and of the README: regret over time as SVG, legible on light and on dark ground."""

from html import escape

import numpy as np

from rasp_lab.bench.analysis.overview import Overview, plain_name
from rasp_tuner.base.numerics import Array

WIDTH, HEIGHT = 600, 350  # units of the viewBox; the picture scales to its place
LEFT, RIGHT, TOP, BOTTOM = 34, 168, 58, 42  # margins; labels of the lines stand on the right
TITLE = "Cumulative regret relative to no tuning"
LABEL_GAP = 18  # least distance of two labels
MAX_HEIGHT = 3.2  # times the regret of no tuning: what lies above is cut off
MAX_LETTERS = 14  # of a name beside its line
MAX_POINTS = 200  # of a line
INK = "#787e86"  # contrast above 4 on white and on black
COLOURS = {
    "rasp": "#e5484d",
    "rasp-paper": "#d9822b",
    "cma-es": "#2f9e5f",
    "gp-ucb": "#3b82d6",
    "random": "#a177c9",
    "static": INK,
}
OTHERS = ("#0d9aa8", "#b5830f", "#c2599b", "#6f8f2a")


def regret_svg(view: Overview) -> str:
    """Cumulative regret relative to no tuning, one labelled line an agent; text without any outer source."""
    ceiling = min(1.08 * max(max(view.ends.values()), 1.0), MAX_HEIGHT)
    seeds = " to ".join(str(n) for n in dict.fromkeys(view.seeds))
    parts = [
        f'<text x="2" y="18" font-size="17" font-weight="600">{TITLE}</text>',
        f'<text x="2" y="39">{view.systems}, {view.horizon:,} steps, {seeds} seeds. Lower is better.</text>',
        *_axes(ceiling, view.horizon),
        f'<clipPath id="plot"><path d="M0 {TOP - 2}H{WIDTH}V{HEIGHT}H0"/></clipPath>',
    ]
    others = iter(OTHERS * len(view.curves))
    colours = {agent: COLOURS.get(agent) or next(others) for agent in view.curves}
    heights = _apart([min(max(_y(end, ceiling), TOP), HEIGHT - BOTTOM) for end in view.ends.values()])
    for (agent, curve), height in reversed(list(zip(view.curves.items(), heights, strict=True))):  # the best on top
        width, weight = (3.5, 700) if agent == "rasp" else (2, 400)
        dashes = ' stroke-dasharray="6 4"' if agent == "static" else ""
        colour, label = colours[agent], f"{escape(_fitting(plain_name(agent)))} {view.ends[agent]:.2f}"
        parts += [
            f'<path d="{_path(curve, ceiling)}" clip-path="url(#plot)" fill="none" stroke="{colour}"'
            f' stroke-width="{width}"{dashes}/>',
            f'<text x="{WIDTH - RIGHT + 8}" y="{height + 5:.1f}" fill="{colour}" font-weight="{weight}">{label}</text>',
        ]
    said = ", ".join(f"{plain_name(agent)} {end:.2f}" for agent, end in view.ends.items())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" fill="{INK}"'
        ' font-family="system-ui, -apple-system, Segoe UI, sans-serif" font-size="15">'
        f"<title>{TITLE}, at the end: {escape(said)}</title>{''.join(parts)}</svg>\n"
    )


def _fitting(name: str) -> str:
    return name if len(name) <= MAX_LETTERS else f"{name[: MAX_LETTERS - 1]}…"


def _axes(ceiling: float, horizon: int) -> list[str]:
    lines = []
    step = 0.5 if ceiling < 1.6 else 1.0
    for value in np.arange(0.0, ceiling, step):
        y = _y(float(value), ceiling)
        lines += [
            f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{INK}" stroke-opacity="{0.25 if value else 0.8}"/>',
            f'<text x="{LEFT - 8}" y="{y + 5:.1f}" text-anchor="end">{value:g}</text>',
        ]
    for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        x = LEFT + share * (WIDTH - LEFT - RIGHT)
        said = {0.0: "step 1", 0.5: f"{horizon // 2:,}", 1.0: f"{horizon:,}"}[share]
        lines.append(f'<text x="{x:.0f}" y="{HEIGHT - BOTTOM + 22}" text-anchor="{anchor}">{said}</text>')
    return lines


def _path(curve: Array, ceiling: float) -> str:
    """The line of a curve [T], from step 1 to T, thinned."""
    steps = np.unique(np.linspace(0, len(curve) - 1, MAX_POINTS).round().astype(int))
    x = LEFT + (WIDTH - LEFT - RIGHT) * steps / max(len(curve) - 1, 1)
    points = [f"{a:.1f} {_y(min(float(b), 2 * ceiling), ceiling):.1f}" for a, b in zip(x, curve[steps], strict=True)]
    return "M" + "L".join(points)


def _y(value: float, ceiling: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / ceiling


def _apart(wanted: list[float]) -> list[float]:
    """Heights of labels near those wanted, the lowest label first, none closer than LABEL_GAP to another."""
    placed: list[float] = []
    for y in wanted:  # from the bottom up
        placed.append(min(y, placed[-1] - LABEL_GAP) if placed else y)
    highest = float(TOP)
    for i in reversed(range(len(placed))):  # back down, if they left the picture
        placed[i] = max(placed[i], highest)
        highest = placed[i] + LABEL_GAP
    return placed
