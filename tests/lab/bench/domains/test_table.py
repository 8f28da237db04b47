"""A measured table as a stream: typing of knobs, snapping, exact losses, invalid configurations, malformed files."""

from pathlib import Path

import numpy as np
import pytest

from rasp_lab.bench.domains.base import InvalidConfiguration
from rasp_lab.bench.domains.measurements import MeasurementTable, read_csv, read_npz
from rasp_lab.bench.domains.table import TableDomain
from rasp_lab.bench.domains.wrappers import Outliers
from rasp_tuner.errors import InvalidValue
from rasp_tuner.space import Categorical, Int

HEADER = "threads,codec,fixed,machine,cores,time_ms,mb_per_s\n"
ROWS = """\
1,lz4,7,small,2,40,10
1,zstd,7,small,2,80,5
16,lz4,7,small,2,,
4,lz4,7,small,2,20,20
4,zstd,7,small,2,60,8
1,lz4,7,large,32,40,10
1,zstd,7,large,32,70,6
16,lz4,7,large,32,5,80
4,lz4,7,large,32,12,30
4,zstd,7,large,32,30,12
"""
KNOBS, CONTEXT, METRICS = ["threads", "codec", "fixed"], ["machine", "cores"], ["time_ms", "mb_per_s"]
SMALL, LARGE = 0, 1  # contexts in the order of the file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(HEADER + ROWS)
    return path


@pytest.fixture
def table(path: Path) -> MeasurementTable:
    return read_csv(path, KNOBS, CONTEXT, METRICS)


def theta(domain: TableDomain, threads: int, codec: str) -> np.ndarray:
    return domain.theta(domain.space.to_unit({"threads": [1, 4, 16].index(threads), "codec": codec}))


def visit(domain: TableDomain, row: int) -> object:
    return next(omega for omega in domain.build_sequence(500, 0) if omega.row == row)


def test_knobs_are_typed_and_constants_left_out(table: MeasurementTable) -> None:
    domain = TableDomain(table, {"time_ms": "min"})
    assert domain.space.knobs == {"threads": Int(0, 2), "codec": Categorical(["lz4", "zstd"])}


def test_contexts_are_numbers_and_one_hot_words(table: MeasurementTable) -> None:
    np.testing.assert_array_equal(table.contexts, [[0.0, 1.0, 2.0], [1.0, 0.0, 32.0]])
    assert TableDomain(table, {"time_ms": "min"}).context_dim == 3


def test_log_loss_is_the_log_of_how_many_times_worse_than_the_best_of_the_context(table: MeasurementTable) -> None:
    domain = TableDomain(table, {"time_ms": "min"})
    small, large = visit(domain, SMALL), visit(domain, LARGE)
    assert domain.true_loss(theta(domain, 1, "zstd"), small) == pytest.approx(np.log(80 / 20))
    assert domain.true_loss(theta(domain, 1, "zstd"), large) == pytest.approx(np.log(70 / 5))
    assert domain.true_loss(theta(domain, 4, "lz4"), small) == domain.minimum(small) == 0.0
    assert domain.metric_fn(theta(domain, 4, "lz4"), small, np.random.default_rng(0)) == {
        "log_time_ms": pytest.approx(np.log(20))
    }


def test_raw_loss_is_the_objective_turned_so_that_less_is_better(table: MeasurementTable) -> None:
    domain = TableDomain(table, {"mb_per_s": "max", "time_ms": "min"}, loss="raw")
    large = visit(domain, LARGE)
    assert domain.true_loss(theta(domain, 16, "lz4"), large) == domain.minimum(large) == -80.0
    assert domain.metric_fn(theta(domain, 16, "lz4"), large, np.random.default_rng(0)) == {
        "mb_per_s": 80.0,
        "time_ms": 5.0,
    }
    assert {name: metric.direction for name, metric in domain.metrics.items()} == {"mb_per_s": "max", "time_ms": "min"}


