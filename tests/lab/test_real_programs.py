"""The seven programs of `rasp_lab.find.real_programs`: sound studies, legal grids, and what is missing is said."""

import contextlib
import itertools
import subprocess
import sys

import pytest

from rasp_lab.find import real_programs
from rasp_lab.find.real_studies import STUDIES, packages_needed, prepared, programs_needed
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


def test_a_table_has_a_line_for_each_input():
    row = real_programs.Row("sort", "a=1", "a=2", "0.5", "0.5", "0.5: a=2", "3 of 4", "none")
    head, _, line = real_programs.table_of([row]).splitlines()
    assert head.count("|") == line.count("|") == 9
