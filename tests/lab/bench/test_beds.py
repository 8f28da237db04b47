import json
import math
from pathlib import Path

import numpy as np
import pytest

from rasp_lab.beds import __main__ as command
from rasp_lab.beds import forest, glitches, loop, runner, small, source, streams, table, tables
from rasp_lab.beds.bed import Measure, Options, chosen_seeds
from rasp_lab.beds.beds import BEDS, load
from rasp_lab.beds.costs import System
from rasp_lab.beds.runner import Cell, Results
from rasp_tuner import Tuner
from rasp_tuner.types import Explanation, Suggestion

BEST, STILL = "the optimum", "the default"


class Knowing:
    """Plays the optimum of the situation, or the default, and learns nothing; a false context changes nothing."""

    def __init__(self, system: System, plays: str, expects: float = 1.0) -> None:
        self._expects = expects  # times the default's cost
        self._params = [system.best(s) if plays == BEST else system.default for s in (0, 1)]

    def ask(self, context=None):
        return Suggestion("", self.recommend(context))

    def tell(self, id, metrics, params=None):
        pass

    def explain(self, *_, **__):
        return Explanation("it knows", predicted=7.0 * self._expects, deviation=1.0, level=7.0)

    def recommend(self, context=None):
        return self._params[int(next(iter((context or {"": 0}).values())) == 1)]


@pytest.mark.parametrize("name", list(small.WORLDS))
def test_the_optimum_is_found_in_every_small_world_and_costs_less_than_the_default(name):
    system = small.WORLDS[name](np.random.default_rng([3, 0x5A11]))
    best = small.play(name, system, Knowing(system, BEST), 3)
    still = small.play(name, system, Knowing(system, STILL), 3)
    assert best["found"] == 2
    assert still["cost / default"] == pytest.approx(1.0)
    if name == "already best":
        assert still["found"] == 2
        assert best["cost / default"] == pytest.approx(1.0)
    else:
        assert still["found"] < 2
        assert best["cost / default"] < 0.9


def test_the_ruinous_world_allows_five_eighths_of_the_default():
    system = small.ruinous_choice(np.random.default_rng(0))
    best = small.play("ruinous choice", system, Knowing(system, BEST), 0)
    assert best["ruinous choice: cost / default"] == pytest.approx(0.625, abs=0.03)  # the turns are not equally long
    assert not best["ruinous choice: good one never tried"]
    still = small.play("ruinous choice", system, Knowing(system, STILL), 0)
    assert still["ruinous choice: good one never tried"]
    assert small.play(small.NO_BUDGET, system, Knowing(system, STILL), 0).keys().isdisjoint({"found", "over 1.02"})


@pytest.mark.parametrize(("expects", "nasty"), [(2.01, small.STEPS - 2 * small.KNOWN_VISITS), (1.99, 0)])
def test_steps_expected_over_twice_the_default_are_counted_once_a_situation_is_known(expects, nasty):
    system = small.ruinous_choice(np.random.default_rng(0))
    assert small.play(small.NO_BUDGET, system, Knowing(system, STILL, expects), 0)[small.NASTY] == nasty


def test_a_paired_stream_is_told_the_default_on_the_same_batch(monkeypatch):
    controls = []

    class Told(Tuner):
        def tell(self, id, metrics, params=None, **more):
            controls.append((metrics["val_mse"], more["control"]))
            super().tell(id, metrics, params, **more)

    monkeypatch.setattr(loop, "Tuner", Told)
    monkeypatch.setattr(streams, "STEPS", 3)
    alone, paired = (streams.run(f"S2_Boston_Housing{kind}", 0, Options()) for kind in ("", streams.PAIRED))
    assert [list(alone), list(paired)] == [["regret / static"], ["regret / static, paired"]]
    assert [control for _, control in controls[:3]] == [None] * 3
    own, control = controls[3]  # the first step runs the default itself: the two differ by noise alone
    assert own != control["val_mse"] == pytest.approx(own, rel=0.3)


@pytest.mark.parametrize("cell", [cell for cell in glitches.cells(Options()) if cell.endswith("levels")])
def test_who_plays_the_optimum_has_no_excess_and_who_stands_still_has_all_of_it(monkeypatch, cell):
    system = glitches.levels(np.random.default_rng([1, 0x611C]))
    monkeypatch.setattr(glitches, "Tuner", lambda *_, **__: Knowing(system, BEST))
    assert set(glitches.run(cell, 1, Options()).values()) == {0.0}
    monkeypatch.setattr(glitches, "Tuner", lambda *_, **__: Knowing(system, STILL))
    still = glitches.run(cell, 1, Options())
    assert all(value > 0.0 for name, value in still.items() if not name.endswith("less clean"))
    shares = [value for name, value in still.items() if "context" in name and "less clean" not in name]
    assert all(share == pytest.approx(1.0) for share in shares)  # regret is a share of standing still


