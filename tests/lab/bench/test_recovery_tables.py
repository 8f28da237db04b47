"""Steps to recover on return, from stored runs: pairs of visits to the same true regime."""

import numpy as np
import pytest

from rasp_lab.bench.analysis import metrics, summary
from rasp_lab.bench.analysis.returns import blocks, recoveries
from rasp_lab.bench.report import html_report, return_tables, tables
from rasp_lab.bench.runner.protocol import COLUMNS

REGIMES = [0] * 20 + [1] * 20 + [0] * 10 + [1] * 20


def runs(agent, first, back, seeds=3, regimes=REGIMES, domain="H1_Recurring_Regimes"):
    """An agent whose regret is 1 for so many steps of a first visit, or of a return, and 0 then."""
    regret, met = np.zeros(len(regimes)), set()
    for regime, start, end in blocks(np.array(regimes)):
        bad = back if regime in met else first
        regret[start : min(start + bad, end)] = 1.0
        met.add(regime)
    regret = np.repeat(regret[None], seeds, axis=0)
    columns = dict.fromkeys(COLUMNS[4:], np.full(regret.shape, np.nan))
    columns |= {"loss": regret, "regret": regret, "regime": np.repeat([regimes], seeds, axis=0)}
    columns |= {"ask_ms": np.ones(regret.shape), "tell_ms": np.zeros(regret.shape)}
    return metrics.Runs(domain, agent, len(regimes), tuple(range(seeds)), columns)


def test_returns_are_paired_with_first_visits_and_cut_at_the_shorter_one():
    static, rasp, cma = runs("static", 99, 99), runs("rasp", 6, 0), runs("cma-es", 16, 16)
    found = {one.agent: one for one in recoveries([static, rasp, cma])}
    assert (found["rasp"].pairs, found["rasp"].seeds, found["rasp"].cut) == (6, 3, 15.0)
    assert (found["rasp"].first, found["rasp"].back, found["rasp"].saved) == (5.0, 0.0, 5.0)  # two of three are good
    assert (found["cma-es"].first, found["cma-es"].back) == (12.5, 12.5)  # one pair was cut at ten steps
    assert (found["static"].first, found["static"].reached, found["rasp"].reached) == (15.0, 0.0, 1.0)
    assert found["rasp"].back_error == 0.0
    assert np.isnan(recoveries([runs("static", 99, 99, 1), runs("rasp", 6, 0, 1)])[1].back_error)


def test_nothing_is_measured_where_nothing_returns_or_without_the_static_default():
    assert recoveries([runs("rasp", 6, 0)]) == []
    once = [0] * 30 + [1] * 30
    assert recoveries([runs(agent, 5, 5, regimes=once) for agent in ("static", "rasp")]) == []
    assert recoveries([runs(agent, 0, 0) for agent in ("static", "rasp")]) == []  # the default loses nothing
    assert return_tables.told([runs("static", 99, 99)]) == []


@pytest.mark.usefixtures("undrawn")
def test_the_report_has_a_table_and_a_figure_of_it():
    here = [runs("static", 99, 99), runs("rasp", 6, 0), runs("cma-es", 16, 16)]
    head, rows = return_tables.table(return_tables.told(here))
    assert head == ["agent", "H1 Recurring", "return / first", "seeds"]
    assert rows[0] == [
        "rasp",
        "5.0 ± 0.0 → 0.0 ± 0.0".replace(" ", "\N{NO-BREAK SPACE}").replace("→\N{NO-BREAK SPACE}", "→ "),
        "0.00",
        "3",
    ]
    assert [row[0] for row in rows] == ["rasp", "cma-es", "static"]
    page = html_report.as_html(here)
    assert return_tables.TITLE in page
    assert page.count("steps to recover on the first visit and on return") == 1
    assert tables.markdown((head, rows)) in html_report.as_markdown(here)
    facts = summary.summarise(here)[f"T{len(REGIMES)}"]["returns"]
    assert facts[1]["back"] == pytest.approx(0.0)
