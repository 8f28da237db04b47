"""Time to recover on return, as a table and a figure: who remembers and who forgets."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from rasp_lab.bench.analysis.metrics import ADAPT_SHARE, Runs
from rasp_lab.bench.analysis.returns import Recovery, recoveries
from rasp_lab.bench.domains import short_name
from rasp_lab.bench.report.figures import colours
from rasp_tuner.page.html_page import Table

TITLE = "When a regime comes back: steps to recover"
NOTE = (
    "Mean steps on a regime's first visit → on its returns, ± standard errors over seeds. Recovered: three steps in a"
    f" row whose median true regret is at most {ADAPT_SHARE:.0%} of the static default's in that regime. A first visit"
    " and a return are cut at the length of the shorter one, which counts where an agent never recovers; the row of"
    " static is that length. All agents are measured on the same pairs."
)
PANELS = 3  # beside each other


def picture(horizon: int) -> str:
    """The name of the figure's file."""
    return f"returns-T{horizon}.png"


def told(here: Sequence[Runs]) -> list[Recovery]:
    """Those of one horizon, if anybody but the static default ran."""
    found = recoveries(here)
    return found if any(one.agent != "static" for one in found) else []


def table(found: Sequence[Recovery]) -> Table:
    """Agents by domains; those that are soonest on return first."""
    domains = list(dict.fromkeys(one.domain for one in found))
    by_key = {(one.agent, one.domain): one for one in found}
    rows = []
    for agent in _order(found):
        own = [by_key[agent, domain] for domain in domains if (agent, domain) in by_key]
        share = sum(one.back for one in own) / max(sum(one.first for one in own), 1e-300)
        cells = [_cell(by_key.get((agent, domain))) for domain in domains]
        rows.append([agent, *cells, f"{share:.2f}", str(max(one.seeds for one in own))])
    return ["agent", *map(short_name, domains), "return / first", "seeds"], rows


def figure(found: Sequence[Recovery]) -> Figure:
    """A panel a domain: a ring for the first visit, a dot for returns, bars of a standard error."""
    domains = list(dict.fromkeys(one.domain for one in found))
    agents = [agent for agent in _order(found) if agent != "static"][::-1]  # the first on top
    palette = colours(agents)
    columns = min(PANELS, len(domains))
    rows = -(-len(domains) // columns)
    drawn = Figure(
        figsize=(max(3.4 * columns + 1.2, 7.0), rows * (0.27 * len(agents) + 0.9) + 0.4), layout="constrained"
    )
    panels = drawn.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    for axes, domain in zip(panels[: len(domains)], domains, strict=True):
        here = {one.agent: one for one in found if one.domain == domain}
        for place, agent in enumerate(agents):
            one = here.get(agent)
            if one is None:
                continue
            colour = palette[agent]
            axes.plot([one.back, one.first], [place, place], color=colour, lw=1.2, alpha=0.45)
            for steps, error, fill in ((one.first, one.first_error, "white"), (one.back, one.back_error, colour)):
                half = 0.0 if np.isnan(error) else error
                axes.errorbar(steps, place, xerr=half, fmt="o", color=colour, markerfacecolor=fill, ms=6, lw=1.2)
        cut = next(iter(here.values())).cut
        axes.axvline(cut, color="gray", lw=1, ls=":")
        axes.set_title(short_name(domain), fontsize=10, loc="left")
        axes.set(xlim=(-0.04 * cut, 1.08 * cut), yticks=range(len(agents)), yticklabels=agents)
        axes.set_ylim(-0.6, len(agents) - 0.4)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[len(domains) :]:
        axes.set_visible(False)
    drawn.supxlabel(
        "steps to recover: ring on the first visit, dot on return, bars ± one standard error; dotted: never", fontsize=9
    )
    return drawn


def _order(found: Sequence[Recovery]) -> list[str]:
    """Agents by what they take on return as a share of the longest possible."""
    shares: dict[str, list[float]] = {}
    for one in found:
        shares.setdefault(one.agent, []).append(one.back / one.cut)
    return sorted(shares, key=lambda agent: (float(np.mean(shares[agent])), agent))


def _cell(one: Recovery | None) -> str:
    if one is None:
        return "-"
    return "\N{NO-BREAK SPACE}→ ".join(  # a narrow table breaks here and nowhere else
        f"{steps:.1f}" + ("" if np.isnan(error) else f" ± {error:.1f}").replace(" ", "\N{NO-BREAK SPACE}")
        for steps, error in ((one.first, one.first_error), (one.back, one.back_error))
    )
