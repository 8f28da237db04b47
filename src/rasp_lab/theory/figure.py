"""Measured against bound for every claim, in one figure; the only file of the theory that needs Matplotlib."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rasp_lab.theory.claim import Outcome, ratio

WIDE, TALL = 10, 7  # the most decades an axis spans
COLUMNS = 4
LOOKS = {"paper": ("tab:red", "x"), "paper's use": ("tab:orange", "x"), "mended": ("tab:blue", ".")}


def figure(outcomes: Sequence[Outcome]) -> Figure:
    """A panel a claim, one point an instance: measured against bound, broken above the line; counterexamples ringed."""
    names = list(dict.fromkeys(o.claim.name.split(",")[0] for o in outcomes))
    rows = -(-len(names) // COLUMNS)
    drawn = Figure(figsize=(13, 3.8 * rows), layout="constrained")
    panels = drawn.subplots(rows, COLUMNS, squeeze=False)
    for axes, name in zip(panels.flat, names, strict=False):
        _panel(axes, name, [o for o in outcomes if o.claim.name.split(",")[0] == name])
    for axes in panels.flat[len(names) :]:
        axes.set_axis_off()
    for axes in panels[:, 0]:
        axes.set_ylabel("measured")
    for axes in panels[-1]:
        axes.set_xlabel("bound")
    return drawn


def _panel(axes: Axes, name: str, outcomes: Sequence[Outcome]) -> None:
    trials = [trial for o in outcomes for trial in o.trials if trial.ratio > 0.0]
    left, right = _decades([trial.bound for trial in trials], WIDE)
    low, high = _decades([trial.measured for trial in trials], TALL)
    line = np.geomspace(left, right, 200)
    axes.fill_between(line, np.clip(line, low, high), high, color="tab:red", alpha=0.07, lw=0)
    axes.plot(line, line, color="black", lw=1)
    for o in outcomes:
        colour, marker = LOOKS[o.claim.version]
        version = o.claim.version + o.claim.name.removeprefix(name)
        points = np.array([(max(t.bound, left), max(t.measured, low)) for t in o.trials])
        label = f"{version}: {ratio(o.worst_ratio)}"
        axes.scatter(points[:, 0], points[:, 1], color=colour, marker=marker, s=13, lw=0.8, alpha=0.5, label=label)
        broken = np.array([(t.bound, t.measured) for t in o.counterexamples]).reshape(-1, 2)
        axes.scatter(
            broken[:, 0],
            broken[:, 1],
            facecolors="none",
            edgecolors="black",
            marker="o",
            s=70,
            lw=1.3,
            zorder=3,
            clip_on=False,
        )
    axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(low, high))
    axes.minorticks_off()
    axes.set_title(name, pad=14 + 11 * len(outcomes))
    axes.legend(
        frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(-0.02, 1.0), handletextpad=0.1, labelspacing=0.2
    )
    axes.spines[["top", "right"]].set_visible(False)


def _decades(values: Sequence[float], most: int) -> tuple[float, float]:
    """Powers of ten around the values, not over `most` of them: what is smaller is drawn at the edge."""
    high = np.ceil(np.log10(max(values)) + 1e-9)
    low = np.floor(np.log10(max(min(values), 10.0 ** (high - most))))
    return float(10.0**low), float(10.0**high)
