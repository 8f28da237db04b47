"""The report: one self-contained HTML page and a Markdown summary, both from the steps alone."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from rasp_lab.bench.analysis import summary
from rasp_lab.bench.analysis.metrics import Runs, calibration, latency, load
from rasp_lab.bench.analysis.overview import overview, paragraph
from rasp_lab.bench.analysis.verdicts import losses
from rasp_lab.bench.domains import RECURRING, STREAMS, SYNTHETIC
from rasp_lab.bench.report import figures, paper_tables, return_tables, sensitivity, tables, world_tables
from rasp_lab.bench.report.regret_figure import regret_svg
from rasp_lab.bench.runner import memory_growth as memory
from rasp_lab.bench.runner import timing
from rasp_lab.pages import pictures
from rasp_tuner import __version__
from rasp_tuner.page import html_page
from rasp_tuner.page.html_page import Table
from rasp_tuner.paper import PAPER

ADVERSARIAL = ("A1_Adversarial_Context", "A2_Adversarial_Offcentre")
BANDS = (
    "Lines are means over seeds, bands their 95% intervals. Losses are on a log axis, linear below 0.001, where the"
    " lower half of a band mirrors the upper one. Regret is drawn up to about three times that of the static default;"
    " agents beyond that are named above the panel, with their regret at the end."
)
PICTURE = "regret.svg"
LOAD = "Step times were taken under parallel load, several runs at a time: compare them with care."
Measured = dict[str, dict[str, timing.StepTimes]]
MAX_LINES = 8  # lines that can be told apart in one picture; the tables hold every agent
ALWAYS_DRAWN = ("static", "random", "cma-es", "gp-ucb", "rasp-paper", "rasp", "ra-gd")  # drawn before all others


def write(folder: Path, runs: Sequence[Runs] | None = None) -> tuple[Path, Path]:
    """Write DIR/report.html and DIR/report.md from DIR/steps.csv, or from its runs at hand; return both paths.

    DIR/regret.svg is the picture both begin with; there is none without `static` to relate to.
    """
    runs = load(folder / "steps.csv") if runs is None else runs
    page, text = folder / "report.html", folder / "report.md"
    page.write_text(as_html(runs, memory_tables(folder), timing.load(folder)))
    text.write_text(as_markdown(runs, memory_tables(folder), timing.load(folder)))
    view = overview(_plain(runs))
    if view is not None:
        (folder / PICTURE).write_text(regret_svg(view))
    for horizon in sorted({r.horizon for r in runs}):
        if back := return_tables.told([r for r in _plain(runs) if r.horizon == horizon]):
            return_tables.figure(back).savefig(folder / return_tables.picture(horizon), dpi=110)
    return page, text


def memory_tables(folder: Path) -> list[tuple[str, Table]]:
    """The table of memory growth with its title, if it was measured."""
    measured = memory.load(folder)
    if measured is None:
        return []
    domain, _, by_agent = measured
    order = sorted(by_agent.items(), key=lambda item: item[1].kib)
    rows = [[agent, str(g.first), str(g.last), f"{g.kib:.1f}"] for agent, g in order]
    return [(f"Memory growth on {domain}", (["agent", "from step", "to step", "KiB per 100 steps"], rows))]


def as_markdown(runs: Sequence[Runs], extra: Sequence[tuple[str, Table]] = (), times: Measured | None = None) -> str:
    """The summary as Markdown; `extra` are further tables with their titles, `times` those of `timing`."""
    plain = _plain(runs)
    parts, view = ["# Benchmark report"], overview(plain)
    if view is not None:
        parts += [f"![Cumulative regret relative to never changing anything]({PICTURE})", paragraph(view)]
    if lost := losses(plain):
        parts += ["## Where it loses", "\n".join(f"- {line}" for line in lost)]
    for horizon in sorted({r.horizon for r in plain}):
        title = f"## Regret relative to the static default, T = {horizon:,}"
        parts += [title, tables.markdown(tables.ratio_table(plain, horizon))]
        for agent in ("rasp", "rasp-paper"):
            table = tables.best_peer_table(plain, horizon, agent)
            if table[1]:
                parts += [f"### {agent} against its best peer, T = {horizon:,}", tables.markdown(table)]
        told = stream_tables(plain, horizon)
        parts += [f"### Table 4: tabular streams, T = {horizon:,}"] if told else []
        for words, table in told:
            parts += [words, tables.markdown(table)]
        if back := return_tables.told([r for r in plain if r.horizon == horizon]):
            parts += [f"### {return_tables.TITLE}, T = {horizon:,}", return_tables.NOTE]
            parts.append(tables.markdown(return_tables.table(back)))
            parts.append(f"![Steps to recover on the first visit and on return]({return_tables.picture(horizon)})")
        parts += [f"### All numbers, T = {horizon:,}", LOAD, tables.markdown(tables.detail_table(plain, horizon))]
    of_worlds = world_tables.told(plain)
    parts += [f"## {world_tables.TITLE}"] if of_worlds else []
    for words, table in of_worlds:
        parts += [words, tables.markdown(table)]
    claimed = tables.claims_table(plain, times)
    if claimed[1]:
        parts += ["## The paper's claims", tables.markdown(claimed)]
    for horizon, points in sensitivity.swept(runs).items():
        parts += [f"## {sensitivity.TITLE}, T = {horizon:,}", tables.markdown(sensitivity.as_table(points))]
    for title, table in extra:
        parts += [f"## {title}", tables.markdown(table)]
    if _has_papers_agents(plain):
        parts += ["## Hyperparameters", paper_tables.CONSTANTS_NOTE, tables.markdown(paper_tables.hyperparameters())]
    parts.append(f"Written by rasp-tuner {__version__}.")
    return "\n\n".join(parts) + "\n"


def as_html(runs: Sequence[Runs], extra: Sequence[tuple[str, Table]] = (), times: Measured | None = None) -> str:
    """The whole page: tables and figures, with nothing to fetch; `extra` and `times` as in `as_markdown`."""
    plain = _plain(runs)
    title = "RASP-Tuner: benchmark report"
    body, view = [f"<h1>{title}</h1>"], overview(plain)
    if view is not None:
        body += [f'<figure class="first">{regret_svg(view)}</figure>', f'<p class="lead">{escape(paragraph(view))}</p>']
    if lost := losses(plain):
        body += ["<h2>Where it loses</h2>", "<ul>", *(f"<li>{escape(line)}</li>" for line in lost), "</ul>"]
    for horizon in sorted({r.horizon for r in plain}):
        here = [r for r in plain if r.horizon == horizon]
        if {r.agent for r in here} != {"static"}:  # which alone is only there to relate to
            body += _at(here, horizon)
    of_worlds = world_tables.told(plain)
    body += [f"<h2>{world_tables.TITLE}</h2>"] if of_worlds else []
    for words, table in of_worlds:
        body += [f"<p>{escape(words)}</p>", html_page.table(table)]
    claimed = tables.claims_table(plain, times)
    if claimed[1]:
        body += ["<h2>The paper's claims</h2>", "<p>Those that these runs can answer.</p>", html_page.table(claimed)]
    for horizon, points in sensitivity.swept(runs).items():
        body += [
            f"<h2>{sensitivity.TITLE}, T = {horizon:,}</h2>",
            pictures.image(figures.sensitivity(points, PAPER), "regret against each constant"),
            html_page.table(
                sensitivity.as_table(points),
                "Regret relative to the static default, geometric mean of the nine domains",
            ),
        ]
    body += _step_times(plain, (times or {}).get(timing.DOMAIN, {}))
    for heading, table in extra:
        body += [f"<h2>{escape(heading)}</h2>", html_page.table(table)]
    if _has_papers_agents(plain):
        constants = f"<p>{escape(paper_tables.CONSTANTS_NOTE)}</p>" + html_page.table(paper_tables.hyperparameters())
        body += ["<h2>Hyperparameters</h2>", html_page.folded("The paper's constants beside ours", constants)]
    return html_page.page(title, [*body, f"<p>Written by rasp-tuner {__version__}.</p>"], pictures.STYLE)


def stream_tables(runs: Sequence[Runs], horizon: int) -> list[tuple[str, Table]]:
    """The paper's Table 4 beside ours, then every agent, each with what to know of it; none without streams."""
    told = [
        (paper_tables.STREAMS_NOTE, paper_tables.streams_table(runs, horizon)),
        ("Every agent: mean cumulative regret with its 95% interval over seeds.", tables.stream_table(runs, horizon)),
    ]
    return [(words, table) for words, table in told if table[1]]


