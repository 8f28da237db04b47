"""src/rasp_lab/real on tiny runs: every system runs every legal setting, rows survive a file, intervals are right."""

import doctest
import tempfile
from pathlib import Path

import numpy as np
import pytest

from rasp_lab.real import analysis, duckdb_queries, harness, page, picture, redis_server, sqlite_pragmas
from rasp_lab.real import system as system_module
from rasp_lab.real.__main__ import main
from rasp_lab.real.system import STRETCH, RunFailed, System, Work, coarse_grid, new_seed
from rasp_lab.real.systems import ON_GPU, SYSTEMS, load
from rasp_tuner import Int

ROOT = Path(__file__).parents[3]


class Toy(System):
    """A system without a program behind it, and without noise: the right x is 2 for one kind and 8 for the other."""

    title = "Toy"
    knobs = dict(x=(Int(0, 10), 5))  # noqa: C408, RUF012
    context = ("load",)
    kinds = ("a", "b")

    @classmethod
    def version(cls):
        return "Toy 1"

    def work(self, kind, rng):
        return Work(kind, {"load": float(kind == "b")}, new_seed(rng))

    def run(self, params, work):
        if params["x"] == 0:
            raise RunFailed("zero")
        return 1.0 + abs(params["x"] - (2 if work.kind == "a" else 8))


class ByHand(Toy):
    """The grid has a setting that is better than the default, one that is worse, and one that fails."""

    grid = coarse_grid(Toy.knobs, {"x": (9, 0, 6)})


@pytest.fixture
def toy(tmp_path):
    return Toy(tmp_path)


@pytest.fixture(params=SYSTEMS)
def system(request):
    """Each system, not yet prepared; or a skip that says what it needs."""
    found = load(request.param)
    if reason := found.missing():
        pytest.skip(f"no {request.param}: it needs {reason}")
    with tempfile.TemporaryDirectory(prefix="rasp-real-") as folder:  # pytest's own is closed to other users
        yield found(Path(folder))


def test_every_kind_of_work_runs_with_the_default_and_with_the_ends_of_every_knob(system):
    rng = np.random.default_rng(0)
    with system:
        for kind in system.kinds:
            assert system.run(system.default, system.work(kind, rng)) > 0.0
        for name, knob in system.space.items():
            for unit in (0.0, 1.0):
                changed = {**system.default, name: knob.from_unit(unit)}
                assert system.run(changed, system.work(kind, rng)) > 0.0, changed
        servers = [server for _, server in getattr(system, "_servers", {}).values()]
        servers += [server] if (server := getattr(system, "_server", None)) else []
    assert all(server.poll() is not None for server in servers)  # nothing is left running


def test_the_work_of_a_run_depends_on_its_seed_alone(system):
    work = system.sequence(60, 3)
    assert len(work) == 60
    assert {piece.kind for piece in work} == set(system.kinds)
    assert work == system.sequence(60, 3)
    assert work[:30] == system.sequence(30, 3)
    assert work != system.sequence(60, 4)


def test_all_agents_do_every_piece_of_work_once_in_shuffled_order(toy):
    rows = harness.measure(toy, 30, 0)
    tune = [row for row in rows if row.phase == "tune"]
    orders = []
    for step in range(30):
        here = [row for row in tune if row.step == step]
        assert sorted(row.agent for row in here) == sorted(harness.AGENTS)
        assert len({row.kind for row in here}) == 1
        orders.append([row.agent for row in here])
    assert len({tuple(order) for order in orders}) > 20
    assert all(row.params == "" for row in rows if row.agent in ("static", "static-again"))


def test_a_failed_run_is_told_as_one(toy):
    rows = harness.measure(toy, 60, 0)
    failed = [row for row in rows if row.failed]
    assert failed
    assert all(row.params == "[0]" for row in failed)
    assert {row.agent for row in rows if row.params == "[0]"} == {row.agent for row in failed}
    assert sum(row.agent == "rasp" for row in failed) <= 3  # its time was the shortest, and yet nobody wants it again


def test_the_recommendation_is_compared_with_the_default_in_pairs(toy):
    rows = harness.measure(toy, 60, 0)
    found = analysis.by_kind([rows], "rasp")
    assert set(found) == {"a", "b"}
    assert all(effect.pairs == harness.PAIRS for effect in found.values())
    assert analysis.recommended([rows], "rasp").value < 1.0  # the cost has no noise, and 5 is right for neither kind
    assert analysis.recommended([rows], "static-again").value == 1.0


