"""Savings: what was gained against drawn runs of the default, or against controls, with intervals that always hold."""

import math

import numpy as np
import pytest
from damaged_snapshot import damaged

from rasp_tuner import (
    Categorical,
    Float,
    Gain,
    InvalidSpace,
    InvalidValue,
    SnapshotError,
    Tuner,
    VersusDefault,
)
from rasp_tuner.files import snapshot
from rasp_tuner.gain.savings import Draw, SavingsLedger

KNOBS = {"x": Float(0.0, 1.0)}
MODES = {"mode": Categorical(["a", "b", "c"])}
LEVELS = {"a": 1.0, "b": 0.8, "c": 1.3}


def tuner_of(holdout=0.2, seed=0, metrics="min", **settings):
    kinds = metrics if isinstance(metrics, dict) else {"ms": metrics}
    return Tuner(MODES, kinds, None, {"mode": "a"}, seed=seed, holdout=holdout, **settings)


def play(tuner, steps, value=lambda mode: 10.0 * LEVELS[mode], noise=0.05, seed=1):
    """Params of every step."""
    rng, ran = np.random.default_rng(seed), []
    for _ in range(steps):
        asked = tuner.ask()
        ran.append(asked)
        tuner.tell(asked.id, {"ms": value(asked.params["mode"]) * math.exp(noise * rng.normal())})
    return ran


def test_a_gain_is_found_and_told_in_words():
    tuner = tuner_of()
    play(tuner, 300)
    found = tuner.savings()
    assert found.steps == 300
    assert 35 <= found.held_out <= 85
    assert found.gain.low < 0.2 < found.gain.high  # of a step that runs a suggestion
    assert found.gain.low > 0.05
    assert found.gain == found.metrics["ms"]
    assert found.better_since < 150
    assert found.worse_since is None
    assert str(found).startswith("saved 1")
    assert str(found).endswith(
        f"in 300 steps, measured against {found.held_out} runs of the default; never proven worse"
    )


def test_more_of_a_metric_that_is_maximised_is_a_gain():
    tuner = tuner_of(metrics="max")
    play(tuner, 300, lambda mode: 10.0 / LEVELS[mode])
    found = tuner.savings()
    assert found.gain.low < 0.25 < found.gain.high
    assert str(found).startswith("gained ")


def test_what_is_proven_worse_is_said():
    ledger = SavingsLedger({"ms": 1.0})
    rng = np.random.default_rng(0)
    ledger.add(None, {"ms": 10.0}, None, {"ms": 1.0})
    for _ in range(400):
        held_out = bool(rng.random() < 0.2)
        value = (10.0 if held_out else 13.0) * math.exp(0.05 * rng.normal())
        ledger.add(Draw(held_out, 0.2, None, None), {"ms": value}, None, {"ms": 1.0})
    found = ledger.report()
    assert found.gain.high < 0.0
    assert found.worse_since is not None
    assert str(found).startswith("lost ")
    assert f"proven worse at step {found.worse_since}" in str(found)


def test_the_default_is_drawn_as_often_as_said_and_the_record_says_so():
    tuner = tuner_of(holdout=0.3)
    ran = play(tuner, 400)
    whys = [tuner.explain(one.id, visits=False) for one in ran]
    drawn = [why for why in whys if why.propensity is not None]
    held = [why for why in drawn if why.source == "default (holdout)"]
    assert 0.22 < len(held) / len(drawn) < 0.38
    assert {why.propensity for why in held} == {0.3}
    assert {why.propensity for why in drawn if why not in held} == {0.7}
    assert all(why.params == {"mode": "a"} for why in held)
    assert tuner.savings().held_out == len(held)
    late = held[-1]
    assert late.instead < late.level  # the suggestion was expected to be better than the default that ran
    assert "a draw put the default in the place of a suggestion" in str(late)
    rows = tuner.history()
    assert [row["propensity"] for row in rows] == [why.propensity for why in whys]


def test_without_holdout_nothing_is_drawn_and_nothing_is_saved():
    plain, held = tuner_of(holdout=None), tuner_of(holdout=0.5)
    assert plain.savings() is None
    play(plain, 30)
    assert plain.savings() is None
    assert held.savings() is None
    assert b'"savings/' not in plain.to_bytes()
    assert b'"propensity"' not in plain.to_bytes()


def test_a_default_that_is_suggested_saves_exactly_nothing():
    tuner = tuner_of()
    for _ in range(3):
        asked = tuner.ask()
        if asked.params == tuner.default:
            tuner.tell(asked.id, {"ms": 10.0})
            break
    assert tuner.savings().gain == Gain("share", 0.0, 0.0, 0.0)