def drawn(runs: Sequence[Runs]) -> list[Runs]:
    """The runs of at most MAX_LINES agents: those everyone asks for, then the best of the rest."""
    horizon = runs[0].horizon
    order = tables.ranked(runs, horizon)
    chosen = [a for a in ALWAYS_DRAWN if a in order]
    chosen += [a for a in order if a not in chosen and not a.startswith("rasp")][: max(0, MAX_LINES - len(chosen))]
    return [r for r in runs if r.agent in (chosen if len(order) > MAX_LINES else order)]


def _plain(runs: Sequence[Runs]) -> list[Runs]:
    """Without agents whose constants are swept: those have tables of their own."""
    return [r for r in runs if "[" not in r.agent]


def _has_papers_agents(runs: Sequence[Runs]) -> bool:
    return any(r.agent.startswith(("rasp-paper", "gp-ucb")) for r in runs)


def _win_or_lose(head: str, text: str) -> str:
    """Below one is green and above one red, except the seeds."""
    if head == "seeds" or not text[:1].isdigit():
        return ""
    return "win" if float(text) < 1 else "lose" if float(text) > 1 else ""


def _at(here: Sequence[Runs], horizon: int) -> list[str]:
    """Tables and figures of one horizon."""
    body = [
        f"<h2>T = {horizon:,}</h2>",
        html_page.table(tables.ratio_table(here, horizon), "Regret relative to the static default", _win_or_lose),
        "<p>Below one beats doing nothing. In brackets: the regret itself, where the static default has none.</p>",
    ]
    body.append(f"<p>{BANDS}</p>")
    if len(drawn(here)) < len(here):
        body.append("<p>The figures of regret show the agents everyone asks for and the best of the rest.</p>")
    body += _figures(here)
    for agent in ("rasp", "rasp-paper"):
        tests = tables.best_peer_table(here, horizon, agent)
        if tests[1]:
            body.append(html_page.table(tests, f"{agent} against the best peer of each domain, paired t-test"))
    numbers = f"<p>{LOAD}</p>" + html_page.table(tables.detail_table(here, horizon))
    return [*body, html_page.folded(f"All numbers, T = {horizon:,}", numbers)]


