"""Tables that a command prints are kept beside their page."""

from importlib.util import find_spec

import pytest

from rasp_lab.pages import csv_tables, measure, origin
from rasp_tuner import InvalidValue


def test_every_command_is_a_module_and_every_table_is_there():
    for page, tables in measure.COMMANDS.items():
        assert page in origin.load()
        for name, command in tables.items():
            assert find_spec(command.split()[0]) is not None
            assert (measure.FOLDER / f"{name}.csv").is_file()


def test_a_table_is_written_if_it_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "FOLDER", tmp_path)
    monkeypatch.setattr(measure, "COMMANDS", {"PAGE.md": {"some": "module --seeds 3"}})
    monkeypatch.setattr(measure, "printed", lambda command: (["a"], [[command]]))
    assert measure.measure("PAGE.md") == ["some"]
    assert csv_tables.read(tmp_path / "some.csv") == (["a"], [["module --seeds 3"]])
    assert measure.measure("PAGE.md") == []
    with pytest.raises(InvalidValue, match=r"no command makes the tables of OTHER.md; there are PAGE.md"):
        measure.measure("OTHER.md")


def test_what_is_no_table_is_refused():
    assert measure.table_in("said\n| a | b |\n|---|---:|\n| 1 | |\n") == (["a", "b"], [["1", ""]])
    for text in ("", "| a |\n|---|\n", "| a |\n|---|\n| 1 | 2 |\n"):
        with pytest.raises(InvalidValue, match="must print one table"):
            measure.table_in(text)