def test_few_runs_of_the_default_give_no_interval():
    tuner = tuner_of(holdout=0.05)
    play(tuner, 12)
    found = tuner.savings()
    assert found.held_out < 5
    assert found.gain.low is None
    assert found.gain.outcome == "open"
    assert str(found) == "no saving known yet in 12 steps, measured against 1 run of the default; never proven worse"


def test_a_metric_that_is_not_positive_is_compared_by_differences():
    tuner = tuner_of()
    rng = np.random.default_rng(0)
    for _ in range(300):
        asked = tuner.ask()
        tuner.tell(asked.id, {"ms": LEVELS[asked.params["mode"]] - 1.0 + 0.05 * rng.normal()})
    gain = tuner.savings().gain
    assert gain.kind == "difference"
    assert gain.low < 0.2 < gain.high
    assert gain.low > 0.0
    assert "a step" in str(gain)


def test_runs_that_fail_count_as_the_worst_seen():
    def saved(fails):
        rng, ledger = np.random.default_rng(0), SavingsLedger({"ms": 1.0})
        ledger.add(None, {"ms": 10.0}, None, {"ms": 1.0})
        ledger.add(None, {"ms": 20.0}, None, {"ms": 1.0})
        for _ in range(300):
            held_out, failed = bool(rng.random() < 0.3), bool(rng.random() < fails)
            value = 10.0 * math.exp(0.05 * rng.normal())
            told = None if failed and not held_out else {"ms": value}
            ledger.add(Draw(held_out, 0.3, None, None), told, None, {"ms": 1.0})
        return ledger.report()

    assert saved(0.0).gain.outcome == "open"
    assert saved(0.5).gain.outcome == "worse"
    assert saved(0.5).gain.low < 1.0 - 2.0**0.5 < saved(0.5).gain.high


def test_a_run_that_was_stopped_counts_as_the_worst_seen():
    """At least so bad is not so good."""
    tuners = []
    for stopped in (False, True):
        tuner, rng = tuner_of(holdout=0.3), np.random.default_rng(0)
        for mode in ("a", "c"):
            tuner.observe(None, {"mode": mode}, {"ms": 10.0})
        for step in range(40):
            asked = tuner.ask()
            cut = asked.params["mode"] != "a"
            value = 10.0 * math.exp(0.05 * rng.normal()) * (2.0 if step == 0 else 1.0)
            tuner.tell(asked.id, {"ms": value}, stopped=stopped and cut)
        tuners.append(tuner)
    whole, cut = (tuner.savings() for tuner in tuners)
    assert cut.gain.value < whole.gain.value - 0.01


def test_a_default_that_was_drawn_runs_to_its_end():
    tuner = tuner_of(holdout=0.4)
    stops = {"default (holdout)": [], "other": []}
    for one in play(tuner, 60):
        why = tuner.explain(one.id, visits=False)
        stops["default (holdout)" if why.source == "default (holdout)" else "other"].append((one.stop, why.stop))
    assert set(stops["default (holdout)"]) == {(None, None)}
    assert any(stop is not None for stop, _ in stops["other"])


def test_a_first_run_that_fails_does_not_count():
    ledger = SavingsLedger({"ms": 1.0})
    ledger.add(Draw(False, 0.3, None, None), None, None, {"ms": 1.0})
    assert ledger.report() is None


def test_several_metrics_have_a_gain_each_and_one_together():
    tuner = tuner_of(metrics={"ms": "min", "rows": "max"})
    rng = np.random.default_rng(0)
    for _ in range(300):
        level = LEVELS[tuner.ask().params["mode"]]
        noise = np.exp(0.03 * rng.normal(size=2))
        tuner.tell(tuner.pending[-1].id, {"ms": 10.0 * level * noise[0], "rows": 5.0 / level * noise[1]})
    found = tuner.savings()
    assert set(found.metrics) == {"ms", "rows"}
    assert found.metrics["ms"].low < 0.2 < found.metrics["ms"].high
    assert found.metrics["rows"].low < 0.25 < found.metrics["rows"].high
    assert found.gain.low < 0.2 < found.gain.high