def _step_times(runs: Sequence[Runs], times: Mapping[str, timing.StepTimes]) -> list[str]:
    """Figure 3, middle: from the timing pass if there was one, else from the runs themselves."""
    agents = {r.agent for r in runs}
    if not agents:
        return []
    taken = {agent: t.median_ms for agent, t in times.items()}
    taken = taken or {a: latency(*(r for r in runs if r.agent == a))["median_ms"] for a in agents}
    return [
        "<h2>Figure 3: step time</h2>",
        f"<p>{f'On {timing.DOMAIN}, all agents in one process, taking turns.' if times else LOAD}</p>",
        pictures.image(figures.latencies(taken), "median step time by agent"),
    ]


def _figures(here: Sequence[Runs]) -> list[str]:
    """The paper's Figures 2 to 5, where their domains were run."""
    few, present, horizon = drawn(here), {r.domain for r in here}, here[0].horizon
    domains = list(dict.fromkeys(r.domain for r in here))
    body = [
        *_trajectories(few, "Figure 2: loss and cumulative regret", SYNTHETIC),
    ]
    memories = {f"{a}{suffix}" for a in ("rasp", "rasp-paper") for suffix in ("", "-no-memory")}
    ablation = {
        d: {r.agent: float(r.totals.mean()) for r in here if r.domain == d and r.agent in memories}
        for d in RECURRING
        if d in present
    }
    if any(len(by_agent) > 1 for by_agent in ablation.values()):
        figure = figures.bars(ablation, "cumulative regret", log=True)
        body += [
            "<h3>Figure 3: with and without memory</h3>",
            pictures.image(figure, "regret with and without memory"),
        ]
    steps = _adaptation(few, here)
    if steps:
        body += [
            "<h3>Figure 3: steps to adapt</h3>",
            pictures.image(figures.adaptation(steps, horizon), "steps to adapt by domain and agent"),
            html_page.table(tables.adaptation_table(here, horizon, domains)),
        ]
    body += [
        *_returns(here),
        *_trajectories(few, "Figure 4: uninformative context", ADVERSARIAL),
        *_trajectories(few, "Figure 5: tabular streams", STREAMS),
        *_streams_of_the_paper(here),
        *_trajectories(few, "Further domains", sorted(present - {*SYNTHETIC, *ADVERSARIAL, *STREAMS})),
    ]
    predicting = [r for r in here if calibration(r) is not None]
    if predicting:
        body += [
            "<h3>Calibration of the predicted deviation</h3>",
            pictures.image(figures.reliability(predicting), "reliability"),
        ]
    return body


def _adaptation(few: Sequence[Runs], here: Sequence[Runs]) -> dict[str, dict[str, float | None]]:
    """domain -> agent -> median step to adapt, of the few that are drawn, the best first; None: most seeds never do.

    Where the static default leaves no gap to close, there is nothing to draw.
    """
    facts = summary.summarise(here)[f"T{here[0].horizon}"]["regret"]
    order, shown = tables.ranked(here, here[0].horizon), {r.agent for r in few}
    steps: dict[str, dict[str, float | None]] = {}
    for row in sorted(facts, key=lambda row: order.index(row["agent"])):
        if row["agent"] in shown and row["adaptation"] is not None:
            steps.setdefault(row["domain"], {})[row["agent"]] = row["adaptation"]["median_step"]
    return dict(sorted(steps.items()))


def _returns(here: Sequence[Runs]) -> list[str]:
    """Who recovers sooner when a regime comes back."""
    found = return_tables.told(here)
    if not found:
        return []
    return [
        f"<h3>{return_tables.TITLE}</h3>",
        f"<p>{escape(return_tables.NOTE)}</p>",
        pictures.image(return_tables.figure(found), "steps to recover on the first visit and on return, by agent"),
        html_page.table(return_tables.table(found)),
    ]


def _streams_of_the_paper(here: Sequence[Runs]) -> list[str]:
    told = stream_tables(here, here[0].horizon)
    body = ["<h3>Table 4: tabular streams</h3>"] if told else []
    for words, table in told:
        body += [f"<p>{escape(words)}</p>", html_page.table(table)]
    return body


def _trajectories(here: Sequence[Runs], title: str, domains: Sequence[str]) -> list[str]:
    shown = [name for name in domains if any(r.domain == name for r in here)]
    return [f"<h3>{title}</h3>", pictures.image(figures.trajectories(here, shown), title)] if shown else []