def test_the_log_loss_of_a_metric_that_should_be_large_counts_times_below_the_best(table: MeasurementTable) -> None:
    domain = TableDomain(table, {"mb_per_s": "max"})
    assert domain.true_loss(theta(domain, 1, "lz4"), visit(domain, SMALL)) == pytest.approx(np.log(20 / 10))


def test_a_configuration_that_cannot_run_fails_and_costs_the_worst_of_its_context(table: MeasurementTable) -> None:
    domain = TableDomain(table, {"time_ms": "min"})
    settings = theta(domain, 16, "lz4")
    with pytest.raises(InvalidConfiguration, match=r"'threads': 16.0.*cannot run in context 0 of table"):
        domain.metric_fn(settings, visit(domain, SMALL), np.random.default_rng(0))
    assert domain.true_loss(settings, visit(domain, SMALL)) == pytest.approx(np.log(80 / 20))
    assert domain.true_loss(settings, visit(domain, LARGE)) == 0.0


def test_unmeasured_settings_stand_for_the_nearest_measured_ones(table: MeasurementTable) -> None:
    domain = TableDomain(table, {"time_ms": "min"})  # 16 threads with zstd was never measured
    assert domain.configuration(theta(domain, 16, "zstd")) == {"threads": 4.0, "codec": "zstd", "fixed": 7.0}
    assert domain.configuration(theta(domain, 16, "lz4")) == {"threads": 16.0, "codec": "lz4", "fixed": 7.0}


def test_every_measured_configuration_can_be_reached_and_none_beats_the_minimum(table: MeasurementTable) -> None:
    domain = TableDomain(table, {"time_ms": "min"})
    rng = np.random.default_rng(0)
    points = [domain.theta(point) for point in rng.uniform(size=(200, 2))]
    assert len({tuple(domain.configuration(point).values()) for point in points}) == 5
    for omega in (visit(domain, SMALL), visit(domain, LARGE)):
        assert min(domain.true_loss(point, omega) for point in points) == domain.minimum(omega)


def test_the_default_is_central_and_runs_everywhere_or_as_given(table: MeasurementTable) -> None:
    domain = TableDomain(table, {"time_ms": "min"})
    assert domain.configuration(domain.theta(domain.default)) == {"threads": 4.0, "codec": "lz4", "fixed": 7.0}
    today = {"threads": 16, "codec": "lz4", "fixed": 7}
    domain = TableDomain(table, {"time_ms": "min"}, default=today)
    assert domain.configuration(domain.theta(domain.default)) == today
    domain = TableDomain(table, {"time_ms": "min"}, default={"threads": "16.0", "codec": "lz4"})  # as text, no constant
    assert domain.configuration(domain.theta(domain.default)) == today
    with pytest.raises(InvalidValue, match=r"default \(--default\) must be a measured configuration"):
        TableDomain(table, {"time_ms": "min"}, default={"threads": 16, "codec": "zstd", "fixed": 7})


def test_the_default_runs_everywhere_even_if_the_middle_does_not(tmp_path: Path) -> None:
    path = tmp_path / "middle.csv"
    path.write_text("a,where,time\n1,x,3\n2,x,\n3,x,4\n1,y,\n2,y,5\n3,y,6\n")
    domain = TableDomain(read_csv(path, ["a"], ["where"], ["time"]), {"time": "min"})
    assert domain.configuration(domain.theta(domain.default)) == {"a": 3.0}


def test_contexts_recur_in_blocks_and_the_stream_is_pure(table: MeasurementTable) -> None:
    domain = TableDomain(table, {"time_ms": "min"}, block=(3, 6), context_noise=0.1)
    stream = domain.build_sequence(200, 1)
    rows = [domain.regime(omega) for omega in stream]
    lengths = np.diff([0, *(np.flatnonzero(np.diff(rows)) + 1)])
    assert set(rows) == {SMALL, LARGE}
    assert set(lengths) == {3, 4, 5, 6}
    seen = np.array([domain.context_fn(omega) for omega in stream])
    np.testing.assert_array_equal(seen, [domain.context_fn(omega) for omega in domain.build_sequence(200, 1)])
    assert not np.array_equal(seen, [domain.context_fn(omega) for omega in domain.build_sequence(200, 2)])
    spread = (seen - table.contexts[rows]).std(axis=0) / table.contexts.std(axis=0)
    np.testing.assert_allclose(spread, 0.1, rtol=0.2)