def grid_rows(rows, agent=harness.BY_HAND):
    return [row for row in rows if (row.phase, row.agent) == ("grid", agent)]


def test_the_search_by_hand_runs_each_setting_once_on_each_kind_of_work_and_takes_the_best(tmp_path):
    rows = harness.measure(ByHand(tmp_path), 30, 0)
    found = grid_rows(rows)
    assert sorted((row.step, row.kind) for row in found) == [(i, kind) for i in range(3) for kind in ("a", "b")]
    assert [row.params for row in sorted(found, key=lambda row: (row.step, row.kind))][::2] == ["[9]", "[0]", "[6]"]
    assert {row.step for row in found if row.failed} == {1}
    assert sorted((row.kind, row.params) for row in grid_rows(rows, "static")) == [("a", ""), ("b", "")]
    own = [row for row in rows if row.phase in ("tune", "final") and row.agent == harness.BY_HAND]
    assert len(own) == 30 + 2 * harness.PAIRS
    assert {row.params for row in own} == {"[6]"}  # sqrt(5/4 * 3/4) < 1 < sqrt(8/4 * 2/4)


def test_the_best_of_a_grid_is_that_of_ratios_and_a_failing_one_never(tmp_path):
    def rows(*costs):
        return [
            harness.Row("grid", max(0, i), kind, "static" if i < 0 else harness.BY_HAND, cost, failed, 0.0, "")
            for i, kind, cost, failed in costs
        ]

    toy = ByHand(tmp_path)
    base = [(-1, "a", 1.0, 0), (-1, "b", 100.0, 0)]
    # The first saves most milliseconds; the third has the best mean ratio; the second would, and fails on one kind.
    tried = [
        (0, "a", 2.0, 0),
        (0, "b", 60.0, 0),
        (1, "a", 0.1, 1),
        (1, "b", 10.0, 0),
        (2, "a", 0.5, 0),
        (2, "b", 90.0, 0),
    ]
    assert harness.best_of_grid(toy, rows(*base, *tried)) == {"x": 6}
    assert harness.best_of_grid(toy, rows(*base, *tried[2:4])) == toy.default  # nothing in it runs


def test_the_cost_of_the_search_by_hand_is_counted_in_steps_of_the_default():
    def row(phase, step, agent, cost):
        return harness.Row(phase, step, "a", agent, cost, 0, 0.0, "")

    rows = [row("grid", 0, "static", 7.0)]  # what they are compared with costs nothing here: the runs have it anyway
    rows += [row("grid", i, harness.BY_HAND, cost) for i, cost in enumerate((10.0, 30.0, 20.0))]
    rows += [
        row("tune", i, agent, cost) for i in range(40) for agent, cost in (("static", 10.0), (harness.BY_HAND, 8.0))
    ]
    found = analysis.by_hand([rows, rows])
    assert (found.settings, found.steps) == (3, pytest.approx(6.0))
    assert found.ratio.value == pytest.approx(0.8)
    assert found.with_search.value == pytest.approx(0.8 + 6.0 / 40)
    (summary,) = analysis.summaries([rows])
    assert summary.overall.value == pytest.approx(0.8)  # the search is in no step


def test_without_a_grid_nobody_searches_by_hand(toy):
    rows = harness.measure(toy, 10, 0)
    assert {row.phase for row in rows} == {"tune", "final"}
    assert harness.BY_HAND not in {row.agent for row in rows}
    assert analysis.by_hand([rows]) is None


@pytest.mark.parametrize("grid", [False, True])
def test_the_page_says_what_a_search_by_hand_costs_where_runs_have_one(grid, tmp_path, monkeypatch):
    """Older files have no grid, and are read as before; each system that is measured in make real has one now."""
    monkeypatch.setattr(harness, "PAIRS", 2)
    monkeypatch.setattr(page, "load", lambda _: Toy)
    toy = (ByHand if grid else Toy)(tmp_path)
    file = tmp_path / "sqlite-1.csv.gz"
    harness.write(file, harness.measure(toy, 20, 0), harness.about(Toy))
    page.write({"sqlite": [file]}, tmp_path, "")
    made = (tmp_path / "REAL.md").read_text()
    assert ("\n| Toy | 3 | " in made) == grid
    assert ("best of a grid" in (tmp_path / "images" / "real-sqlite.svg").read_text()) == grid