@pytest.mark.parametrize("steps", [1, 60])
def test_a_run_that_is_saved_goes_on_bit_for_bit(steps):
    tuner = tuner_of()
    tuner.observe(None, {"mode": "c"}, {"ms": 13.0})  # so that the first suggestion need not be the default
    play(tuner, steps)
    other = Tuner.from_bytes(tuner.to_bytes())
    assert other.savings() == tuner.savings()
    assert [one.params for one in play(other, 40)] == [one.params for one in play(tuner, 40)]
    assert other.savings() == tuner.savings()
    assert other.to_bytes() == tuner.to_bytes()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("savings/counts", lambda a: a - 1e9),
        ("savings/counts", lambda a: a[:-1]),
        ("savings/sums", lambda a: a[:, :1]),
        ("savings/sums", lambda a: -a),
        ("savings/positive", lambda a: a + 0.5),
    ],
)
def test_damaged_savings_are_refused(name, change):
    tuner = tuner_of()
    play(tuner, 60)
    with pytest.raises(SnapshotError, match="savings"):
        Tuner.from_bytes(damaged(tuner, name, change))


def test_chances_in_a_snapshot_that_are_not_those_of_its_draws_are_refused():
    tuner = tuner_of()
    play(tuner, 60)
    header, arrays = snapshot.decode(tuner.to_bytes())
    del header["numerics"]
    for chances in (np.zeros(3), np.full(3, 1e6), arrays["savings/chances"][:2]):
        with pytest.raises(SnapshotError, match="savings/chances"):
            Tuner.from_bytes(snapshot.encode(header, {**arrays, "savings/chances": chances}))


@pytest.mark.parametrize("holdout", [0.0, 0.6, -0.1, math.nan, True, "0.1", [0.1]])
def test_a_holdout_that_is_no_share_is_refused(holdout):
    with pytest.raises(InvalidSpace, match="holdout"):
        tuner_of(holdout=holdout)


def test_a_holdout_needs_a_default():
    with pytest.raises(InvalidSpace, match="default="):
        Tuner(KNOBS, {"ms": "min"}, holdout=0.1)


def test_a_frozen_tuner_draws_nothing_and_counts_nothing_but_the_default():
    tuner = tuner_of()
    play(tuner, 100)
    before = tuner.savings().steps
    tuner.freeze()
    assert {one.params["mode"] for one in play(tuner, 30)} == {"b"}
    assert tuner.savings().steps == before


def test_merged_tuners_add_up_what_they_saved():
    tuners = [tuner_of(seed=seed) for seed in (1, 2)]
    for seed, tuner in enumerate(tuners):
        play(tuner, 150, seed=seed)
    parts = [tuner.savings() for tuner in tuners]
    tuners[0].merge(tuners[1])
    found = tuners[0].savings()
    assert found.steps == 300
    assert found.held_out == sum(part.held_out for part in parts)
    assert np.log1p(-found.gain.value) == pytest.approx(np.mean([np.log1p(-part.gain.value) for part in parts]))
    assert found.gain.high - found.gain.low < min(part.gain.high - part.gain.low for part in parts)


def test_tuners_of_other_holdouts_are_not_merged():
    one, other = tuner_of(holdout=0.1, seed=1), tuner_of(holdout=0.2, seed=2)
    play(one, 5)
    play(other, 5)
    before = one.to_bytes()
    with pytest.raises(InvalidValue, match="same holdout"):
        one.merge(other)
    assert one.to_bytes() == before


def test_the_page_and_the_notebook_tell_what_was_measured(tmp_path):
    tuner = tuner_of()
    play(tuner, 120)
    tuner.report(tmp_path / "page.html")
    assert f"ms: {tuner.savings()}" in (tmp_path / "page.html").read_text()
    assert str(tuner.savings()) in tuner._repr_html_()


def test_where_nothing_matters_few_runs_ever_show_a_gain():
    """Looked at after every one of 600 steps, with forecasts that are wrong."""
    wrong, runs, share = 0, 60, 0.1
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        ledger = SavingsLedger({"ms": 1.0})
        ledger.add(None, {"ms": 10.0}, None, {"ms": 1.0})
        draws, values = rng.random(600) < share, np.exp(0.2 * rng.standard_t(4, 600)) * 10.0
        for held_out, value in zip(draws.tolist(), values.tolist(), strict=True):
            ledger.add(Draw(held_out, share, 9.0, 11.0), {"ms": value}, None, {"ms": 1.0})
        found = ledger.report()
        wrong += found.better_since is not None or found.worse_since is not None
    assert wrong <= 0.05 * runs


def test_savings_are_said_without_an_interval_of_metrics_of_both_signs():
    assert "not all positive" in str(VersusDefault(10, 5, 0, None, {}))
