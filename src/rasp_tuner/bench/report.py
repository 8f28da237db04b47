"""The report: one self-contained HTML page and a Markdown summary, both from the steps alone."""

import base64
import io
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from rasp_tuner import __version__
from rasp_tuner.bench import claims, figures, memory, summary
from rasp_tuner.bench.agents import parse
from rasp_tuner.bench.domains import RECURRING, STREAMS, SYNTHETIC
from rasp_tuner.bench.metrics import Runs, calibration, load, ratios
from rasp_tuner.presets import PAPER

ADVERSARIAL = ("A1_Adversarial_Context", "A2_Adversarial_Offcentre")
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
h1, h2 { line-height: 1.2 } h2 { margin-top: 2.5rem; border-bottom: 1px solid #ddd }
.wide { overflow-x: auto; margin: 1rem 0 } table { border-collapse: collapse; font-size: 0.85rem }
caption { text-align: left; padding: .3rem 0; font-weight: 600 }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #e5e5e5; text-align: right; white-space: nowrap }
th:first-child, td:first-child { text-align: left } td.text { text-align: left; white-space: normal }
.win { background: #e3f4e3 } .lose { background: #fbe6e3 } .lead { font-size: 1.1rem; font-weight: 600 }
img { max-width: 100%; height: auto }
"""

Table = tuple[list[str], list[list[str]]]


def write(folder: Path) -> tuple[Path, Path]:
    """Read DIR/steps.csv; write DIR/report.html and DIR/report.md; return both paths."""
    everything = load(folder / "steps.csv")
    runs = [r for r in everything if "[" not in r.agent]
    extra = [*_sensitivity(everything), *_memory(folder)]
    page, text = folder / "report.html", folder / "report.md"
    page.write_text(html(runs, extra))
    text.write_text(markdown(runs, extra))
    return page, text


def _sensitivity(runs: Sequence[Runs]) -> list[tuple[str, Table]]:
    """Appendix C: the paper's stack with one constant changed at a time, geometric mean over the nine."""
    rows = []
    for horizon in sorted({r.horizon for r in runs}):
        means = summary.summarise([r for r in runs if r.horizon == horizon])[f"T{horizon}"]["geometric_mean"]
        for agent in sorted(a for a in means if "[" in a):
            _, settings = parse(agent)
            ((name, value),) = settings.items() if len(settings) == 1 else ((str(settings), float("nan")),)
            usual = f"{PAPER[name]:g}" if name in PAPER else "-"
            rows.append([name, _number(value), usual, str(horizon), _number(means[agent])])
    title = "Sensitivity of the paper's stack (Appendix C)"
    return [(title, (["constant", "value", "usual", "T", "geo-mean of nine"], rows))] if rows else []


def _memory(folder: Path) -> list[tuple[str, Table]]:
    measured = memory.load(folder)
    if measured is None:
        return []
    domain, horizon, by_agent = measured
    rows = [[agent, f"{kib:.1f}"] for agent, kib in sorted(by_agent.items(), key=lambda item: item[1])]
    return [(f"Memory growth on {domain}, T = {horizon}", (["agent", "KiB per 100 steps"], rows))]


def lead(runs: Sequence[Runs]) -> list[str]:
    """The first lines: how each of our presets fares against doing nothing and against random search."""
    lines = []
    for horizon in sorted({r.horizon for r in runs}):
        table = ratios(runs, horizon)
        for agent in ("rasp-paper", "rasp"):
            for other, words in (("static", "never changing anything"), ("random", "random search")):
                both = [d for d in SYNTHETIC if d in table.get(agent, {}) and d in table.get(other, {})]
                if both:
                    lost = [d for d in both if table[agent][d] >= table[other][d]]
                    won = len(both) - len(lost)
                    verb = "beats" if won == len(both) else "LOSES to" if won == 0 else "loses on some to"
                    lines.append(
                        f"T = {horizon}: {agent} {verb} {words} (lower regret on {won} of {len(both)} domains)."
                    )
    return lines


def ratio_table(runs: Sequence[Runs], horizon: int) -> Table:
    """Domains by agents: mean regret relative to the static default; the geometric mean over the nine comes last.

    Where the static default is already the optimum there is nothing to relate to: "-".
    """
    here = [r for r in runs if r.horizon == horizon]
    table = ratios(here, horizon)
    means = summary.summarise(here)[f"T{horizon}"]["geometric_mean"]
    agents = sorted({r.agent for r in here}, key=lambda a: (means.get(a, float("inf")), a))
    rows = [
        [domain, *(_number(table.get(a, {}).get(domain)) for a in agents)]
        for domain in dict.fromkeys(r.domain for r in here)
    ]
    fewest = {a: min(len(r.seeds) for r in here if r.agent == a) for a in agents}
    return ["domain", *agents], [
        *rows,
        ["geometric mean of the nine", *(_number(means.get(a)) for a in agents)],
        ["seeds", *(str(fewest[a]) for a in agents)],
    ]


def test_table(runs: Sequence[Runs], horizon: int, agent: str) -> Table:
    """Per domain: the agent against its best peer, paired t-test, Holm-corrected."""
    tests = summary.best_peer_tests([r for r in runs if r.horizon == horizon], agent)
    return ["domain", "best peer", agent, "peer", "p", "p (Holm)"], [
        [t["domain"], t["best_peer"], f"{t['ours']:.3g}", f"{t['theirs']:.3g}", f"{t['p']:.2g}", f"{t['p_holm']:.2g}"]
        for t in tests
    ]


def claims_table(runs: Sequence[Runs]) -> Table:
    return ["paper's claim", "where", "agent", "what we measured", "verdict"], [
        [f.claim, f.where, f.agent, f.measured or "-", f.verdict] for f in claims.findings(runs)
    ]


def detail_table(runs: Sequence[Runs], horizon: int) -> Table:
    """One row a domain and agent: regret with its interval, step times, adaptation, calibration."""
    rows = summary.summarise(runs)[f"T{horizon}"]["regret"]
    head = [
        "domain",
        "agent",
        "seeds",
        "regret",
        "+- 95%",
        "median ms",
        "p99 ms",
        "adapts after",
        "in 50%",
        "in 90%",
        "NLL",
    ]
    return head, [
        [
            row["domain"],
            row["agent"],
            str(row["seeds"]),
            f"{row['mean']:.4g}",
            _number(row["ci95"]),
            f"{row['median_ms']:.3g}",
            f"{row['p99_ms']:.3g}",
            "never" if row["adaptation_steps"] is None else f"{row['adaptation_steps']:.0f}",
            *(_number((row["calibration"] or {}).get(key)) for key in ("coverage_50", "coverage_90", "nll")),
        ]
        for row in rows
    ]  # fmt: skip


def markdown(runs: Sequence[Runs], extra: Sequence[tuple[str, Table]] = ()) -> str:
    """The summary as Markdown; `extra` are further tables with their titles."""
    parts = ["# Results", *(f"**{line}**\n" for line in lead(runs)), f"rasp-tuner {__version__}.", ""]
    parts += ["## The paper's claims", _markdown(claims_table(runs))]
    for horizon in sorted({r.horizon for r in runs}):
        parts += [f"## Regret relative to the static default, T = {horizon}", _markdown(ratio_table(runs, horizon))]
        for agent in ("rasp", "rasp-paper"):
            table = test_table(runs, horizon, agent)
            if table[1]:
                parts += [f"### {agent} against its best peer, T = {horizon}", _markdown(table)]
        parts += [f"### All numbers, T = {horizon}", _markdown(detail_table(runs, horizon))]
    for title, table in extra:
        parts += [f"## {title}", _markdown(table)]
    return "\n\n".join(parts) + "\n"


def html(runs: Sequence[Runs], extra: Sequence[tuple[str, Table]] = ()) -> str:
    """The whole page: tables and figures, with nothing to fetch; `extra` are further tables with their titles."""
    horizons = sorted({r.horizon for r in runs})
    body = ["<h1>RASP-Tuner: benchmark report</h1>", *(f'<p class="lead">{escape(line)}</p>' for line in lead(runs))]
    body += ["<h2>The paper's claims</h2>", _html(claims_table(runs))]
    for horizon in horizons:
        here = [r for r in runs if r.horizon == horizon]
        body += [
            f"<h2>T = {horizon}</h2>",
            _html(
                ratio_table(runs, horizon),
                "Regret relative to the static default (below 1 beats doing nothing)",
                shade=True,
            ),
        ]
        body += _figures(here)
        for agent in ("rasp", "rasp-paper"):
            table = test_table(runs, horizon, agent)
            if table[1]:
                body.append(_html(table, f"{agent} against the best peer of each domain, paired t-test"))
        body.append(_html(detail_table(runs, horizon), "All numbers"))
    for title, table in extra:
        body += [f"<h2>{escape(title)}</h2>", _html(table)]
    body += [
        "<h2>Constants of the paper's stack</h2>",
        _html((["constant", "value"], [[k, f"{v:g}"] for k, v in PAPER.items()])),
    ]
    title = "RASP-Tuner: benchmark report"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{STYLE}</style></head><body>{''.join(body)}</body></html>"
    )


def _figures(here: Sequence[Runs]) -> list[str]:
    """The paper's Figures 2 to 5, where their domains were run."""
    present = {r.domain for r in here}
    body = [
        *_trajectories(here, "Figure 2: loss and cumulative regret", SYNTHETIC),
        "<h3>Figure 3: step time</h3>",
        _image(figures.latencies(here), "median step time by agent"),
    ]
    memories = {f"{a}{suffix}" for a in ("rasp", "rasp-paper") for suffix in ("", "-no-memory")}
    ablation = {
        d: {r.agent: float(r.totals.mean()) for r in here if r.domain == d and r.agent in memories}
        for d in RECURRING
        if d in present
    }
    if any(len(by_agent) > 1 for by_agent in ablation.values()):
        figure = figures.bars(ablation, "cumulative regret", log=True)
        body += ["<h3>Figure 3: with and without memory</h3>", _image(figure, "regret with and without memory")]
    adaptation: dict[str, dict[str, float]] = {}
    for row in summary.summarise(here)[f"T{here[0].horizon}"]["regret"]:
        adaptation.setdefault(row["domain"], {})[row["agent"]] = row["adaptation_steps"] or float("nan")
    body += [
        "<h3>Figure 3: steps to adapt (no bar: never)</h3>",
        _image(figures.bars(adaptation, "steps"), "adaptation speed"),
        *_trajectories(here, "Figure 4: context that says nothing", ADVERSARIAL),
        *_trajectories(here, "Figure 5: tabular streams", STREAMS),
        *_trajectories(here, "Further domains", sorted(present - {*SYNTHETIC, *ADVERSARIAL, *STREAMS})),
    ]
    predicting = [r for r in here if calibration(r) is not None]
    if predicting:
        body += [
            "<h3>Calibration of the predicted deviation</h3>",
            _image(figures.reliability(predicting), "reliability"),
        ]
    return body


def _trajectories(here: Sequence[Runs], title: str, domains: Sequence[str]) -> list[str]:
    shown = [name for name in domains if any(r.domain == name for r in here)]
    return [f"<h3>{title}</h3>", _image(figures.trajectories(here, shown), title)] if shown else []


def _image(figure: Figure, alt: str) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="{escape(alt)}" src="data:image/png;base64,{data}">'


def _number(value: Any) -> str:
    return "-" if value is None or value != value else f"{value:.3g}"


def _markdown(table: Table) -> str:
    head, rows = table
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows))


def _html(table: Table, caption: str = "", shade: bool = False) -> str:
    head, rows = table
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = [
        "<tr>" + "".join(_cell(i, text, shade and row[0] != "seeds") for i, text in enumerate(row)) + "</tr>"
        for row in rows
    ]
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f'<div class="wide"><table>{title}<thead><tr>{cells}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
    )


def _cell(index: int, text: str, shade: bool) -> str:
    kind = ""
    if shade and index and text != "-":
        kind = ' class="win"' if float(text) < 1 else ' class="lose"' if float(text) > 1 else ""
    elif len(text) > 30:
        kind = ' class="text"'
    return f"<td{kind}>{escape(text)}</td>"