def test_every_system_on_a_cpu_has_a_grid_with_its_default(system):
    if system.title in {load(name).title for name in ON_GPU}:
        assert system.grid == ()
        return
    assert 8 <= len(system.grid) <= 24
    assert system.default in system.grid
    for params in system.grid:
        assert {name: system.space[name].check(value) for name, value in params.items()} == params


@pytest.mark.parametrize("name", ["redis", "duckdb"])
def test_a_run_of_the_new_systems_has_all_agents_and_no_failure(name, monkeypatch):
    monkeypatch.setattr(harness, "PAIRS", 1)
    found = load(name)
    if reason := found.missing():
        pytest.skip(f"no {name}: it needs {reason}")
    monkeypatch.setattr(found, "grid", found.grid[:2])
    with tempfile.TemporaryDirectory(prefix="rasp-real-") as folder, found(Path(folder)) as prepared:
        rows = harness.measure(prepared, 3, 1)
    assert {row.agent for row in rows if row.phase == "tune"} == {*harness.AGENTS, harness.BY_HAND}
    assert not any(row.failed for row in rows)


def test_settings_of_redis_reach_the_server_and_data_is_gone_after_a_run():
    if reason := redis_server.RedisServer.missing():
        pytest.skip(reason)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(prefix="rasp-real-") as folder, redis_server.RedisServer(Path(folder)) as redis:
        changed = {**redis.default, "list_max_listpack_kb": 64, "lazyfree_lazy_user_del": True, "hz": 99}
        redis.run(changed, redis.work("lists", rng))

        def said(*words):
            return redis._answers(redis_server._packed(words)).decode()

        for name, value in (("list-max-listpack-size", "-5"), ("lazyfree-lazy-user-del", "yes"), ("hz", "99")):
            assert f"\r\n{value}\r\n" in said("CONFIG", "GET", name)
        assert said("DBSIZE").startswith("\r\n:0\r\n")
        for name in ("save", "appendonly"):  # nothing is written to disk
            assert said("CONFIG", "GET", name).split("\r\n")[5] in ("", "no")
        with pytest.raises(RunFailed, match="unknown command"):
            said("NOSUCH")


def test_memory_has_its_price_on_redis(monkeypatch):
    """A hash in compact form takes less, so with a high price it is the cheaper one, although it takes longer."""
    if reason := redis_server.RedisServer.missing():
        pytest.skip(reason)
    monkeypatch.setattr(redis_server, "MS_A_MB", 10_000.0)
    with tempfile.TemporaryDirectory(prefix="rasp-real-") as folder, redis_server.RedisServer(Path(folder)) as redis:
        sizes = dict.fromkeys(redis_server.COUNTS, 0.0) | {"fields": 200.0, "value_bytes": 20.0}
        compact, large = (
            redis.run({**redis.default, "hash_max_listpack_entries": entries}, Work("hashes", sizes, 1))
            for entries in (512, 16)
        )
    assert compact < 0.9 * large


def test_settings_of_duckdb_are_its_shipped_ones_and_reach_it():
    duckdb = pytest.importorskip("duckdb")
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(prefix="rasp-real-") as folder, duckdb_queries.DuckDb(Path(folder)) as prepared:
        shipped = duckdb.connect()
        shipped.execute(f"SET threads = {prepared.default['threads']}")
        read = "SELECT name, value FROM duckdb_settings() WHERE name IN ?"
        names = [duckdb_queries.SETTINGS]
        default = dict(shipped.execute(read, names).fetchall())
        prepared.run(prepared.default, prepared.work("lookups", rng))
        assert dict(prepared._database.execute(read, names).fetchall()) == default
        prepared.run(
            {**prepared.default, "threads": 3, "disabled_optimizers": "join_order"}, prepared.work("joins", rng)
        )
        changed = dict(prepared._database.execute(read, names).fetchall())
        assert changed == default | {"threads": "3", "disabled_optimizers": "join_order"}
        work = prepared.work("exports", rng)
        prepared.run({**prepared.default, "parquet_codec": "zstd", "parquet_row_group_size": 2048}, work)
        told = "SELECT DISTINCT compression, row_group_num_rows FROM parquet_metadata(?)"
        (codec, rows), *_ = prepared._database.execute(told, [str(Path(folder) / "export.parquet")]).fetchall()
        assert codec == "ZSTD"
        assert rows <= 2048


