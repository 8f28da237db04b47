"""Scores of random worlds, their tables, their section of the page, and the suite that runs them."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from rasp_lab.bench import agents, domains
from rasp_lab.bench.analysis import kept_runs, world_scores
from rasp_lab.bench.analysis.metrics import Runs, load
from rasp_lab.bench.domains import WORLDS
from rasp_lab.bench.report import html_report, result_page, results, world_tables
from rasp_lab.bench.runner import run, suites
from rasp_lab.bench.runner.protocol import COLUMNS, FIRST_COLUMNS, Cell, play
from rasp_tuner.cli import app


def rasp(*words):
    return CliRunner().invoke(app, list(words))


def runs(domain, agent, loss, *, least=0.0, regime=0, recommended=np.nan, seeds=(1, 3)):
    """Runs with this loss: a number, a row, or [worlds, steps] of 80 steps."""
    table = np.broadcast_to(np.asarray(loss, dtype=float), (len(seeds), 80)).copy()
    columns = {
        "loss": table,
        "regret": table - least,
        "regime": np.broadcast_to(np.asarray(regime), table.shape),
        "recommended": np.broadcast_to(np.asarray(recommended, dtype=float), table.shape),
        **dict.fromkeys(("predicted", "deviation", "error"), np.full(table.shape, np.nan)),
    }
    return Runs(domain, agent, 80, seeds, columns)


def test_a_share_counts_the_whole_run_its_end_and_worlds_that_are_stuck():
    loss = np.ones((2, 80))
    loss[0, -20:-10], loss[0, -10:] = 0.4, 0.0
    found = world_scores.share(runs("W_Mixed", "rasp", loss))
    assert found == (pytest.approx(0.9), pytest.approx(0.6), 1, 2)


def test_harm_is_counted_after_the_start():
    loss = np.ones((2, 80))
    loss[:, :50] = 9.0
    loss[1, 50:] = 1.1
    found = world_scores.harm(runs("W_Near", "rasp", loss))
    assert found == (pytest.approx(1.05), 1, 2)


def test_scales_look_at_each_workload_and_at_what_is_recommended_last():
    regime, loss, served = np.arange(80) % 2, np.where(np.arange(80) % 2, 0.5, 0.3), np.full((2, 80), 0.9)
    served[:, 78] = [0.4, 1.2]  # the last step of the cheap workload
    found = world_scores.scales(runs("W_Scales", "rasp", loss, regime=regime, recommended=served))
    assert found == pytest.approx((0.3, 0.5, 0.8, 1.2))
    assert world_scores.scales(runs("W_Scales", "tpe", loss, regime=regime))[2:] == (None, None)


def test_tables_are_ordered_and_name_the_optimum():
    made = [
        runs("W_Discrete-0", "static", 1.0, least=-0.001),
        runs("W_Discrete-0", "rasp", 0.4, least=-0.001),
        runs("W_Near", "static", 1.0, least=0.9),
        runs("W_Near", "rasp", 1.2, least=0.9),
    ]
    (_, shares), (_, costs), (_, relative) = world_tables.told(made)
    assert shares[0] == ["agent", "W Discrete-0", "stuck"]
    assert shares[1] == [
        ["optimum", "0.00 (0.00)", "0 of 2"],
        ["rasp", "0.40 (0.40)", "0 of 2"],
        ["static", "1.00 (1.00)", "2 of 2"],
    ]
    assert [row[:3] for row in costs[1]] == [
        ["optimum", "0.900", "2 of 2"],
        ["static", "1.00", "2 of 2"],
        ["rasp", "1.20", "0 of 2"],
    ]
    assert relative[0] == ["agent", "W Discrete-0", "geo-mean", "worlds"]  # not W Near
    assert relative[1] == [["rasp", "0.401", "0.401", "2"], ["static", "1.00", "1.00", "2"]]
    assert world_tables.told([]) == []


def test_an_agent_that_ran_on_some_kinds_alone_comes_last():
    made = [runs(kind, "static", 1.0) for kind in ("W_Discrete-0", "W_Mixed")] + [runs("W_Mixed", "botorch", 0.2)]
    head, rows = world_tables.share_table(made)
    assert head == ["agent", "W Discrete-0", "W Mixed", "stuck"]
    assert [row[:2] for row in rows] == [["optimum", "0.00 (0.00)"], ["static", "1.00 (1.00)"], ["botorch", "-"]]


def test_the_suite_runs_every_kind_on_the_half_that_is_asked_for():
    report = suites.cells("worlds", ["static"], 2)
    assert {cell.domain for cell in report} == set(WORLDS)
    assert {cell.seed for cell in report} == {1, 3}
    assert {cell.seed for cell in suites.cells("worlds", ["static"], 2, half="develop")} == {0, 2}
    assert {c.seed for c in suites.cells("", ["static"], 2, domains=["W_Mixed"], half="develop", harder="delay=2")} == {
        0,
        2,
    }
    assert {cell.seed for cell in suites.cells("beyond", ["static"], 2, half="develop")} == {0, 1}
    assert {c.horizon for c in report if c.domain == "W_Discrete-0.3"} == {80}
    assert {c.horizon for c in report if c.domain == "W_Drift"} == {160}
    assert {c.horizon for c in report if c.domain == "W_Scales"} == {300}


def test_slow_agents_meet_fewer_worlds_of_two_kinds_on_the_page():
    planned = results.plan_worlds(5)
    counts = {agent: sum(c.agent == agent for c in planned) for agent in ("rasp", "tpe", "botorch")}
    assert counts == {"rasp": 10 * len(WORLDS), "tpe": 10 * len(WORLDS), "botorch": 4}
    assert set(planned) < set(results.plan(5))


@pytest.mark.parametrize("agent", ["static", "random", "cma-es", "warm-cma-es", "tpe", "vw-cats", "rasp", "ra-gd"])
@pytest.mark.parametrize("domain", WORLDS)
def test_every_kind_runs_with_every_light_agent(domain, agent):
    rows = list(play(Cell(domain, agent, 1, 8)))
    assert len(rows) == 8
    assert all(row.regret >= 0.0 for row in rows)


def test_a_cell_meets_the_world_of_its_seed():
    dims = {seed: domains.create("W_Discrete-0", seed).space.dim for seed in range(12)}
    assert len(set(dims.values())) > 1
    for seed in (1, 3):
        rows = list(play(Cell("W_Discrete-0", "static", seed, 3)))
        world = domains.create("W_Discrete-0", seed)
        omega = world.build_sequence(3, seed)[0]
        assert rows[0].loss == world.true_loss(world.theta(world.default), omega)


def test_what_would_be_served_is_recorded_and_changes_nothing():
    cell = Cell("W_Scales", "rasp", 1, 60)
    rows = list(play(cell))
    world = domains.create(cell.domain, 1)
    agent = agents.create("rasp", world.task(), 1)
    for row, omega in zip(rows, world.build_sequence(60, 1), strict=True):
        id, point = agent.ask(world.context_fn(omega))
        assert world.true_loss(world.theta(point), omega) == row.loss
        served = agent.recommend(world.context_fn(omega))
        assert world.true_loss(world.theta(served), omega) == row.recommended
        agent.tell(id, world.metric_fn(world.theta(point), omega, np.random.default_rng([1, row.step, 1])))
    assert rows[0].recommended == 1.0  # nothing known: the default
    assert rows[-1].recommended != rows[-1].loss or len({row.loss for row in rows}) > 1
    assert next(play(Cell("W_Scales", "random", 1, 1))).recommended is None


def test_files_of_before_recommendations_are_still_read(tmp_path):
    cells = [Cell("W_Mixed", agent, 1, 5) for agent in ("static", "random")]
    run.run_plan(cells, tmp_path)
    kept = tmp_path / "cells" / f"{cells[0].key}.csv"
    lines = kept.read_text().splitlines()
    old = [line.rsplit(",", 1)[0] for line in lines]
    assert old[0].split(",") == FIRST_COLUMNS == COLUMNS[:-1]
    kept.write_text("\n".join(old) + "\n")
    assert run.is_finished(cells[0], tmp_path)
    found = load(run.merge(cells, tmp_path))
    assert [r.agent for r in found] == ["static", "random"]
    steps = tmp_path / "old.csv"
    steps.write_text("\n".join(old) + "\n")
    (alone,) = load(steps)
    np.testing.assert_array_equal(alone["loss"], found[0]["loss"])
    assert np.isnan(alone["recommended"]).all()


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_bench_prints_the_scores_and_the_report_has_them(tmp_path):
    words = ("bench", "--suite", "worlds", "--agents", "static,random", "--seeds", "2", "--jobs", "1")
    result = rasp(*words, "--horizon", "20", "--out", str(tmp_path))
    assert result.exit_code == 0, result.stderr
    for said in (
        "Loss as a share of (median - best)",
        "W Discrete-0.3",
        "W Scales, cheap",
        "Regret relative to `static`",
    ):
        assert said in result.stdout
    assert {row["seeds"] for row in json.loads((tmp_path / "summary.json").read_text())["T20"]["regret"]} == {2}
    page, text = html_report.write(tmp_path)
    assert "## Random worlds" in text.read_text()
    assert "<h2>Random worlds</h2>" in page.read_text()


def test_half_is_refused_where_there_is_no_world(tmp_path):
    result = rasp("bench", "--suite", "beyond", "--half", "develop", "--out", str(tmp_path))
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith("rasp: --half is for random worlds")
    result = rasp("bench", "--suite", "worlds", "--half", "both", "--out", str(tmp_path))
    assert "half (--half) must be one of ['develop', 'report'], got 'both'" in result.stderr


def test_worlds_are_on_the_page_and_what_is_missing_of_them_is_named(tmp_path):
    plan = [Cell("W_Mixed", "static", s, 80) for s in (1, 3, 5)]
    rows = [kept_runs.kept(runs("W_Mixed", "static", 1.0, seeds=(seed,)), "") for seed in (1, 3)]
    made = results.figures(rows, plan, tmp_path, tmp_path)
    page = result_page.page(made, "")
    assert "| W Mixed | 1.00 (1.00) |" in page.split("\n## Random worlds\n")[1].split("\n## ")[0]
    assert "- T = 80, `static`: 1 of 3 runs: W Mixed (seed 5)" in page
    assert "`rasp results --seeds 1`" in page  # the seeds of worlds do not count
