import pytest

from rasp_lab.bench.domains import PAPER
from rasp_lab.bench.report import demo


def test_the_demo_is_ten_domains_four_agents_and_every_seed():
    cells = demo.cells(5)
    assert {(c.domain, c.agent, c.seed) for c in cells} == {
        (domain, agent, seed)
        for domain in PAPER
        for agent in ("static", "random", "cma-es", "rasp")
        for seed in range(5)
    }
    assert {c.horizon for c in cells} == {100}


@pytest.mark.usefixtures("undrawn")
def test_cells_of_older_code_are_not_used(tmp_path):
    cells = [cell for cell in demo.cells(1) if cell.agent == "static" and cell.domain == PAPER[4]]
    (tmp_path / "cells").mkdir()
    stale = tmp_path / "cells" / f"{cells[0].key}.csv"
    stale.write_text("of older code")
    heard = []
    (runs,) = demo.play(cells, tmp_path, heard.append, jobs=1)
    assert heard == cells
    assert runs.horizon == 100
    assert stale.read_text() == "of older code"  # nor is anybody's work thrown away
    assert (tmp_path / "report.html").is_file()


@pytest.mark.usefixtures("undrawn")
def test_the_demo_writes_the_picture_of_the_readme(tmp_path):
    cells = [cell for cell in demo.cells(1) if cell.agent in ("static", "random")]
    demo.play(cells, tmp_path, lambda _cell: None, jobs=1)
    assert (tmp_path / "regret.svg").read_text() in (tmp_path / "report.html").read_text()
    assert "random search" in (tmp_path / "regret.svg").read_text()