def test_rows_survive_a_file(toy, tmp_path):
    rows = harness.measure(toy, 5, 0)
    file = tmp_path / "new" / "toy-1.csv.gz"
    harness.write(file, rows, harness.about(type(toy)))
    assert harness.read(file) == rows
    assert harness.read_about(file).startswith("Toy 1, Python ")
    assert file.read_bytes()[4:8] == bytes(4)  # no time of writing: the same rows are the same bytes
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_doctests():
    for module in (analysis, page, picture, redis_server, system_module):
        assert doctest.testmod(module).failed == 0


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    """Of 300 streams with half of their noise in stretches, as those of work and of a shared machine."""
    rng = np.random.default_rng(0)
    held = 0
    for trial in range(300):
        slow = np.stack([np.repeat(rng.normal(size=75), rng.integers(*STRETCH, 75))[:150] for _ in range(3)])
        found = analysis.interval(np.log(0.8) + 0.2 * slow + 0.2 * rng.normal(size=slow.shape), seed=trial)
        held += found.low <= 0.8 <= found.high
    assert 0.9 <= held / 300 <= 0.99


def test_a_single_step_has_no_interval():
    found = analysis.interval(np.zeros((3, 1)))
    assert (found.value, found.low, found.high) == (1.0, 0.0, np.inf)


def test_summaries_of_known_costs():
    rows = []
    for step in range(100):
        for agent, cost in (("static", 10.0), ("rasp", 12.0 if step < 50 else 5.0)):
            rows.append(harness.Row("tune", step, "a", agent, cost, 0, 1.0, ""))
    (found,) = analysis.summaries([rows])
    assert found.early_worst.value == pytest.approx(1.2)
    assert found.late.value == pytest.approx(0.5)
    assert found.total == pytest.approx(0.85)
    assert found.overall.value == pytest.approx(np.sqrt(1.2 * 0.5))
    assert analysis.running([rows], "rasp")[[0, -1]] == pytest.approx([1.2, 0.85])


def test_the_command_measures_what_is_missing_and_writes_the_page(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(harness, "PAIRS", 1)
    monkeypatch.setattr(sqlite_pragmas, "ROWS", 21_000)  # a report scans up to 20,000
    monkeypatch.setattr(load("sqlite"), "grid", load("sqlite").grid[:2])
    where = ["--out", str(tmp_path / "out"), "--docs", str(tmp_path / "docs")]
    measure = ["run", "--system", "sqlite", "--steps", "4", "--seeds", "2", *where]
    assert main(measure) == 0
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.gz")}
    assert [path.name for path in sorted(files)] == ["sqlite-1.csv.gz", "sqlite-2.csv.gz"]
    assert main(measure) == 0  # nothing is measured twice
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.gz")} == files
    assert "measured before" in capsys.readouterr().out
    (tmp_path / "out" / "engine.txt").write_text("another")  # runs of another engine are measured again
    assert main(measure) == 0
    assert "measured before" not in capsys.readouterr().out
    assert main(["page", "--runs", str(tmp_path / "out"), *where]) == 0
    made = (tmp_path / "docs" / "REAL.md").read_text()
    assert "## SQLite" in made
    left_out = (
        "PostgreSQL, Blosc2, Uvicorn and Starlette, Redis, DuckDB, Triton matmul, Triton attention, Inference loop"
    )
    assert f"Not measured yet: {left_out}." in made
    assert (tmp_path / "docs" / "images" / "real-sqlite.svg").read_text().startswith("<svg")
    assert main(["page", "--runs", str(tmp_path / "none"), *where]) == 1


def test_the_page_is_made_from_the_checked_in_runs(tmp_path):
    """What `python -m rasp_lab.real page` writes is what is checked in: nobody edits numbers by hand."""
    assert main(["page", "--docs", str(tmp_path)]) == 0
    assert (tmp_path / "REAL.md").read_text() == (ROOT / "docs" / "REAL.md").read_text()
    for folder in ("images", page.FOLDER):
        for made in (tmp_path / folder).iterdir():
            assert made.read_text() == (ROOT / "docs" / folder / made.name).read_text()