def test_a_glitch_is_one_step_and_a_unit_stays_changed(monkeypatch):
    system = glitches.levels(np.random.default_rng([0, 0x611C]))
    contexts, told = [], []

    class Recording(Knowing):
        def ask(self, context=None):
            contexts.append(context and context["load"])
            return super().ask(context)

        def tell(self, *answer):
            told.append(answer[1]["cost"])

    monkeypatch.setattr(glitches, "Tuner", lambda *_, **__: Recording(system, BEST))
    glitches.run("context/1000/levels", 0, Options())
    assert [i for i, value in enumerate(contexts) if value not in (0.0, 1.0)] == [400 + 100]  # after the clean run
    told.clear()
    glitches.run("metric/-1e6/levels", 0, Options())
    assert [i for i, cost in enumerate(told) if not 0.5 < cost < 2.0] == [60]
    told.clear()
    glitches.run("unit/x1000/levels", 0, Options())
    assert [i for i, cost in enumerate(told) if 500.0 < cost < 2000.0] == list(range(150, 350))


def test_a_bowl_costs_one_at_its_optimum_and_the_default_is_far_away():
    system = glitches.far_floats(np.random.default_rng(5))
    params = dict(system.default)
    for name in params:  # one after another: no knob depends on another
        params[name] = min(np.linspace(0.0, 1.0, 101), key=lambda value: system.cost({**params, name: value}, 0))
    assert system.cost(params, 0) == pytest.approx(1.0, abs=0.01)
    assert system.cost(system.default, 0) > 3.0


def test_changes_are_paired_by_cell_and_seed():
    before = {("a", 0): 1.0, ("a", 1): 2.0, ("b", 0): 4.0, ("gone", 0): 9.0}
    now = {("a", 0): 0.5, ("a", 1): 1.0, ("b", 0): 2.0, ("new", 0): 9.0}
    found = table.change(before, now, Measure())
    assert found == table.Change(pytest.approx(-math.log(2.0)), pytest.approx(0.0), 3)
    plain = table.change(before, now, Measure("mean"))
    gaps = np.array([-0.5, -1.0, -2.0])
    assert plain == table.Change(pytest.approx(gaps.mean()), pytest.approx(gaps.std(ddof=1) / math.sqrt(3)), 3)
    assert table.change({}, now, Measure()) is None


def test_the_worst_is_that_of_cells_or_of_runs():
    found = {("a", 0): 1.0, ("a", 1): 4.0, ("b", 0): 3.0, ("b", 1): 3.0}
    assert table.worst(found, Measure("mean")) == (3.0, "b")
    assert table.worst(found, Measure("mean", worst="run")) == (4.0, "a, seed 1")


def test_the_table_has_a_line_for_each_measure_and_says_what_failed():
    beds = {"small": load("small")}
    now = Results({Cell("small", "threads", 1): {"found": 2.0, "cost / default": 0.5, "over 1.02": 0.0}})
    then = Results({Cell("small", "threads", 1): {"found": 1.0, "cost / default": 1.0, "over 1.02": 1.0}})
    lines = table.render(beds, now, then, "abc").splitlines()
    found, cost, over = ([part.strip() for part in line.strip("|").split("|")] for line in lines[2:])
    assert found[2:6] == ["1 of 2", "2 of 2", ">= 2", "+1.000 +- nan"]
    assert cost[2:4] + cost[5:6] == ["1.000", "0.500", "log -0.693 +- nan"]
    assert over[:5] == ["small", "over 1.02", "1 of 1", "0 of 1", "<= 0"]
    now.errors[Cell("small", "codecs", 1)] = "no such name"
    assert table.failures(now) == ["small: 1 runs failed, as codecs, seed 1: no such name"]


def test_halves_share_no_seed_and_no_table(tmp_path):
    assert not set(chosen_seeds(9, "develop")) & set(chosen_seeds(9, "report"))
    (tmp_path / "tables").mkdir()
    for name in "dbacef":
        (tmp_path / "tables" / f"{name}.npz").touch()
    halves = {half: tables.cells(Options(half, str(tmp_path))) for half in ("develop", "report", "all")}
    assert halves == {"develop": ["a", "c", "e"], "report": ["b", "d", "f"], "all": ["a", "b", "c", "d", "e", "f"]}


