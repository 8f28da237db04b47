"""Paired tells: a control beside a run cancels the noise that both share."""

import math

import numpy as np
import pytest

from rasp_tuner import Bool, Categorical, Float, InvalidValue, Metric, Tuner, presets

SPACES = {
    "smooth": ({"x": Float(0.0, 1.0)}, {"x": 0.2}),
    "choices": ({"mode": Categorical(["a", "b", "c"]), "fast": Bool()}, {"mode": "a", "fast": False}),
}


def ratio(params):
    """Loss over the default's."""
    if "x" in params:
        return math.exp((params["x"] - 0.7) ** 2 - 0.25)
    return {"a": 1.0, "b": 0.85, "c": 1.2}[params["mode"]] * (0.95 if params["fast"] else 1.0)


def play(tuner, steps, seed=0, control=True, shared=0.3, own=0.01, offset=0.0):
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        asked = tuner.ask()
        common, mine, other = shared * rng.normal(), own * rng.normal(), own * rng.normal()
        beside = {"ms": 100.0 * math.exp(common + other) - offset} if control else None
        tuner.tell(asked.id, {"ms": 100.0 * ratio(asked.params) * math.exp(common + mine) - offset}, control=beside)


def tuner_of(space="choices", metrics="min", seed=0, **settings):
    knobs, default = SPACES[space]
    return Tuner(knobs, {"ms": metrics}, None, default, seed=seed, **settings)


@pytest.mark.parametrize("space", SPACES)
def test_controls_find_in_forty_steps_what_noise_hides(space):
    def regrets(control):
        found = []
        for seed in range(6):
            tuner = tuner_of(space, seed=seed)
            play(tuner, 40, seed, control)
            best = ratio({"x": 0.7}) if space == "smooth" else ratio({"mode": "b", "fast": True})
            found.append(ratio(tuner.recommend()) / best - 1.0)
        return np.array(found)

    paired, alone = regrets(True), regrets(False)
    assert (paired < 0.03).sum() >= 5
    assert paired.mean() < 0.4 * alone.mean()


def test_savings_need_no_holdout_where_there_are_controls():
    tuner = tuner_of()
    play(tuner, 80)
    found = tuner.savings()
    assert found.held_out == 0
    assert found.paired > 50
    assert 0.1 < found.gain.low < found.gain.high < 0.22
    assert found.better_since is not None


def test_a_control_is_on_record_as_a_run_of_the_default():
    tuner = tuner_of()
    asked = tuner.ask()
    tuner.tell(asked.id, {"ms": 90.0}, control={"ms": 120.0})
    control, own = tuner.history()
    assert (control["id"], control["params"], control["metrics"]) == (None, tuner.default, {"ms": 120.0})
    assert (own["id"], own["metrics"]) == (asked.id, {"ms": 90.0})
    assert tuner.learned == 2


def test_what_is_learned_does_not_depend_on_what_both_share():
    """Once the level of the default is known."""

    def asked(noise):
        tuner = tuner_of("smooth", metrics=Metric("min", scale="log"))
        params = []
        for step in range(25):
            one, common = tuner.ask(), math.exp(noise * math.sin(7.0 * step)) if step else 1.0
            tuner.tell(one.id, {"ms": 100.0 * ratio(one.params) * common}, control={"ms": 100.0 * common})
            params.append(one.params)
        return params

    assert asked(1.0)[10:] == [pytest.approx(one, abs=0.06) for one in asked(0.0)[10:]]  # the same but for rounding


def test_metrics_below_zero_are_compared_by_differences():
    tuner = tuner_of()
    play(tuner, 60, offset=200.0, own=0.005)
    assert tuner.recommend() == {"mode": "b", "fast": True}
    assert tuner.savings().gain.kind == "difference"
    assert tuner.savings().gain.low > 5.0


def test_a_limit_of_a_fixed_value_sees_what_was_measured():
    """A control of 50 beside 190 would make it 380 at the usual level, and break the limit."""
    metrics = {"ms": "min", "p99": Metric("min", max=200.0)}
    knobs, default = SPACES["choices"]
    tuner = Tuner(knobs, metrics, None, default)
    for _ in range(12):
        asked = tuner.ask()
        tuner.tell(asked.id, {"ms": 100.0, "p99": 190.0}, control={"ms": 100.0, "p99": 190.0})
    asked = tuner.ask()
    tuner.tell(asked.id, {"ms": 100.0, "p99": 190.0}, control={"ms": 100.0, "p99": 95.0})
    assert tuner.margins(None, asked.params)["p99"].expected < 195.0


@pytest.mark.parametrize(
    ("metrics", "control", "said"),
    [
        ({"ms": 1.0}, {"other": 1.0}, "control lacks"),
        ({"ms": 1.0}, {}, "control lacks"),
        ({"ms": 1.0}, {"ms": 1.0, "more": 2.0}, "control has unknown names"),
        ({"ms": 1.0}, {"ms": math.nan}, r"control\['ms'\] must be a finite number"),
        ({"ms": 1.0}, {"ms": "fast"}, r"control\['ms'\] must be a finite number"),
        ({"ms": 1.0}, 3.0, "control must be a mapping"),
        ({"ms": math.inf}, {"ms": 1.0}, r"metrics\['ms'\] must be a finite number"),
        ({"ms": 1.0}, {"ms": 0.0}, r"control\['ms'\] must be above 0"),
    ],
)
def test_a_control_that_cannot_be_is_refused_and_nothing_changes(metrics, control, said):
    tuner = tuner_of(metrics=Metric("min", scale="log"))
    play(tuner, 3)
    asked, before = tuner.ask(), None
    before = tuner.to_bytes()
    with pytest.raises(InvalidValue, match=said):
        tuner.tell(asked.id, metrics, control=control)
    assert tuner.to_bytes() == before
    tuner.tell(asked.id, {"ms": 1.0}, control={"ms": 1.0})


def test_the_paper_learns_from_no_controls():
    pytest.importorskip("torch")
    tuner = Tuner({"x": Float(0, 1)}, {"ms": "min"}, None, {"x": 0.5}, preset=presets.paper(), budget=None)
    asked = tuner.ask()
    before = tuner.to_bytes()
    with pytest.raises(InvalidValue, match="paper"):
        tuner.tell(asked.id, {"ms": 1.0}, control={"ms": 1.0})
    assert tuner.to_bytes() == before


def test_a_paired_run_that_is_saved_goes_on_bit_for_bit():
    tuner = tuner_of("smooth")
    play(tuner, 20)
    other = Tuner.from_bytes(tuner.to_bytes())
    play(tuner, 10, seed=5)
    play(other, 10, seed=5)
    assert other.to_bytes() == tuner.to_bytes()


def test_of_absurdly_small_controls_numbers_stay_finite():
    tuner = tuner_of()
    for value in (1e-300, 1e300, 1e-300):
        asked = tuner.ask()
        tuner.tell(asked.id, {"ms": 1e300}, control={"ms": value})
    assert math.isfinite(tuner.savings().gain.value)
    Tuner.from_bytes(tuner.to_bytes())


def test_a_trial_reports_its_control():
    tuner, other = tuner_of(), tuner_of()
    for _ in range(5):
        with tuner.trial() as trial:
            trial.report(ms=90.0, control={"ms": 120.0})
        other.tell(other.ask().id, {"ms": 90.0}, control={"ms": 120.0})
    assert tuner.to_bytes() == other.to_bytes()
    assert tuner.savings() is not None
