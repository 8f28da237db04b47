import math

import numpy as np
import pytest

from rasp_lab.bench.analysis import metrics
from rasp_lab.bench.runner.protocol import COLUMNS, Row
from rasp_tuner import InvalidValue


def runs(agent="a", loss=((1.0, 2.0), (3.0, 4.0)), domain="D", **columns):
    table = np.array(loss, dtype=float)
    empty = np.full(table.shape, np.nan)
    data = dict.fromkeys(COLUMNS[4:], empty)
    data |= {"loss": table, "regret": table, "ask_ms": table, "tell_ms": table}
    data |= {name: np.array(value, dtype=float) for name, value in columns.items()}
    return metrics.Runs(domain, agent, 100, tuple(range(len(table))), data)


def test_a_step_table_reads_back_exactly(tmp_path):
    rows = [
        Row("D", agent, 2, seed, step, 1, loss := 0.1 + seed / 3 + step, loss - 0.1, 1.0, 2.0, None, None, 0.5)
        for agent in ("x", "y")
        for seed in (0, 1)
        for step in (0, 1)
    ]
    path = tmp_path / "steps.csv"
    path.write_text(",".join(COLUMNS) + "\n" + "".join(row.csv() + "\n" for row in rows))
    x, y = metrics.load(path)
    assert (x.domain, x.agent, x.horizon, x.seeds) == ("D", "x", 2, (0, 1))
    assert y["loss"][1, 1] == 0.1 + 1 / 3 + 1
    assert np.isnan(x["predicted"]).all()
    assert x["error"].tolist() == [[0.5, 0.5], [0.5, 0.5]]


def test_foreign_and_missing_tables_are_refused(tmp_path):
    with pytest.raises(InvalidValue, match="run `rasp bench"):
        metrics.load(tmp_path / "steps.csv")
    (tmp_path / "steps.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InvalidValue, match="not a step table"):
        metrics.load(tmp_path / "steps.csv")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[:-30], r"damaged in line 5|must have 2 whole rows of a on D, seed 1"),
        (lambda text: text[: text.index("D,a,2,1,1")], "must have 2 whole rows of a on D, seed 1"),
        (lambda text: text + text[text.index("D,a,2,1,1") :], "must have 2 whole rows of a on D, seed 1"),
        (lambda text: text + "junk\n", "damaged in line 6"),
        (lambda text: text.replace("0.5", "half"), "damaged in line 2"),
    ],
)
def test_a_damaged_table_is_refused_in_one_line(tmp_path, damage, message):
    rows = [Row("D", "a", 2, seed, step, 1, 0.5, 0.5, 1.0, 2.0) for seed in (0, 1) for step in (0, 1)]
    path = tmp_path / "steps.csv"
    path.write_text(damage(",".join(COLUMNS) + "\n" + "".join(row.csv() + "\n" for row in rows)))
    with pytest.raises(InvalidValue, match=message):
        metrics.load(path)


def test_ratios_use_the_seeds_both_ran():
    static = runs("static", [[1.0], [3.0], [100.0]])
    half = runs("a", [[1.0], [1.0]])
    assert metrics.ratios([static, half], 100) == {"static": {"D": 1.0}, "a": {"D": 0.5}}
    assert metrics.ratios([half], 100) == {}


def test_the_later_half_is_related_to_the_first():
    assert (
        metrics.second_half_ratio(runs("a", [[1.0, 3.0, 9.0, 1.0, 1.0]])) == 0.5
    )  # an odd step in the middle is in neither
    assert math.isnan(metrics.second_half_ratio(runs("a", [[0.0, 1.0]])))


def test_geometric_mean():
    assert metrics.geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
    assert metrics.geometric_mean([0.0, 4.0]) == 0.0
    assert math.isnan(metrics.geometric_mean([]))
    assert math.isnan(metrics.geometric_mean([1.0, math.nan]))


def test_adaptation_is_the_first_step_after_which_the_rolling_loss_stays_low():
    curve = [1.0] * 15 + [0.0] * 30
    quick = runs("q", [curve])
    assert metrics.adaptation(quick, 0.0, 1.0) == (1, 1, 24)  # one old step in the window of ten: mean 0.1
    relapse = runs("r", [[*curve[:-1], 5.0]])
    assert metrics.adaptation(relapse, 0.0, 1.0) == (0, 1, None)
    always = runs("s", [[0.0] * 45])
    assert metrics.adaptation(always, 0.0, 1.0) == (1, 1, 10)
    assert metrics.adaptation(always, 0.0, 0.0) is None  # the static default is as good: there is no gap


def test_a_seed_that_never_adapts_counts_as_later_than_the_others():
    never, early, late = [1.0] * 45, [0.0] * 45, [1.0] * 20 + [0.0] * 25
    assert metrics.adaptation(runs("a", [never, late, early]), 0.0, 1.0) == (2, 3, 29)
    assert metrics.adaptation(runs("a", [never, late, never]), 0.0, 1.0) == (1, 3, None)
    assert metrics.adaptation(runs("a", [never, early]), 0.0, 1.0) == (1, 2, None)  # the middle lies beyond the end


def test_calibration_counts_what_falls_inside():
    rng = np.random.default_rng(0)
    error = rng.normal(size=(2, 4000))
    zeros, ones = np.zeros_like(error), np.ones_like(error)
    told = metrics.calibration(runs("a", zeros, predicted=zeros, deviation=ones, error=error))
    assert told["coverage_50"] == pytest.approx(0.5, abs=0.02)
    assert told["coverage_90"] == pytest.approx(0.9, abs=0.02)
    assert told["nll"] == pytest.approx(0.5 * math.log(2 * math.pi * math.e), abs=0.03)
    assert metrics.calibration(runs()) is None


def test_latency_adds_both_verbs():
    told = metrics.latency(runs("a", [[1.0, 2.0, 3.0]]))
    assert told["median_ms"] == 4.0
    assert metrics.latency(runs("a", [[1.0, 2.0, 3.0]]), runs("a", [[5.0, 5.0]]))["median_ms"] == 6.0  # of all steps
