"""Reading tables as people have them: packed, from a spreadsheet, wide, with words for contexts; and their mistakes."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from rasp_lab.bench.domains.measurements import MeasurementTable, read_csv, read_npz
from rasp_lab.bench.domains.table import TableFile
from rasp_tuner.errors import InvalidValue

PLAIN = "a,where,time\n1,x,3\n2,x,7\n1,y,1\n2,y,5\n"


def read(path: Path, text: str | bytes) -> MeasurementTable:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_csv(path, ["a"], ["where"], ["time"])


def same(one: MeasurementTable, other: MeasurementTable) -> None:
    assert (one.knobs, one.configurations) == (other.knobs, other.configurations)
    np.testing.assert_array_equal(one.contexts, other.contexts)
    assert list(one.metrics) == list(other.metrics)
    for name, values in one.metrics.items():
        np.testing.assert_array_equal(values, other.metrics[name])


@pytest.mark.parametrize(
    "text",
    [
        gzip.compress(PLAIN.encode(), mtime=0),
        gzip.compress(b"\xef\xbb\xbf" + PLAIN.replace("\n", "\r\n").encode(), mtime=0),
        PLAIN.replace("\n", "\r\n"),
        PLAIN.replace("\n", "\r"),
        PLAIN.replace(",", ", "),
        PLAIN.replace("\n", "\n\n"),
        PLAIN.replace("x", '"x"').replace("where", '"where"'),
    ],
    ids=["gzip", "gzip of Windows", "Windows", "old Mac", "spaces", "blank lines", "quotes"],
)
def test_files_as_programs_write_them_read_the_same(tmp_path: Path, text: str | bytes) -> None:
    same(read(tmp_path / "other", text), read(tmp_path / "plain.csv", PLAIN))


def test_quoted_commas_and_line_ends_belong_to_the_cell(tmp_path: Path) -> None:
    table = read(tmp_path / "quoted.csv", 'a,where,time\r\n"lz4, fast",x,3\r\n"zstd\r\nslow",x,7\r\n')
    assert table.column("a") == ["lz4, fast", "zstd\r\nslow"]
    with pytest.raises(InvalidValue, match="line 4: metric 'time' must be a finite number or empty, got 'soon'"):
        read(tmp_path / "quoted.csv", 'a,where,time\n"lz4\nfast",x,3\n2,x,soon\n')


@pytest.mark.parametrize("blank", ["", " ", "NA", "nan", "N/A", "null"])
def test_what_programs_write_for_a_missing_value_cannot_run(tmp_path: Path, blank: str) -> None:
    table = read(tmp_path / "blanks.csv", PLAIN.replace("2,x,7", f"2,x,{blank}"))
    np.testing.assert_array_equal(table.metrics["time"], [[3.0, np.nan], [1.0, 5.0]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PLAIN.replace("2,x,7", "2,x,7,5"), "line 3 has 4 cells, but the header has 3"),
        (PLAIN.replace("2,x,7", "2,x"), "line 3 has 2 cells, but the header has 3"),
        ("a,where,time,a\n1,x,3,4\n", "has two columns named 'a'"),
        (gzip.compress(PLAIN.encode(), mtime=0)[:-9], "must be a readable CSV file"),
        (b"\x1f\x8b\x08 nothing packed here", "must be a readable CSV file"),
    ],
    ids=["long row", "short row", "same names", "cut off", "not gzip"],
)
def test_broken_files_are_refused(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        read(tmp_path / "broken.csv", text)


def test_a_column_is_one_thing_only(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(PLAIN)
    for knobs, context in ((["a", "a"], ["where"]), (["a"], ["a"]), (["a", "time"], ["where"])):
        with pytest.raises(InvalidValue, match=r"each column can be one knob, context or metric, got '.*' twice"):
            read_csv(path, knobs, context, ["time"])


WIDE = "a,time_x,time_y,size_y,size_x,limit\n1,3,1,10,20,9\n2,7,,30,40,9\n"


def test_a_star_reads_one_context_from_each_column_that_fits(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text(WIDE)
    table = read_csv(path, ["a"], [], ["time_*", "size_*", "limit"])
    assert table.configurations == ((1.0,), (2.0,))
    np.testing.assert_array_equal(table.contexts, [[1.0, 0.0], [0.0, 1.0]])
    np.testing.assert_array_equal(table.metrics["time_*"], [[3.0, 7.0], [1.0, np.nan]])
    np.testing.assert_array_equal(table.metrics["size_*"], [[20.0, 40.0], [10.0, 30.0]])
    np.testing.assert_array_equal(table.metrics["limit"], [[9.0, 9.0], [9.0, 9.0]])


def test_stars_that_stand_for_numbers_are_a_feature_beside_the_other_context(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text("a_ms,where,load,4_ms,16_ms\n1,x,0.5,3,1\n2,x,0.5,7,6\n1,y,0.7,3,1\n2,y,0.7,4,8\n")
    table = read_csv(path, ["a_ms"], ["where", "load"], ["*_ms"])  # the knob fits too, but is a knob
    np.testing.assert_array_equal(
        table.contexts, [[1.0, 0.0, 0.5, 4.0], [0.0, 1.0, 0.7, 4.0], [1.0, 0.0, 0.5, 16.0], [0.0, 1.0, 0.7, 16.0]]
    )
    np.testing.assert_array_equal(table.metrics["*_ms"], [[3.0, 7.0], [3.0, 4.0], [1.0, 6.0], [1.0, 8.0]])


def test_a_star_that_fits_nothing_is_refused_and_a_column_with_a_star_is_a_column(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text(WIDE)
    with pytest.raises(InvalidValue, match=r"lacks the columns \['speed_\*'\]; it has \['a', 'time_x'"):
        read_csv(path, ["a"], [], ["speed_*"])
    path.write_text(PLAIN.replace("time", "ti*me"))
    np.testing.assert_array_equal(read_csv(path, ["a"], ["where"], ["ti*me"]).metrics["ti*me"], [[3, 7], [1, 5]])


def test_contexts_of_an_npz_file_may_be_words(tmp_path: Path) -> None:
    path = tmp_path / "words.npz"
    np.savez(
        path,
        knobs=np.array(["codec", "threads"]),
        configurations=np.array([["lz4", "1"], ["zstd", "16"], ["lz4", "16"]]),
        contexts=np.array([["small", "2"], ["large", "32"]]),
        time=np.array([[3.0, 2.0, np.nan], [1.0, 5.0, 6.0]]),
    )
    table = read_npz(path, ["time"])
    assert table.configurations == (("lz4", 1.0), ("zstd", 16.0), ("lz4", 16.0))
    np.testing.assert_array_equal(table.contexts, [[0.0, 1.0, 2.0], [1.0, 0.0, 32.0]])


ARRAYS = {"configurations": np.array([[1, 2], [3, 4]]), "contexts": np.zeros((1, 1)), "time": np.array([[1.0, 2.0]])}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"contexts": None}, "lacks the array 'contexts'; it has \\['configurations', 'time'\\]"),
        ({"contexts": np.zeros(1)}, r"contexts must have shape \[m, d_c\], got \(1,\)"),
        ({"contexts": np.zeros((1, 0))}, r"contexts must have shape \[m, d_c\], got \(1, 0\)"),
        ({"configurations": np.zeros((2, 0))}, r"configurations must have shape \[n, d\], got \(2, 0\)"),
        ({"knobs": np.array("a")}, r"knobs must be 2 names, one for each column of configurations, got shape \(\)"),
        ({"knobs": np.array(["a", "a"])}, "knobs must have different names, got"),
        ({"time": np.array([[1.0], [2.0]])}, r"= \(1, 2\), a row for each context and a column for each config"),
        ({"time": np.array([["fast", "slow"]])}, "metric 'time' must be numbers: could not convert"),
    ],
)
def test_npz_files_whose_arrays_disagree_are_refused(
    tmp_path: Path, change: dict[str, np.ndarray | None], message: str
) -> None:
    arrays = {name: array for name, array in {**ARRAYS, **change}.items() if array is not None}
    np.savez(tmp_path / "table.npz", **arrays)
    with pytest.raises(InvalidValue, match=message):
        read_npz(tmp_path / "table.npz", ["time"])


@pytest.mark.parametrize(
    ("path", "name"),
    [("runs.csv", "runs"), ("runs.csv.gz", "runs"), ("runs.v2.csv", "runs.v2"), ("a,b \n.csv", "a_b_"), ("x", "x")],
)
def test_a_table_is_named_after_its_file(tmp_path: Path, path: str, name: str) -> None:
    (tmp_path / path).write_text(PLAIN)
    assert TableFile(str(tmp_path / path), (("time", "min"),), ("a",), ("where",)).name == name
