"""The seven programs of `rasp_lab.find.real_programs`: sound studies, legal grids, and what is missing is said."""

import contextlib
import itertools
import subprocess
import sys

import pytest

from rasp_lab import REPOSITORY
from rasp_lab.bench.report.tables import markdown
from rasp_lab.find import real_programs
from rasp_lab.find.real_studies import STUDIES, packages_needed, prepared, programs_needed
from rasp_lab.pages import csv_tables, marked
from rasp_tuner.errors import InvalidValue
from rasp_tuner.tune import StopRules, build_study


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_a_program_has_a_sound_study_and_a_legal_grid(study, tmp_path):
    if study.needs():
        assert study.needs().startswith(("no ", "not installed here: "))
        return
    prepared(study, tmp_path)
    with contextlib.chdir(tmp_path):
        built = build_study(dict(study.fields))
        assert len(built.find_inputs()) == len(study.fields.get("inputs", ()))
    assert StopRules.parse(study.fields).steps >= 40
    assert built.assumed == ()
    settings = [dict(zip(study.grid, values, strict=True)) for values in itertools.product(*study.grid.values())]
    assert len(settings) <= 64
    for setting in settings:
        ran, _ = built.space.what_ran(built.default, setting)
        assert {name: ran[name] for name in setting} == setting
    assert all(built.default[name] in values for name, values in study.grid.items())  # the best is no worse


def test_commands_are_shown_as_one_would_type_them():
    done = subprocess.run(
        [sys.executable, "-m", "rasp_lab.find.real_programs", "--show", "sort", "pandas"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    sort, pandas = done.stdout.splitlines()
    assert sort.startswith("LOCPATH=./locale rasp tune --name sort --knob locale=cat:en_US.UTF-8,C ")
    assert sort.endswith("-- sort -S '{buffer}K' '--parallel={threads}' lines.txt")
    assert pandas.endswith("--call read:read")


def test_what_is_missing_is_said():
    assert programs_needed("sh", "no-such-program")() == "no program no-such-program here"
    assert packages_needed("json", "no_such_package")().startswith("not installed here: no_such_package")
    assert packages_needed("json")() == ""


def row(name: str, verdict: str) -> real_programs.Row:
    return real_programs.Row(name, "a=1", "a=2", verdict, "0.5 (0.4 to 0.6)", "0.5 (0.4 to 0.7): a=2", "3 of 4", "none")


def test_rows_of_programs_that_ran_again_replace_those_of_before(tmp_path):
    file = tmp_path / "table.csv"
    before = [row("gcc, a.c", "0.9"), row("gcc, b.c", "0.9"), row("x264", "0.5")]
    real_programs.keep(real_programs.table_of(before), file)
    found = real_programs.keep(real_programs.table_of([row("gcc, a.c", "0.7"), row("sort", "0.2")]), file)
    assert [(line[0], line[3]) for line in found[1]] == [("sort", "0.2"), ("gcc, a.c", "0.7"), ("x264", "0.5")]
    assert csv_tables.read(file) == found


def test_a_page_has_a_line_for_each_input_between_its_marks(tmp_path):
    page = tmp_path / "PAGE.md"
    page.write_text(f"# A page\n\n{real_programs.START}\n\nold\n\n{marked.END}\n\nProse.\n")
    real_programs.write_page(real_programs.table_of([row("sort", "0.2"), row("duckdb", "same")]), page, "On 2 cores.")
    before, measured, after = marked.read(page, real_programs.START)
    assert (before, after) == ("# A page\n\n", "\n\nProse.\n")
    assert measured.startswith("On 2 cores.\n\n| program | recommended | verdict | checked | best of grid |\n")
    assert measured.splitlines()[-1] == "| duckdb | a=2 | same | 0.5 (0.4 to 0.6) | 0.5 (0.4 to 0.7) |"
    page.write_text("# Without marks\n")
    with pytest.raises(InvalidValue, match="must have the lines"):
        real_programs.write_page(real_programs.table_of([row("sort", "0.2")]), page, "")


def test_the_page_shows_what_is_in_its_file():
    table = csv_tables.read(REPOSITORY / "docs" / "results" / "real-programs.csv")
    measured = marked.read(REPOSITORY / "docs" / "TUNE.md", real_programs.START).measured
    assert measured.endswith(markdown(real_programs.page_table(table)))
    assert table[0] == real_programs.HEAD


def test_a_page_without_a_file_is_refused_before_anything_runs():
    done = subprocess.run(
        [sys.executable, "-m", "rasp_lab.find.real_programs", "sort", "--page", "docs/TUNE.md"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "give both" in done.stderr
