"""`python -m rasp_lab.ablations`: every ablation takes effect while it runs, and leaves no trace."""

import numpy as np
import pytest

from rasp_lab import REPOSITORY
from rasp_lab.ablations import __main__ as command
from rasp_lab.ablations import conditions, page, parts, runs, tables
from rasp_lab.pages import csv_tables, origin
from rasp_tuner import __version__
from rasp_tuner.engine.family import RunOutcome
from rasp_tuner.engine.kernel import native
from rasp_tuner.engine.kernel.state import LOCAL_EXPERTS, MOVING_EXPERT
from rasp_tuner.engine.quadratic.family import QuadraticFamily

ONE = ("--domains", "7_Regime_Switch_Simple", "--seeds", "1")


@pytest.fixture
def printed_tables(capsys, tmp_path):
    """A function that gives the tables that a command prints, each a list of rows by column."""

    def printed(*arguments):
        command.main(["--cache", str(tmp_path), *arguments])
        return parsed(capsys.readouterr().out)

    return printed


def parsed(text):
    found = []
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if line.startswith("|")]
        if lines:
            header, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
            found.append([dict(zip(header, row, strict=True)) for row in rows])
    return found


def test_every_condition_has_a_table_and_every_part_a_row(printed_tables):
    found = printed_tables(*ONE, "--horizon", "3")
    assert len(found) == len(conditions.CONDITIONS)
    for condition, rows in zip(conditions.CONDITIONS, found, strict=True):
        names = [row["part"] for row in rows]
        assert names[0] == parts.FULL
        assert set(names) <= set(parts.FAMILIES[condition.family])
        assert any("outlier rule" in name or "trusted" in name for name in names)
        assert all(float(row["regret relative to static"]) > 0.0 for row in rows)
    assert [row["part"] for row in found[0]] == list(parts.FAMILIES["quadratic"])
    assert [row["part"] for row in found[-2]] == list(parts.FAMILIES["discrete"])
    assert len(found[1]) < len(found[0])  # harder worlds show fewer parts
    assert len(found[-1]) < len(found[-2])


LATE = {  # within so few steps these cannot show: they need repeats, odd samples, a full memory, switches or choices
    "without outlier rule: one odd sample",
    "without outlier rule: look back at the first samples",
    "memory of 48 slots",
    "choices and switches like other knobs (gq 0)",
    "nothing drifts with time",
    "no effects of single levels",
    "all rows trusted",
    "repeats are rows of their own",
    "at most 50 rows",
    "the default never runs first",
    "knowledge pays for 10 visits",
    "knowledge pays for 200 visits",
    "the value of one look only",
}


@pytest.mark.parametrize(("family", "world"), [("quadratic", "7_Regime_Switch_Simple"), ("discrete", "S1_table")])
def test_every_ablation_changes_the_run_and_is_undone(family, world):
    full = runs.Job(world, 0, 16, family=family)
    before = runs.run(full)
    losses = [row.loss for row in before]
    for name in parts.FAMILIES[family]:
        changed = runs.run(runs.Job(world, 0, 16, ablation=name, family=family))
        same = [row.loss for row in changed] == losses and [row.predicted for row in changed] == [
            row.predicted for row in before
        ]
        assert same == (name == parts.FULL) or name in LATE, name
    assert [row.loss for row in runs.run(full)] == losses


@pytest.mark.parametrize("section", ["--robust", "--switching", "--guard", "--streams", "--leaders"])
def test_the_other_sections_print_their_tables(printed_tables, section):
    (rows,) = printed_tables(
        section, "--seeds", "1", "--domains", "8_Server_Flash_Crowd", "H1_Recurring_Regimes", "--horizon", "9"
    )
    assert len(rows) == {"--robust": 10, "--switching": 12, "--guard": 2, "--streams": 2, "--leaders": 2}[section]


