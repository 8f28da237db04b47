"""TableFile: where a table lies, how to read it, and the fingerprint that keeps finished runs apart."""

import copy
from dataclasses import replace
from pathlib import Path

import pytest

from rasp_lab.bench.domains.table import TableFile
from rasp_lab.bench.runner import protocol, run
from rasp_tuner.errors import InvalidValue

ROWS = "threads,codec,machine,cores,time,speed\n1,lz4,a,2,3,9\n4,lz4,a,2,2,8\n1,zstd,b,8,5,7\n4,lz4,b,8,1,6\n"


@pytest.fixture
def file(tmp_path: Path) -> TableFile:
    path = tmp_path / "runs.csv"
    path.write_text(ROWS)
    return TableFile(str(path), (("time", "min"),), ("threads", "codec"), ("machine",))


@pytest.mark.parametrize(
    "change",
    [
        {"metrics": (("time", "max"),)},
        {"metrics": (("speed", "min"),)},
        {"metrics": (("time", "min"), ("speed", "max"))},
        {"knobs": ("threads",)},
        {"context": ("machine", "cores")},
        {"noise": 5.0},
        {"loss": "raw"},
        {"block": (1, 3)},
        {"default": (("threads", "1"), ("codec", "lz4"))},
        {"context_noise": 0.5},
    ],
)
def test_whatever_changes_the_domain_changes_the_key_of_its_runs(file: TableFile, change: dict[str, object]) -> None:
    assert key(replace(file, **change)) != key(file)


def test_other_content_changes_the_key_and_another_folder_does_not(file: TableFile, tmp_path: Path) -> None:
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "runs.csv").write_text(ROWS)
    before = key(file)
    assert key(replace(file, path=str(tmp_path / "else" / "runs.csv"))) == before
    Path(file.path).write_text(ROWS.replace("3", "4"))
    assert key(replace(file)) != before


def test_runs_of_suites_keep_their_names() -> None:
    assert protocol.Cell("6_Smooth_Quadratic", "rasp", 3, 100).key == "6_Smooth_Quadratic__rasp__T100__seed3"


def test_a_worker_gets_the_same_key_and_refuses_a_file_that_has_changed(file: TableFile, tmp_path: Path) -> None:
    cells = protocol.plan_table(file, ["static"], 1, 5)
    assert [cell.key for cell in copy.deepcopy(cells)] == [cell.key for cell in cells]
    Path(file.path).write_text(ROWS.replace("3", "4"))
    with pytest.raises(InvalidValue, match=r"runs.csv has changed since the runs were planned; start again"):
        run.run_plan(cells, tmp_path / "out")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match=r"none.csv must be a readable file: .*No such file"):
        TableFile(str(tmp_path / "none.csv"), (("time", "min"),))


def key(file: TableFile) -> str:
    return protocol.plan_table(file, ["static"], 1, 5)[0].key
