"""benchmarks/ablations.py: every ablation takes effect while it runs, and leaves no trace."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from rasp_tuner.engine.quadratic import family as quadratic

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "ablations.py"


@pytest.fixture(scope="module")
def ablations():
    spec = importlib.util.spec_from_file_location("ablations", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["ablations"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["ablations"]


def table(capsys, ablations, *arguments):
    ablations.main(["--seeds", "1", *arguments])
    header, _, *rows = (line for line in capsys.readouterr().out.splitlines() if line.startswith("|"))
    names = [cell.strip() for cell in header.strip("|").split("|")]
    return [dict(zip(names, (c.strip() for c in row.strip("|").split("|")), strict=True)) for row in rows]


def test_every_ablation_prints_a_row(capsys, ablations):
    rows = table(capsys, ablations, "--domains", "5_Switching_LQR", "--horizon", "8")
    assert [row["ablation"] for row in rows] == list(ablations.ABLATIONS)
    assert all(float(row["geometric mean"]) > 0.0 for row in rows)
    assert {row["A2"] for row in rows} == {"-"}


def test_an_ablation_changes_the_run_and_is_undone(ablations):
    job = ablations.Job("7_Regime_Switch_Simple", 0, 12)
    before = ablations.regret(job)
    each = "kappa 0", "without the first probe", "gate: uniform weights", "blind expert only"
    for name in (*each, "one noise only: the small one", "one noise only: the large one"):
        changed = ablations.Job(job.domain, job.seed, job.horizon, name)
        assert ablations.regret(changed) != before, name
        assert ablations.regret(job) == before, name


@pytest.mark.parametrize("section", ["--robust", "--switching", "--guard", "--streams", "--leaders"])
def test_the_other_sections_print_their_tables(capsys, ablations, section):
    rows = table(
        capsys, ablations, section, "--domains", "8_Server_Flash_Crowd", "H1_Recurring_Regimes", "--horizon", "9"
    )
    assert len(rows) == {"--robust": 10, "--switching": 12, "--guard": 2, "--streams": 2, "--leaders": 2}[section]


def test_one_noise_only_leaves_weight_to_that_noise_alone(ablations):
    for name, noise in (("small", 0), ("middle", 1), ("large", 2)):
        ablation = ablations.ABLATIONS[f"one noise only: the {name} one"]
        with pytest.MonkeyPatch.context() as patch:
            for where, what, instead in ablation.replacements:
                patch.setattr(where, what, instead)
            weights = quadratic.Quadratic(np.full(2, 0.5), 1, 1).evidence.weights.reshape(-1, quadratic.R)
        assert weights[:, noise].sum() == pytest.approx(1.0)


def test_leaders_are_named_whatever_their_noise(capsys, ablations):
    loud = "ten times the domain's own noise"
    rows = table(
        capsys, ablations, "--leaders", "--domains", "H1_Recurring_Regimes", "--horizon", "9", "--condition", loud
    )
    assert {row["leads at the end"] for row in rows} <= {*quadratic.LOCAL, quadratic.MOVING}


def test_only_the_named_ablations_run(capsys, ablations):
    rows = table(capsys, ablations, "--domains", "5_Switching_LQR", "--horizon", "5", "--only", "kappa")
    assert [row["ablation"] for row in rows] == ["default", "kappa 0", "kappa 0.35", "kappa 1.4"]