def write_table(folder: Path) -> None:
    """Two knobs of 3 levels, the second unordered; (2, 1) was not measured. Two contexts."""
    (folder / "tables").mkdir(exist_ok=True)
    rows = np.array([[0.0, 0.0], [0.5, 0.0], [1.0, 0.0], [0.0, 0.5], [0.5, 0.5]])
    arrays = {
        "X": rows,
        "L": np.array([[1.0, 0.5, 0.0, 1.0, 0.7], [1.0, 1.0, 1.0, 0.5, 0.0]]),
        "base": np.array([0.0, 3.0]),
        "ctx": np.array([[0.0], [1.0]]),
        "levels": np.array([[0.0, 0.5, 1.0], [0.0, 0.5, 1.0]]),
        "cat": np.array([False, True]),
        "default": np.array([0.0, 0.0]),
        "iid": False,
        "block": 20,
        "ctxnoise": 0.0,
    }
    np.savez(folder / "tables" / "t.npz", **arrays)


def test_a_suggestion_that_was_not_measured_runs_as_the_nearest_row(tmp_path):
    write_table(tmp_path)
    found = tables.Table(tmp_path / "tables" / "t.npz")
    assert found.nearest(np.array([2.0, 1.0])) == 4  # half a range away; another choice is a whole one
    assert found.params(found.rows[4]) == {"k0": 1, "k1": "c1"}
    assert found.nearest(found.setting({"k0": 2, "k1": "c0"})) == 2


def test_a_tuner_on_a_table_beats_the_default(tmp_path):
    write_table(tmp_path)
    assert tables.run("t", 1, Options(data=str(tmp_path)))["regret / static"] < 0.5


def test_a_tree_of_arrays_predicts_as_the_forest_it_was_made_of():
    ensemble = pytest.importorskip("sklearn.ensemble")
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(200, 3))
    model = ensemble.RandomForestRegressor(5, min_samples_leaf=4, random_state=0).fit(
        x, np.sin(5.0 * x[:, 0]) + x[:, 1]
    )
    ours = forest.Forest(**forest.arrays(model))
    assert [ours.predict(row) for row in x[:20]] == pytest.approx(model.predict(x[:20]).tolist())


def test_recorded_runs_give_the_work_that_their_rows_name():
    rows = list(forest.recorded("sqlite"))
    assert len(rows) == 5400
    params, work, cost = rows[0]
    assert params["page_size"] == 4096
    assert (work.kind, cost) == ("inserts", 17.81)


@pytest.mark.nightly
def test_the_command_runs_each_cell_once_and_prints_the_table(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(runner, "OUT", tmp_path)
    arguments = ["--base", str(source.REPOSITORY), "--only", "small/threads,streams/S1", "--seeds", "1", "--cells"]
    assert command.main(arguments) == 0
    told = capsys.readouterr().out
    assert "| small   | found " in told
    assert "S1_California_Housing" in told
    (kept,) = tmp_path.glob("results/*/small-*.jsonl")
    assert [json.loads(line)["cell"] for line in kept.read_text().splitlines()] == ["threads"]
    monkeypatch.setattr(runner.Worker, "run", lambda *_: pytest.fail("it is on file"))
    assert command.main(arguments) == 0
    assert capsys.readouterr().out == told


def test_a_run_that_fails_is_named_and_not_kept(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(runner, "OUT", tmp_path)
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "broken.npz").write_bytes(b"no table")
    arguments = ["--base", "none", "--only", "tables", "--seeds", "1", "--half", "all", "--data", str(tmp_path)]
    assert command.main(arguments) == 1
    assert "now: tables: 1 runs failed, as broken, seed 0: " in capsys.readouterr().out
    assert not list(tmp_path.glob("results/*/*"))


def test_tables_are_left_out_without_data(capsys):
    assert command.main(["--base", "none", "--only", "tables"]) == 0
    assert "tables: left out, no measured tables: give their folder with --data DIR" in capsys.readouterr().out


@pytest.mark.parametrize("name", list(BEDS))
def test_every_bed_has_lines_and_cells(name):
    bed = load(name)
    assert bed.name == name
    assert bed.measures
    assert name == "tables" or bed.cells(Options())