def test_noise_has_the_size_asked_for(table: MeasurementTable) -> None:
    domain = TableDomain(table, {"time_ms": "min"}, noise=0.05)
    omega, rng = visit(domain, SMALL), np.random.default_rng(0)
    seen = [domain.metric_fn(theta(domain, 1, "lz4"), omega, rng)["log_time_ms"] for _ in range(3000)]
    assert np.mean(seen) == pytest.approx(np.log(40), abs=0.005)
    assert np.std(seen) == pytest.approx(0.05, rel=0.1)


def test_one_context_is_a_stream_too(tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text("a,where,time\n1,here,3\n2,here,4\n")
    domain = TableDomain(read_csv(path, ["a"], ["where"], ["time"]), {"time": "min"}, context_noise=1.0)
    assert {domain.regime(omega) for omega in domain.build_sequence(50, 0)} == {0}


def test_wrappers_take_tables_even_where_the_default_cannot_run(table: MeasurementTable) -> None:
    domain = Outliers(TableDomain(table, {"time_ms": "min"}, default={"threads": 16, "codec": "lz4", "fixed": 7}))
    assert domain.task().metrics == domain.inner.metrics
    np.testing.assert_array_equal(domain.default, domain.inner.default)


def test_repeated_measurements_are_averaged_and_missing_pairs_cannot_run(tmp_path: Path) -> None:
    path = tmp_path / "repeats.csv"
    path.write_text(
        "\ufeffa,where,time\n1,x,3\n1,x,5\n1,x,\n2,x,7\n1,y,1\n", encoding="utf-8"
    )  # Excel writes that mark
    table = read_csv(path, ["a"], ["where"], ["time"])
    np.testing.assert_array_equal(table.metrics["time"], [[4.0, 7.0], [1.0, np.nan]])


def test_an_npz_file_gives_the_same_domain(tmp_path: Path, table: MeasurementTable) -> None:
    path = tmp_path / "table.npz"
    np.savez(
        path,
        knobs=np.array(table.knobs),
        configurations=np.array(table.configurations),
        contexts=table.contexts,
        time_ms=table.metrics["time_ms"],
    )
    again = read_npz(path, ["time_ms"])
    assert (again.knobs, again.configurations) == (table.knobs, table.configurations)
    np.testing.assert_array_equal(again.metrics["time_ms"], table.metrics["time_ms"])
    np.testing.assert_array_equal(again.contexts, table.contexts)


def test_npz_knobs_need_no_names(tmp_path: Path) -> None:
    path = tmp_path / "table.npz"
    np.savez(path, configurations=np.array([[1, 2], [3, 2]]), contexts=np.zeros((1, 1)), time=np.array([[1.0, 2.0]]))
    assert read_npz(path, ["time"]).knobs == ("x1", "x2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"lacks the columns \['threads'.*it has \[\]"),
        (HEADER, "has a header but no rows"),
        (HEADER.replace("codec", "kodek") + ROWS, r"lacks the columns \['codec'\]"),
        (
            HEADER + ROWS.replace(",40,", ",fast,"),
            "line 2: metric 'time_ms' must be a finite number or empty, got 'fast'",
        ),
        (
            HEADER + ROWS.replace(",40,", ",inf,"),
            "line 2: metric 'time_ms' must be a finite number or empty, got 'inf'",
        ),
    ],
)
def test_malformed_csv_files_are_refused(path: Path, text: str, message: str) -> None:
    path.write_text(text)
    with pytest.raises(InvalidValue, match=message):
        read_csv(path, KNOBS, CONTEXT, METRICS)


def test_a_file_that_is_not_there_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="must be a readable CSV file"):
        read_csv(tmp_path / "none.csv", KNOBS, CONTEXT, METRICS)
    for content in (
        b"\xff\xfe\x00\x81",
        HEADER.encode() + b"1" * 200_000,
    ):  # not UTF-8; longer than the csv module takes
        (tmp_path / "binary.csv").write_bytes(content)
        with pytest.raises(InvalidValue, match="must be a readable CSV file"):
            read_csv(tmp_path / "binary.csv", KNOBS, CONTEXT, METRICS)


