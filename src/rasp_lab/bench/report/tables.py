"""The tables of every page, as text in rows: from runs, without any number typed by hand."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rasp_lab.bench.analysis import claims, summary
from rasp_lab.bench.analysis.claim_checks import NOT_MEASURED
from rasp_lab.bench.analysis.metrics import (
    Runs,
    calibration,
    geometric_mean,
    geometric_means,
    ratios,
    second_half_ratio,
)
from rasp_lab.bench.analysis.stats import confidence
from rasp_lab.bench.domains import RECURRING, STREAMS, SYNTHETIC, short_name
from rasp_lab.bench.runner.timing import StepTimes
from rasp_tuner.page.html_page import Table, are_words

MEAN = "geo-mean"  # of the paper's nine domains


def number(value: Any) -> str:
    """Three digits; "-" for what is not known."""
    if value is None or value != value:
        return "-"
    if value == 0:
        return "0"
    return f"{value:.0f}" if 100 <= abs(value) < 1e5 else f"{value:#.3g}"


def markdown(table: Table) -> str:
    """A GitHub table; columns of numbers are aligned to the right."""
    head, rows = table
    sides = ["---" if words else "---:" for words in are_words(table)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, sides, *rows))


def spread(half: float) -> str:
    """What follows a mean: nothing if there is no interval, as with one seed."""
    return f" ± {half:.2f}" if half == half else ""


def transposed(table: Table, corner: str) -> Table:
    """Columns as rows; `corner` is the new first heading."""
    columns = [list(column) for column in zip(table[0], *table[1], strict=True)]
    return [corner, *columns[0][1:]], columns[1:]


def ranked(runs: Sequence[Runs], horizon: int) -> list[str]:
    """Agents, the least geometric mean first; those that did not run on all nine last, by name."""
    means = geometric_means(runs, horizon)
    agents = {r.agent for r in runs if r.horizon == horizon}
    return sorted(agents, key=lambda a: (means.get(a, float("inf")), a))


def ratio_table(runs: Sequence[Runs], horizon: int, domains: Iterable[str] | None = None) -> Table:
    """Agents by domains: mean regret relative to the static default, over the seeds both ran; then seeds.

    Where the static default has no regret there is nothing to relate to: the regret itself stands there, in brackets.
    """
    here = [r for r in runs if r.horizon == horizon]
    present = [d for d in domains or dict.fromkeys(r.domain for r in here) if any(r.domain == d for r in here)]
    nine = [d for d in present if d.split("+")[0] in SYNTHETIC]
    rest = [d for d in present if d not in nine]
    relative, means, found = (
        ratios(here, horizon),
        geometric_means(here, horizon),
        {(r.agent, r.domain): r for r in here},
    )

    def cell(agent: str, domain: str) -> str:
        ratio = relative.get(agent, {}).get(domain)
        if ratio is None or ratio == ratio or (agent, domain) not in found:
            return number(ratio)
        return f"({number(found[agent, domain].totals.mean())})"

    rows = []
    for agent in ranked(here, horizon):
        mean = [number(means.get(agent))] if means else []
        counts = sorted({len(r.seeds) for r in here if r.agent == agent})
        seeds = str(counts[-1]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        rows.append([agent, *(cell(agent, d) for d in nine), *mean, *(cell(agent, d) for d in rest), seeds])
    return ["agent", *map(short_name, nine), *([MEAN] if means else []), *map(short_name, rest), "seeds"], rows


def stream_table(runs: Sequence[Runs], horizon: int) -> Table:
    """Table 4 of the paper: mean cumulative regret on each tabular stream with its 95% interval over seeds."""
    means = {a: geometric_mean(row[d] for d in STREAMS if d in row) for a, row in ratios(runs, horizon).items()}
    order = sorted(ranked(runs, horizon), key=lambda a: means.get(a, float("inf")))

    def cell(r: Runs) -> str:
        return f"{r.totals.mean():.2f}" + spread(confidence(r.totals))

    return _by_domain(runs, horizon, STREAMS, cell, order)


def interval_table(runs: Sequence[Runs], horizon: int, domains: Iterable[str]) -> Table:
    """Agents by domains: mean cumulative regret with its 95% interval over seeds, which one seed does not have."""

    def cell(r: Runs) -> str:
        mean, half = float(r.totals.mean()), confidence(r.totals)
        half = 0.0 if half < 1e-9 * mean else half  # the seeds differ by rounding alone
        return f"{number(mean)} {'(1 seed)' if half != half else f'± {number(half)}'}"

    return _by_domain(runs, horizon, domains, cell, ranked(runs, horizon))


def second_half_table(runs: Sequence[Runs], horizon: int) -> Table:
    """Regret of the second half of the steps relative to the first, where regimes come back."""
    return _by_domain(runs, horizon, RECURRING, lambda r: number(second_half_ratio(r)), ranked(runs, horizon))


def adaptation_table(runs: Sequence[Runs], horizon: int, domains: Sequence[str]) -> Table:
    """Steps to adapt, over domains where there is a gap to close."""
    here = [r for r in runs if r.horizon == horizon]
    adapted = {(r.agent, r.domain): summary.adapts(r, here) for r in here}
    with_gap = [d for d in domains if any(adapted[key] for key in adapted if key[1] == d)]

    def cell(r: Runs) -> str:
        return _adapts((known := adapted[r.agent, r.domain]) and known._asdict())

    return _by_domain(here, horizon, with_gap, cell, ranked(here, horizon))


def timing_table(times: Mapping[str, StepTimes]) -> Table:
    """Milliseconds of a step, the quickest agent first."""
    rows = sorted(times.items(), key=lambda item: item[1].median_ms)
    return ["agent", "steps", "median ms", "mean ms", "p99 ms"], [
        [agent, str(t.steps), *map(number, (t.median_ms, t.mean_ms, t.p99_ms))] for agent, t in rows
    ]


def calibration_table(runs: Sequence[Runs]) -> Table:
    """Agents that forecast the composed error: likelihood and coverage over all steps of all domains."""
    rows = []
    for horizon in sorted({r.horizon for r in runs}):
        for agent in ranked(runs, horizon):
            facts = calibration(*(r for r in runs if (r.agent, r.horizon) == (agent, horizon)))
            if facts is not None:
                inside = [f"{100 * facts[key]:.0f}%" for key in ("coverage_50", "coverage_90")]
                rows.append([agent, f"{horizon:,}", number(facts["nll"]), *inside])
    return ["agent", "T", "NLL", "inside 50%", "inside 90%"], rows


def best_peer_table(runs: Sequence[Runs], horizon: int, agent: str) -> Table:
    """Per domain: the agent against its best peer, paired t-test, Holm-corrected."""
    tests = summary.best_peer_tests([r for r in runs if r.horizon == horizon], agent)
    rows = []
    for t in tests:
        won = "lower" if t["ours"] < t["theirs"] else "higher" if t["ours"] > t["theirs"] else "the same"
        p = [_p_value(t[key]) for key in ("p", "p_holm")]
        means = [number(t[key]) for key in ("ours", "theirs")]
        rows.append([t["domain"], t["best_peer"], *means, won, str(t["seeds"]), *p])
    return ["domain", "best peer", f"regret of {agent}", "of the peer", f"{agent} is", "seeds", "p", "p (Holm)"], rows


def claims_table(runs: Sequence[Runs], times: Mapping[str, Mapping[str, StepTimes]] | None = None) -> Table:
    """The paper's claims that the runs can answer; those that were not measured are left out."""
    found = [f for f in claims.findings(runs, times or {}) if (f.measured, f.verdict) != NOT_MEASURED]
    head = ["paper's claim", "where", "agent", "what we measured", "verdict"]
    return head, [[f.claim, f.where, f.agent, f.measured, f.verdict] for f in found]