def test_a_noise_that_is_not_tracked_stays_what_it_was():
    for variance in ("0.0001", "0.01", "0.1"):
        ablation = parts.FAMILIES["quadratic"][f"noise not tracked: {variance}"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(native, "available", lambda: False)
            for where, what, instead in ablation.replacements:
                patch.setattr(where, what, instead)
            family = QuadraticFamily(np.full(2, 0.5), 1, 1)
            for y in (0.0, 9.0, -5.0, 2.0):
                belief = family.believe(np.zeros(1))
                point = np.full(2, 0.1 * abs(y))
                family.learn(
                    RunOutcome(point, np.zeros(1), np.array([y]), failed=False), belief, belief.forecast(point, y)
                )
            assert family.believe(np.zeros(1)).arrays.noises == pytest.approx(float(variance))


def test_leaders_are_named_whatever_their_noise(printed_tables):
    loud = "ten times the domain's own noise"
    (rows,) = printed_tables(
        "--leaders", "--seeds", "1", "--domains", "H1_Recurring_Regimes", "--horizon", "9", "--wrap", loud
    )
    assert {row["leads at the end"] for row in rows} <= {*LOCAL_EXPERTS, MOVING_EXPERT}


def test_verdicts_are_those_of_a_t_test_over_the_seeds_of_every_world():
    difference = tables.Difference.of
    steady, shaky = np.array([[0.10, 0.12, 0.11], [0.9, 0.91, 0.92]]), np.array([[0.5, -0.3, 0.1], [0.2, -0.2, 0.1]])
    assert difference(steady).verdict == "helps"  # worlds may differ, seeds may not
    assert difference(-steady).verdict == "hurts"
    assert difference(shaky).verdict == "no difference beyond luck"
    assert difference(np.zeros((2, 3))).verdict == "no difference at all"
    assert difference(steady[:, :1]).verdict == "unknown: one seed"
    found = difference(shaky[:1])
    assert found.error == pytest.approx(shaky[0].std(ddof=1) / np.sqrt(3))  # of one world the usual standard error
    assert str(found) == f"+0.100 +- {found.error:.3f}"


def test_the_page_is_written_by_one_command_and_a_second_one_runs_nothing_anew(tmp_path, monkeypatch):
    asked = [*ONE, "--seeds", "2", "--horizon", "9", "--condition", "outliers", "--only", "outlier"]
    arguments = [*asked, "--cache", str(tmp_path / "cache"), "--page"]
    command.main([*arguments, str(tmp_path / "first.md")])
    monkeypatch.setattr(runs, "run", None)  # calling it would fail
    command.main([*arguments, str(tmp_path / "second.md")])
    first, second = ((tmp_path / name).read_text() for name in ("first.md", "second.md"))
    assert first.replace("first.md", "second.md") == second
    assert first.startswith(f"# Ablations\n\n*Figures: rasp-tuner {__version__}, ")
    assert "2 seeds, 0 to 1, T = 9" in first
    titles = [line for line in first.splitlines() if line.startswith("## ")]
    assert titles == [f"## {title}" for title in (
        "How many parts make a difference", "Parts that make a difference", "Harder conditions", "Guard",
        "Tabular streams", "Switching cost", "Which expert leads", "What this page cannot show",
    )]  # fmt: skip
    head, rows = csv_tables.read(tmp_path / page.FOLDER / "effects.csv")
    assert head[:2] == ["condition", "part"]
    assert {row[0] for row in rows} == {
        title for title in (c.title for c in conditions.CONDITIONS) if "outliers" in title
    }
    assert "without any outlier rule" in {row[1] for row in rows}


def test_the_page_leaves_out_parts_that_are_gone_and_shows_what_is_beyond_luck(tmp_path):
    rows = [
        ["quiet", "full engine", "0.2", "", ""],
        ["quiet", "blind expert only", "0.6", "+1.1 +- 0.1", "helps"],
        ["quiet", "gate: no prior odds", "0.2", "+0.0 +- 0.1", "no difference beyond luck"],
        ["quiet", "a part of long ago", "0.9", "+1.5 +- 0.1", "helps"],
    ]
    csv_tables.write(tmp_path / "effects.csv", (["condition", "part", "regret", "difference", "verdict"], rows))
    for name in page.OTHERS:
        csv_tables.write(tmp_path / f"{name}.csv", (["a"], [["1"]]))
    (tmp_path / "facts.json").write_text('{"command": "c", "seeds": "s", "horizon": 9}')
    made = page.page(tmp_path, "head")
    assert "1 rows of parts that the engine no longer has are left out" in made
    assert "a part of long ago" not in made
    assert "| quiet | 0.2 | 1 | 0 | 1 |" in made
    assert "| blind expert only | +1.1 +- 0.1 |" in made
    assert "prior odds" not in made
    assert "\nNot measured: Quadratic family, quiet; " in made


def test_the_committed_page_is_made_from_the_tables_beside_it():
    docs = REPOSITORY / "docs"
    committed = (docs / "ABLATIONS.md").read_text()
    assert committed == page.page(docs / page.FOLDER, origin.head("ABLATIONS.md"))
    assert len(committed.split()) <= 1500


def test_half_a_line_of_a_killed_run_is_forgotten(tmp_path):
    job = runs.Job("5_Switching_LQR", 0, 3)
    (total,) = runs.Runs(tmp_path)(runs.regret, [job])
    (kept,) = tmp_path.iterdir()
    kept.write_text(kept.read_text() + '{"run": "regret|half')
    assert runs.Runs(tmp_path)(runs.regret, [job, runs.Job("5_Switching_LQR", 1, 3)])[0] == total
    assert len(runs.Runs(tmp_path)._known) == 2


def test_a_table_of_your_own_has_a_table_of_ablations(printed_tables, tmp_path):
    rng, path = np.random.default_rng(0), tmp_path / "mine.npz"
    configurations = np.array([(i, j) for i in range(4) for j in range(3)])
    np.savez(path, configurations=configurations, contexts=np.eye(2), ms=1.0 + rng.random((2, 12)))
    *_, rows = printed_tables(
        *ONE, "--horizon", "4", "--condition", "none of them", "--table", str(path), "--metrics", "ms:min"
    )
    assert rows[0]["part"] == "full engine"
    assert len(rows) > 10
