"""`make paper`: its plan, its tables, and the part of the page that it writes."""

import numpy as np
import pytest

from rasp_lab import REPOSITORY
from rasp_lab.bench import agents
from rasp_lab.bench.analysis.metrics import Runs
from rasp_lab.bench.domains import STREAMS, SYNTHETIC
from rasp_lab.bench.runner.protocol import Cell
from rasp_lab.bench.runner.timing import DOMAIN, StepTimes
from rasp_lab.pages import csv_tables, marked, origin
from rasp_lab.paper import __main__ as command
from rasp_lab.paper import earlier, page, plan, tables
from rasp_tuner.errors import InvalidValue


def runs(domains=SYNTHETIC, seeds=range(10), **regret):
    """Each agent has the same regret at every step of every domain; seeds differ by a tenth."""
    made = []
    for agent, level in regret.items():
        totals = np.array([level * (1.0 + 0.1 * (seed % 3)) for seed in seeds])
        columns = {"regret": np.repeat(totals[:, None], 100, axis=1), "loss": np.repeat(totals[:, None], 100, axis=1)}
        columns |= {name: np.zeros((len(seeds), 100)) for name in ("regime", "ask_ms", "tell_ms")}
        columns |= {name: np.full((len(seeds), 100), np.nan) for name in ("predicted", "deviation", "error")}
        made += [Runs(domain, agent, 100, tuple(seeds), columns) for domain in domains]
    return made


PEERS = {"static": 1.0, "cma-es": 0.9, "gp-ucb": 0.8, "gp-ucb-0.25": 0.5}
ENOUGH = runs(**PEERS, **{"rasp-paper": 3.0, "rasp-repaired": 0.6, "rasp-repaired[top_k=3]": 0.9})
TIMES = {DOMAIN: {"gp-ucb": StepTimes(500, 50.0, 50.0, 99.0), "rasp-repaired": StepTimes(500, 2.0, 2.0, 3.0)}}


def test_every_agent_of_the_plan_exists_and_odd_seeds_are_kept_for_reports():
    cells = plan.cells()
    for agent in {cell.agent for cell in cells}:
        agents.check(agent)
    assert len(cells) == len(set(cells))
    assert {cell.seed for cell in cells if cell.agent in ("gp-ucb", "rasp-paper-trained")} == {1, 3, 5, 7, 9}
    assert {cell.seed for cell in cells if cell.agent in plan.BRIDGE} == set(range(10))
    assert {cell.domain for cell in cells} >= {*SYNTHETIC, *STREAMS}
    assert plan.odd(1) == [1]
    assert plan.taken_back()["rasp-repaired[top_k=3]"] == "top_k"
    assert plan.taken_back()["rasp-repaired[rescored=0]"] == "rescored"


def test_levels_are_relative_to_the_default_with_an_error():
    head, rows = tables.readings(ENOUGH, TIMES)
    found = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    assert found["`rasp-paper`"]["regret / static"] == "3.00 ± 0.00"
    assert found["`rasp-paper`"]["ahead of both peers"] == "0"
    assert found["`rasp-repaired`"]["ahead of both peers"] == "9"
    assert found["`rasp-repaired`"]["and at their best"] == "0"
    assert found["`rasp-repaired`"]["ms a step"] == "2.00"
    assert found["`gp-ucb`"]["ahead of both peers"] == ""
    assert found["`rasp-paper`"]["seeds"] == "10"


def test_the_bridge_is_whole_or_absent():
    assert tables.bridge(ENOUGH)[1] == []
    levels = dict(zip(plan.BRIDGE, (3.0, 3.0, 1.5, 0.6, 0.5, 0.25, 0.2), strict=True))
    _, rows = tables.bridge(runs(static=1.0, **levels))
    assert [row[0] for row in rows] == [
        "start", "composer", "memory", "prompts and experts", "gate", "choice", "budget",
    ]  # fmt: skip
    assert [row[3] for row in rows][:3] == ["", "x 1.00 ± 0.00", "x 0.50 ± 0.00"]


def test_repaired_is_judged_on_odd_seeds_and_unseen_domains_are_marked():
    _, rows = tables.repaired(ENOUGH)
    assert [row[1] for row in rows] == ["", "yes", "", "yes", "", "yes", "", "yes", ""]
    even = runs(seeds=[0, 2], **PEERS, **{"rasp-repaired": 5.0})
    only_odd = runs(seeds=[1, 3], **PEERS, **{"rasp-repaired": 0.6})
    both = [
        Runs(a.domain, a.agent, 100, (0, 2, 1, 3), {k: np.vstack([a.columns[k], b.columns[k]]) for k in a.columns})
        for a, b in zip(even, only_odd, strict=True)
    ]
    assert tables.of_runs(both, {})["repaired"] == tables.repaired(only_odd)
    said = tables.verdict(both, TIMES)
    assert "on 9 of 9 domains, 4 of the 4 unseen ones" in said
    assert "on 0 and 0." in said
    assert "p < 0.05 on" in said
    assert "2 ms, 25 times less than GP-UCB's (medians of 500 and 500 steps" in said
    assert tables.without_one(ENOUGH)[1] == [["top_k", "0.90 ± 0.00", "x 1.50 ± 0.00", "0", "0"]]