@pytest.mark.parametrize(
    ("knobs", "context", "metrics"), [([], CONTEXT, METRICS), (KNOBS, [], METRICS), (KNOBS, CONTEXT, [])]
)
def test_each_kind_of_column_must_be_named(
    path: Path, knobs: list[str], context: list[str], metrics: list[str]
) -> None:
    with pytest.raises(
        InvalidValue, match=r"\(--(knobs|context|metrics)\) must name at least one column of .*; it has \['threads'"
    ):
        read_csv(path, knobs, context, metrics)


ARRAYS = {"configurations": np.array([[1, 2], [3, 4]]), "contexts": np.zeros((1, 1)), "time": np.array([[1.0, 2.0]])}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"time": None}, "lacks the array 'time'"),
        ({"configurations": np.array([1, 2])}, r"configurations must have shape \[n, d\]"),
        ({"configurations": np.array([[1, 2], [1, 2]])}, "configurations must differ"),
        ({"contexts": np.array([[np.nan]])}, "contexts must be finite numbers"),
        ({"contexts": np.zeros((0, 1))}, "at least one context and one configuration"),
        ({"time": np.array([1.0, 2.0])}, r"metric 'time' must have shape \[m, n\] = \(1, 2\)"),
        ({"time": np.array([[1.0, np.inf]])}, "metric 'time' must be finite"),
        ({"knobs": np.array(["a"])}, "one for each column of configurations"),
    ],
)
def test_malformed_npz_files_are_refused(tmp_path: Path, change: dict[str, np.ndarray | None], message: str) -> None:
    arrays = {name: array for name, array in {**ARRAYS, **change}.items() if array is not None}
    np.savez(tmp_path / "table.npz", **arrays)
    with pytest.raises(InvalidValue, match=message):
        read_npz(tmp_path / "table.npz", ["time"])


def test_what_is_not_an_npz_file_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "objects.npz", configurations=np.array([None, {}], dtype=object))
    np.save(tmp_path / "single.npy", np.zeros(3))
    (tmp_path / "text.npz").write_text("a,b\n")
    for name in ("objects.npz", "single.npy", "text.npz", "none.npz"):
        with pytest.raises(InvalidValue, match="must be an npz file of plain arrays"):
            read_npz(tmp_path / name, ["time"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"metrics": {}}, "metrics must name at least one of"),
        ({"metrics": {"speed": "max"}}, "metrics has unknown name 'speed'"),
        ({"loss": "square"}, r"loss \(--loss\) must be 'log' or 'raw', got 'square'"),
        ({"noise": -0.1}, "noise must not be negative"),
        ({"context_noise": -0.1}, "context_noise must not be negative"),
        ({"block": (0, 3)}, "block must be"),
        ({"block": (5, 3)}, "block must be"),
    ],
)
def test_bad_settings_are_refused(table: MeasurementTable, settings: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        TableDomain(table, **{"metrics": {"time_ms": "min"}, **settings})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,where,time\n1,x,3\n1,y,4\n", "at least one knob must have two levels"),
        ("a,where,time\n1,x,3\n2,x,0\n", r"loss='log' \(--loss log\) needs positive metrics, got 0.0 in 'time'"),
        ("a,where,time\n1,x,3\n2,x,3\n1,y,\n", "every context needs a valid configuration, got none in context 1"),
    ],
)
def test_tables_without_a_stream_in_them_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(InvalidValue, match=message):
        TableDomain(read_csv(path, ["a"], ["where"], ["time"]), {"time": "min"})
