"""`python -m rasp_lab.ablations`: every row changes the source that it names, and the page comes from its table."""

import json
import math
import shutil

import pytest

from rasp_lab import REPOSITORY
from rasp_lab.ablations import __main__ as command
from rasp_lab.ablations import table
from rasp_lab.ablations.rows import PROCESS, ROWS, Code, Constant, Row
from rasp_lab.beds.factor_of_two import PACKAGE
from rasp_lab.beds.runner import Cell, Results
from rasp_lab.pages import csv_tables, origin


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A copy of the product's Python files."""
    folder = tmp_path_factory.mktemp("src") / "rasp_tuner"
    shutil.copytree(
        PACKAGE,
        folder,
        ignore=lambda _, names: [n for n in names if n == "__pycache__" or ("." in n and not n.endswith(".py"))],
    )
    return folder


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_every_row_changes_what_it_names_and_still_is_python(row, package):
    files = {edit.file: (package / edit.file).read_text() for edit in row.edits}
    try:
        row.apply(package)
        for name, before in files.items():
            after = (package / name).read_text()
            assert after != before
            compile(after, name, "exec")
    finally:
        for name, before in files.items():
            (package / name).write_text(before)


def test_there_are_at_most_40_rows_and_no_two_alike():
    assert len(ROWS) <= 40
    assert len({row.key for row in ROWS}) == len(ROWS)


def test_a_change_that_the_source_does_not_have_is_refused():
    with pytest.raises(LookupError, match="once, got 0"):
        Code("a.py", "not there", "x").changed("y = 1\n")
    with pytest.raises(LookupError, match="no constant B"):
        Constant("a.py", "B", 1.0).changed("A = 2.0\n")
    assert Constant("a.py", "A", factor=0.5).changed("A = 2.0\n") == "A = 1.0\n"
    assert Constant("a.py", "A", 7).changed("A = 2.0  # two\n") == "A = 7  # two\n"


def test_an_effect_is_the_log_ratio_of_losses_with_its_error():
    cells = [Cell("worlds", "discrete, noise 0", seed) for seed in (1, 3)]
    before = Results({cells[0]: {"loss, noise 0": 0.2}, cells[1]: {"loss, noise 0": 0.1}})
    after = Results({cells[0]: {"loss, noise 0": 0.4}, cells[1]: {"loss, noise 0": 0.1}})
    assert table.effect(before, after, cells, "loss, ", geometric=True) == pytest.approx((math.log(2) / 2,) * 2)
    mean, error = table.effect(before, after, cells, "loss, ", geometric=False)
    assert mean == pytest.approx(math.log(0.5 / 0.3))
    assert error > 0.0
    assert str(table.effect(before, before, cells, "loss, ", geometric=True)) == "none"
    assert str(table.effect(before, Results(), cells, "loss, ", geometric=True)) == ""


def test_the_page_says_what_helps_what_hurts_and_what_does_neither(tmp_path):
    rows = [Row(name, "none", PROCESS, []) for name in ("trust", "drift", "looks")]
    none = dict.fromkeys(table.SLICES, table.NO_PART)
    found = {
        "trust: none (other knobs)": {**none, "worlds": table.Effect(0.5, 0.1)},
        "drift: none (other knobs)": {**none, "worlds": table.Effect(-0.5, 0.1)},
        "looks: none (other knobs)": {**none, "worlds": table.Effect(0.1, 0.1)},
    }
    command.keep(found, rows, tmp_path)
    (tmp_path / command.NOTE).write_text(json.dumps({"worlds": [24, 6]}))
    page = command.page(tmp_path, "*Figures.*")
    assert "- Not measured yet: contexts (hidden); " in page
    assert "| trust, other knobs | none |  |  | **+0.50 ± 0.10** |  |  |" in page
    assert "- 1 of 3 changes make it worse somewhere" in page
    assert "worse nowhere, beyond two errors: drift, other knobs (none)." in page
    assert "No difference beyond two errors: looks, other knobs (none)." in page
    assert "worlds 24 (6 odd seeds)" in page


def test_the_committed_page_is_made_from_the_table_beside_it():
    docs = REPOSITORY / "docs"
    committed = (docs / "ABLATIONS.md").read_text()
    assert committed == command.page(docs, origin.head("ABLATIONS.md"))
    assert len(committed.split()) <= 1500
    head, rows = csv_tables.read(docs / command.FILE)
    known = [[row.part, row.change, row.model] for row in ROWS]
    assert [row for row in known if row in [each[:3] for each in rows]] == [each[:3] for each in rows]
    assert len(head) == 3 + 2 * len(table.SLICES)


def test_the_command_runs_a_row_and_writes_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        table,
        "SLICES",
        {"nine domains": table.Slice("domains", "continuous knobs", 2, "regret / static", ("plain/7",))},
    )
    monkeypatch.setattr(command, "SLICES", table.SLICES)
    (tmp_path / "results" / "ablations").mkdir(parents=True)
    asked = ["--only", "budget: none", "--page", str(tmp_path / "ABLATIONS.md"), "--jobs", "1"]
    assert command.main(asked) == 0
    assert "| budget | none | " in (tmp_path / "ABLATIONS.md").read_text()
    assert command.main(["--only", "no such row"]) == 1
    assert "no row has" in capsys.readouterr().err