def test_the_measured_part_takes_the_place_of_the_one_before(tmp_path):
    target = tmp_path / "PAPER.md"
    target.write_text(f"# Title\n\nBefore.\n\n{page.START}\noutdated\n{marked.END}\n\nAfter.\n")
    found = tables.of_runs(ENOUGH, TIMES)
    page.write(found, tables.verdict(ENOUGH, TIMES), target)
    once = target.read_text()
    assert once.startswith("# Title\n\nBefore.")
    assert once.endswith("After.\n")
    assert "outdated" not in once
    assert "### Readings" in once
    assert "### From `paper`" not in once  # not measured
    assert "hold for `rasp-paper`" in once
    assert csv_tables.read(tmp_path / page.FOLDER / "readings.csv") == found["readings"]
    page.write(found, tables.verdict(ENOUGH, TIMES), target)
    assert target.read_text() == once
    target.write_text("# Title\n")
    with pytest.raises(InvalidValue, match="must have the lines"):
        page.write(found, "", target)


def test_the_page_in_the_repository_is_that_of_its_tables():
    text = (REPOSITORY / "docs" / "PAPER.md").read_text()
    folder = REPOSITORY / "docs" / page.FOLDER
    known = {
        name: csv_tables.read(folder / f"{name}.csv") for name in tables.FILES if (folder / f"{name}.csv").exists()
    }
    assert {"readings", "bridge", "repaired"} <= set(known)
    measured = text.partition(page.START)[2].partition(marked.END)[0]
    for name in ("readings", "bridge"):
        for row in known[name][1]:
            assert f"| {' | '.join(row)} |" in measured, row
    head, rows = known["repaired"]
    ahead = sum(row[head.index("ahead of both")] == "yes" for row in rows)
    assert f"on {ahead} of {len(rows)} domains" in measured


@pytest.fixture
def few_runs(monkeypatch):
    cells = [Cell(domain, agent, 1, 100) for domain in SYNTHETIC[3:5] for agent in ("static", "cma-es", "rasp")]
    monkeypatch.setattr(plan, "cells", lambda _seeds: cells)
    monkeypatch.setattr(command, "TIMED", ("static", "cma-es"))
    return cells


def test_the_command_runs_continues_and_writes(few_runs, tmp_path, capsys, monkeypatch):
    out, target = tmp_path / "out", tmp_path / "PAPER.md"
    options = ["--seeds", "2", "--jobs", "1", "--timed-steps", "5", "--out", str(out), "--page", str(target)]
    assert command.main(["--page-only", *options]) == 1
    assert "must hold finished runs" in capsys.readouterr().err
    assert command.main(options) == 0
    assert "6 runs\n" in capsys.readouterr().out
    assert "Tables: [" in target.read_text()
    assert (out / "report.html").is_file()
    assert command.main(options) == 0
    assert "6 runs, 6 finished before" in capsys.readouterr().out
    monkeypatch.setattr(origin, "engine_hash", lambda *_: "another")
    assert command.forget_older(few_runs, out) == 2  # of the engine; peers stay
    assert command.forget_older(few_runs, out) == 0
    assert command.main(["--page-only", *options]) == 0
    assert "2 of 6 runs are missing" in capsys.readouterr().out


def test_one_seed_is_refused(capsys):
    with pytest.raises(SystemExit):
        command.main(["--seeds", "1"])
    assert "at least 2" in capsys.readouterr().err


def test_rows_of_the_engine_alone_are_measured_again(tmp_path):
    bridge = {agent: 3.0 - i / 4 for i, agent in enumerate(plan.BRIDGE)}
    every = runs(**{**PEERS, **bridge})
    file = tmp_path / "PAPER.md"
    page.write(tables.of_runs(every, TIMES), "It was measured.", file)
    folder = tmp_path / page.FOLDER
    before = {table.stem: csv_tables.read(table) for table in folder.glob("*.csv")}
    today = runs(**{"static": 1.0, "cma-es": 5.0, "rasp": 0.25, **dict.fromkeys(list(plan.BRIDGE)[2:-1], 0.5)})
    found, renewed = earlier.with_earlier(tables.of_runs(today, {}, engine_only=True), folder)
    assert {"readings", "bridge", "ratios"} <= set(renewed)
    assert dict(zip(found["readings"][0], found["readings"][1][-1], strict=True))["ahead of both peers"] == "9"
    page.write(found, "", file)
    readings = {row[0]: row[2] for row in found["readings"][1]}
    assert readings["`rasp`"] == "0.25 ± 0.00"
    assert readings["`cma-es`"] == "0.90 ± 0.00"  # as before
    assert found["bridge"][1][:3] == before["bridge"][1][:3]
    assert found["bridge"][1][-1][2:] == ["0.25 ± 0.00", "x 0.50 ± 0.00"]
    assert [row[0] for row in found["ratios"][1]] == [row[0] for row in before["ratios"][1]]
    less = runs(static=1.0, **{"rasp": 0.25})
    found, renewed = earlier.with_earlier(tables.of_runs(less, {}, engine_only=True), folder)
    assert "bridge" not in renewed  # without all of its rows a table stays as it is
    with pytest.raises(InvalidValue, match="must have the columns"):
        earlier.with_earlier({"readings": (["agent"], [["`rasp`"]])}, folder)
