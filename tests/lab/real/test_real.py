"""src/rasp_lab/real on tiny runs: every system runs every legal setting, rows survive a file, intervals are right."""

import doctest
import tempfile
from pathlib import Path

import numpy as np
import pytest

from rasp_lab.real import analysis, harness, page, picture, sqlite_pragmas
from rasp_lab.real.__main__ import main
from rasp_lab.real.system import STRETCH, RunFailed, System, Work, new_seed
from rasp_lab.real.systems import SYSTEMS, load
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


def test_rows_survive_a_file(toy, tmp_path):
    rows = harness.measure(toy, 5, 0)
    file = tmp_path / "new" / "toy-1.csv.gz"
    harness.write(file, rows, harness.about(type(toy)))
    assert harness.read(file) == rows
    assert harness.read_about(file).startswith("Toy 1, Python ")
    assert file.read_bytes()[4:8] == bytes(4)  # no time of writing: the same rows are the same bytes
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_doctests():
    for module in (analysis, page, picture):
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


@pytest.mark.slow
def test_the_command_measures_what_is_missing_and_writes_the_page(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(harness, "PAIRS", 1)
    monkeypatch.setattr(sqlite_pragmas, "ROWS", 21_000)  # a report scans up to 20,000
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
    left_out = "PostgreSQL, Blosc2, Uvicorn and Starlette, Triton matmul, Triton attention, Inference loop"
    assert f"Not measured yet: {left_out}." in made
    assert (tmp_path / "docs" / "images" / "real-sqlite.svg").read_text().startswith("<svg")
    assert main(["page", "--runs", str(tmp_path / "none"), *where]) == 1


def test_the_page_is_made_from_the_checked_in_runs(tmp_path):
    """What `python -m rasp_lab.real page` writes is what is checked in: nobody edits numbers by hand."""
    assert main(["page", "--docs", str(tmp_path)]) == 0
    assert (tmp_path / "REAL.md").read_text() == (ROOT / "docs" / "REAL.md").read_text()
    assert len((tmp_path / "REAL.md").read_text().split()) <= 1750
    for folder in ("images", page.FOLDER):
        for made in (tmp_path / folder).iterdir():
            assert made.read_text() == (ROOT / "docs" / folder / made.name).read_text()
