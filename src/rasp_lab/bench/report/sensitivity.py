"""Appendix C: the paper's stack with one constant changed at a time, as in rasp-paper[top_k=1]."""

from collections.abc import Sequence

from rasp_lab.bench.agents import parse
from rasp_lab.bench.analysis.metrics import Runs, geometric_means
from rasp_lab.bench.report.tables import MEAN, number
from rasp_tuner.page.html_page import Table
from rasp_tuner.paper import PAPER

TITLE = "Sensitivity of the paper's stack (Appendix C)"
Points = dict[str, list[tuple[float, float]]]  # constant -> (value, geometric mean over the nine), by value


def swept(runs: Sequence[Runs]) -> dict[int, Points]:
    """By horizon: what each value of each constant gave."""
    found: dict[int, Points] = {}
    for horizon in sorted({r.horizon for r in runs if "[" in r.agent}):
        for agent, mean in geometric_means(runs, horizon).items():
            name, settings = parse(agent)
            if name == "rasp-paper" and len(settings) == 1:
                ((constant, value),) = settings.items()
                found.setdefault(horizon, {}).setdefault(constant, []).append((value, mean))
    return {t: {name: sorted(pairs) for name, pairs in points.items()} for t, points in found.items()}


def as_table(points: Points) -> Table:
    rows = [
        [name, f"{value:g}", f"{PAPER[name]:g}" if name in PAPER else "-", number(mean)]
        for name, pairs in points.items()
        for value, mean in pairs
    ]
    return ["constant", "value", "the paper's", MEAN], rows
