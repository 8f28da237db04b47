"""The paper's figures, from runs; each function gives a Matplotlib figure."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rasp_lab.bench.agents import AGENTS
from rasp_lab.bench.analysis.metrics import Runs
from rasp_lab.bench.analysis.stats import confidences
from rasp_lab.bench.report.tables import number
from rasp_tuner.base.numerics import Array

# the paper's convention for its four; the rest take what is left
COLOURS = {
    "rasp": "tab:red",
    "rasp-paper": "lightcoral",
    "cma-es": "tab:green",
    "gp-ucb": "tab:blue",
    "random": "gray",
    "static": "black",
}
PANELS = 5  # beside each other
OTHERS = (
    *("tab:orange", "tab:purple", "tab:brown", "tab:pink", "tab:olive", "tab:cyan"),
    *("gold", "teal", "navy", "plum", "slategray", "darkkhaki"),
    *("chocolate", "yellowgreen", "mediumpurple", "crimson", "steelblue"),
)


def colours(agents: Iterable[str]) -> dict[str, str]:
    """A colour for each agent, the same in every figure."""
    rest = cycle(OTHERS)
    known = {agent: COLOURS.get(agent) or next(rest) for agent in AGENTS}
    return {agent: known.get(agent) or next(rest) for agent in sorted(set(agents))}


def trajectories(runs: Sequence[Runs], domains: Sequence[str]) -> Figure:
    """Figures 2, 4 and 5, a row a domain: mean loss and mean cumulative regret over seeds, with 95% intervals."""
    palette = colours(r.agent for r in runs)
    figure = Figure(figsize=(11, 2.4 * len(domains) + 0.8), layout="constrained")
    rows = figure.subplots(len(domains), 2, squeeze=False)
    for (left, right), domain in zip(rows, domains, strict=True):
        here = [r for r in runs if r.domain == domain]
        for r in here:
            _band(left, r["loss"], r.agent, palette[r.agent], log=True)
            _band(right, np.cumsum(r["regret"], axis=1), r.agent, palette[r.agent])
        left.set_title(domain, loc="left", fontsize=10)
        left.set_ylabel("true loss")
        left.set_yscale("symlog", linthresh=1e-3)
        ceiling, cut = _ceiling(runs, domain)
        right.set_title(domain, loc="left", fontsize=10)
        right.set_title(f"beyond this axis: {', '.join(cut)}" if cut else "", loc="right", fontsize=8, color="dimgray")
        right.set(ylabel="cumulative regret", ylim=(0, ceiling))
    for axes in rows[-1]:
        axes.set_xlabel("step")
    lines = {
        line.get_label(): line for _, right in rows for line in right.get_lines()
    }  # not every agent ran everywhere
    figure.legend(lines.values(), lines, loc="outside upper center", ncols=min(6, len(lines)), frameon=False)
    return figure


def bars(values: Mapping[str, Mapping[str, float]], ylabel: str, *, log: bool = False) -> Figure:
    """Grouped bars: domain -> agent -> value; a missing value leaves a gap."""
    domains = list(values)
    agents = sorted({agent for by_agent in values.values() for agent in by_agent})
    palette = colours(agents)
    figure = Figure(figsize=(max(7.0, 0.35 * len(agents) * len(domains) + 2), 3.8), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / max(1, len(agents))
    for i, agent in enumerate(agents):
        heights = [values[domain].get(agent, np.nan) for domain in domains]
        axes.bar(
            np.arange(len(domains)) + (i - (len(agents) - 1) / 2) * width,
            heights,
            width,
            label=agent,
            color=palette[agent],
        )
    axes.set_xticks(np.arange(len(domains)), [name.replace("_", " ", 1) for name in domains], rotation=25, ha="right")
    axes.set(ylabel=ylabel, yscale="log" if log else "linear")
    axes.legend(frameon=False, ncols=min(6, len(agents)), loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def latencies(median: Mapping[str, float]) -> Figure:
    """Figure 3, middle: median milliseconds a step of each agent, on a log scale."""
    order = sorted(median, key=lambda a: median[a])
    palette = colours(order)
    figure = Figure(figsize=(7, 0.32 * len(order) + 1.2), layout="constrained")
    axes = figure.subplots()
    axes.barh(order, [median[a] for a in order], color=[palette[a] for a in order])
    axes.set(xscale="log", xlabel="median milliseconds a step (ask + tell)")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def adaptation(steps: Mapping[str, Mapping[str, float | None]], horizon: int) -> Figure:
    """Figure 3, right, a panel a domain: steps to adapt, domain -> agent -> steps; None is drawn hatched, as never."""
    agents = list(dict.fromkeys(agent for by_agent in steps.values() for agent in by_agent))[::-1]  # the first on top
    palette = colours(agents)
    columns = min(PANELS, len(steps))
    rows = -(-len(steps) // columns)
    figure = Figure(figsize=(2.2 * columns + 1.2, rows * (0.19 * len(agents) + 0.6)), layout="constrained")
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for axes, (domain, by_agent) in zip(panels[: len(steps)], steps.items(), strict=True):
        for place, agent in enumerate(agents):
            taken, colour, start = by_agent.get(agent), palette[agent], 0.0
            if agent not in by_agent:
                said = "not run"
            elif taken is None:
                axes.barh(place, horizon, facecolor="none", edgecolor=colour, hatch="////", lw=0.5, alpha=0.45)
                said = "never"
            else:
                axes.barh(place, taken, color=colour)
                said, start = f"{taken:.0f}", taken if taken < 0.8 * horizon else 0.0  # beside the bar if there is room
            white = {"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85}
            axes.text(start + 0.02 * horizon, place, said, va="center", fontsize=7, bbox=white)
        axes.set_title(" ".join(domain.split("_")[:2]), fontsize=9)
        axes.set(xlim=(0, horizon), yticks=range(len(agents)), yticklabels=agents)
        axes.tick_params(labelsize=8, labelbottom=True)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[len(steps) :]:
        axes.set_visible(False)
    figure.supxlabel(
        "steps until the loss stays near the best, median over seeds; hatched: half of them or more never", fontsize=9
    )
    return figure


def reliability(runs: Sequence[Runs]) -> Figure:
    """How often the truth falls inside an agent's central interval, against how often it should."""
    levels = np.linspace(0.05, 0.95, 19)
    figure = Figure(figsize=(4.5, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="black", lw=1, ls="--", label="calibrated")
    palette = colours(r.agent for r in runs)
    for agent in sorted({r.agent for r in runs}):
        ranks = np.concatenate([_ranks(r) for r in runs if r.agent == agent])
        if len(ranks):
            axes.plot(
                levels, [(ranks <= level).mean() for level in levels], color=palette[agent], label=agent, marker="."
            )
    axes.set(xlabel="stated coverage", ylabel="measured coverage", xlim=(0, 1), ylim=(0, 1))
    axes.legend(frameon=False)
    return figure


def sensitivity(points: Mapping[str, Sequence[tuple[float, float]]], usual: Mapping[str, float]) -> Figure:
    """One panel a constant: regret / static against its value, (value, geometric mean); the usual value is marked."""
    figure = Figure(figsize=(2.3 * max(2, len(points)), 2.6), layout="constrained")
    panels = figure.subplots(1, len(points), sharey=True, squeeze=False)[0]
    for axes, (name, pairs) in zip(panels, points.items(), strict=True):
        values, means = zip(*pairs, strict=True)
        axes.plot(values, means, color=COLOURS["rasp-paper"], marker=".")
        if name in usual:
            axes.axvline(usual[name], color="gray", lw=1, ls=":")
            axes.plot(
                [v for v in values if v == usual[name]], [m for v, m in pairs if v == usual[name]], "o", color="black"
            )
        axes.axhline(1.0, color="black", lw=1, ls="--")  # the static default
        axes.set(xlabel=name, xticks=values)
        axes.set_xticklabels([f"{value:g}" for value in values], fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("regret / static, geo-mean")
    figure.suptitle("dot and dotted line: the paper's value; dashed line: the static default", fontsize=9)
    return figure


def _ranks(r: Runs) -> Array:
    """For each predicted step, the level of the central normal interval on whose edge the truth lies."""
    from math import erf, sqrt

    z = np.abs(r["error"] - r["predicted"]) / np.maximum(r["deviation"], 1e-6)
    return np.array([erf(value / sqrt(2)) for value in z[~np.isnan(z)]])


def _band(axes: Axes, curves: Array, label: str, colour: str, *, log: bool = False) -> None:
    """The mean of curves [seeds, steps] and, from two seeds on, its 95% interval, cut at zero.

    With `log` its lower half mirrors the upper one by factors: cut at zero it would hang down to the foot of the axis.
    """
    x, mean = np.arange(1, curves.shape[1] + 1), curves.mean(axis=0)
    axes.plot(x, mean, color=colour, label=label, lw=1.3)
    if len(curves) > 1:
        half = confidences(curves)
        low = np.maximum(mean - half, np.minimum(mean, 0.0))  # a loss below zero keeps its line
        if log:
            low = np.divide(mean**2, mean + half, out=low, where=mean > 0)
        axes.fill_between(x, low, mean + half, color=colour, alpha=0.12, lw=0)


def _ceiling(runs: Sequence[Runs], domain: str) -> tuple[float, list[str]]:
    """At most three times the static default's regret, so that one bad agent does not flatten the rest; who is cut."""
    totals = {r.agent: float(r.totals.mean()) for r in runs if r.domain == domain}
    highest = max(totals.values(), default=1.0)
    ceiling = 1.05 * min(highest, 3.0 * (totals.get("static") or highest)) or 1.0
    return ceiling, [f"{agent} ({number(total)})" for agent, total in totals.items() if total > ceiling]