def detail_table(runs: Sequence[Runs], horizon: int) -> Table:
    """One row a domain and agent: regret with its interval, step times, adaptation, calibration."""
    rows = summary.summarise([r for r in runs if r.horizon == horizon])[f"T{horizon}"]["regret"]
    head = [
        "domain",
        "agent",
        "seeds",
        "regret",
        "± 95%",
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
            number(row["ci95"]),
            number(row["median_ms"]),
            number(row["p99_ms"]),
            _adapts(row["adaptation"]),
            *(number((row["calibration"] or {}).get(key)) for key in ("coverage_50", "coverage_90", "nll")),
        ]
        for row in rows
    ]


def _by_domain(
    runs: Sequence[Runs], horizon: int, domains: Iterable[str], cell: Callable[[Runs], str], order: Sequence[str]
) -> Table:
    """Agents by domains with whatever `cell` says of each; agents that ran on none of them are left out."""
    found = {(r.agent, r.domain): r for r in runs if r.horizon == horizon}
    present = [d for d in domains if any(key[1] == d for key in found)]
    rows = [
        [agent, *(cell(found[agent, d]) if (agent, d) in found else "-" for d in present)]
        for agent in order
        if any((agent, d) in found for d in present)
    ]
    return ["agent", *map(short_name, present)], rows


def _adapts(known: Mapping[str, Any] | None) -> str:
    """The median step, and on how many seeds: "- (2/5)" if most never get there."""
    if known is None:
        return "-"
    step = known["median_step"]
    return f"{'-' if step is None else f'{step:.0f}'} ({known['reached']}/{known['seeds']})"


def _p_value(p: float) -> str:
    return "-" if p != p else "< 0.0001" if p < 1e-4 else f"{p:.2g}"
