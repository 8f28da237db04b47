import dataclasses

import numpy as np
import pytest

from rasp_lab.bench.agents import cma, gp_ucb
from rasp_lab.bench.analysis.metrics import Runs
from rasp_lab.bench.domains import STREAMS
from rasp_lab.bench.report import html_report, paper_tables
from rasp_lab.bench.runner.protocol import COLUMNS


def streams(horizon=100, **totals):
    """Runs on the three streams whose cumulative regrets are `totals`, one a seed."""
    made = []
    for agent, values in totals.items():
        regret = np.repeat(np.array(values, dtype=float)[:, None] / horizon, horizon, axis=1)
        columns = dict.fromkeys(COLUMNS[4:], np.full(regret.shape, np.nan)) | dict.fromkeys(
            ("loss", "regret", "ask_ms", "tell_ms"), regret
        )
        columns["regime"] = np.zeros(regret.shape)
        made += [Runs(d, agent.replace("_", "-"), horizon, tuple(range(len(values))), columns) for d in STREAMS]
    return made


ALL = {"static": [5, 5], "cma_es": [9, 11], "gp_ucb": [8, 8], "random": [20, 24], "rasp": [6, 6], "rasp_paper": [9, 11]}


def test_the_paper_prints_improvements_that_follow_from_its_means():
    said = dict(zip(STREAMS, (15.9, 17.1, 19.8), strict=True))
    for stream, cells in paper_tables.PRINTED.items():
        assert 100 * paper_tables.improvement(*(mean for mean, _ in cells)) == pytest.approx(said[stream], abs=0.05)


def test_table_3_sets_ours_beside_the_papers():
    head, rows = paper_tables.streams_table(streams(**ALL), 100)
    assert head == ["stream", "whose", "RASP", "cma-es", "gp-ucb", "random", "improvement"]
    assert rows[:3] == [
        ["S1 California", "the paper", "10.46 ± 0.13", "13.73 ± 0.11", "12.45 ± 0.11", "22.88 ± 0.08", "+15.9%"],
        ["S1 California", "here, rasp-paper", "10.00 ± 1.00", "10.00 ± 1.00", "8.00 ± 0.00", "22.00 ± 2.00", "-25.0%"],
        ["S1 California", "here, rasp", "6.00 ± 0.00", "10.00 ± 1.00", "8.00 ± 0.00", "22.00 ± 2.00", "+25.0%"],
    ]
    assert [row[0] for row in rows[3:]] == ["S2 Boston"] * 3 + ["S3 Digits"] * 3


def test_table_3_leaves_out_what_was_not_run():
    assert paper_tables.streams_table([], 100)[1] == []
    assert paper_tables.streams_table(streams(static=[5, 5]), 100)[1] == []
    whose = [row[1] for row in paper_tables.streams_table(streams(horizon=30, **ALL), 30)[1]]
    assert "the paper" not in whose  # its numbers are of 100 steps
    lone = [row for row in paper_tables.streams_table(streams(cma_es=[9], rasp=[6]), 100)[1] if row[1] == "here, rasp"]
    assert lone[0][2:] == ["6.00", "9.00", "-", "-", "-"]  # one seed has no error, a missing peer no improvement


@pytest.mark.usefixtures("undrawn")
def test_the_report_has_table_3_with_its_source_where_streams_were_run():
    runs = streams(**ALL)
    for page in (html_report.as_html(runs), html_report.as_markdown(runs)):
        assert "Table 4: tabular streams" in page
        assert "Section 6.4" in page
        assert "+15.9%" in page
        assert "22.00 ± 25.41" in page  # every agent, with its 95% interval
    elsewhere = [dataclasses.replace(r, domain="5_Switching_LQR") for r in runs[::3]]
    assert "Table 4: tabular" not in html_report.as_html(elsewhere)
    assert "Table 4: tabular" not in html_report.as_markdown(elsewhere)


def rows_of(component):
    return {row[1]: row[2:] for row in paper_tables.hyperparameters()[1] if row[0] == component}


IN_WORDS = ("metric weights", "emergency trigger", "initial sigma", "kernel")  # the same in other words, or nearly


def test_what_runs_is_what_the_paper_prints():
    _, rows = paper_tables.hyperparameters()
    printed = [row for row in rows if row[2] != paper_tables.OPEN and row[1] not in IN_WORDS]
    assert len(printed) == 25 - len(IN_WORDS) + 12
    for row in printed:
        assert row[2] == row[3], row


def test_the_table_reads_the_constants_that_run(monkeypatch):
    monkeypatch.setattr(cma, "SIGMA", 0.3)
    monkeypatch.setattr(gp_ucb, "WINDOW", 150)
    monkeypatch.setattr(gp_ucb, "RESTARTS", 4)
    monkeypatch.setitem(paper_tables.PAPER_CONSTANTS, "3_Robot_ISP_Tuning", {"base_step": 0.5})
    monkeypatch.setitem(paper_tables.PAPER_CONSTANTS, "S3_Digits", {"experts": 9})
    monkeypatch.setattr(paper_tables, "PAPER", {**paper_tables.PAPER, "memory_size": 77, "stay": 0.6})
    assert rows_of("CMA-ES")["initial sigma"] == ["0.2 of the mean box width", "0.3 of each knob's width"]
    assert rows_of("GP-UCB")["window size"] == ["200", "150"]
    assert rows_of("GP-UCB")["restarts for acquisition"] == ["5", "4"]
    assert rows_of("RASP-Tuner")["base step scale (Flash / ISP)"] == ["0.25 / 0.25", "0.25 / 0.5"]
    assert rows_of("RASP-Tuner")["candidate center: current / hint"] == ["0.65 / 0.35", "0.6 / 0.4"]
    assert rows_of("PromptMemory")["max size M"] == ["200", "77"]
    assert rows_of("S3 Digits")["experts E"] == ["6", "9"]


def test_what_the_paper_leaves_open_is_marked():
    assert rows_of("GP-UCB")["kappa"][0] == paper_tables.OPEN
    assert rows_of("RASP-Tuner")["perturbations among the candidates"] == [paper_tables.OPEN, "6"]
    listed = {row[1] for row in paper_tables.hyperparameters()[1]}
    assert "replay buffer" in listed


@pytest.mark.usefixtures("undrawn")
def test_both_reports_have_the_hyperparameters_where_the_papers_agents_ran():
    runs = streams(static=[5, 5], gp_ucb=[20, 24])
    assert "| CMA-ES | initial sigma | 0.2 of the mean box width |" in html_report.as_markdown(runs)
    page = html_report.as_html(runs)
    assert '<td class="words">initial sigma</td>' in page
    assert "left open: ours" in page
