import numpy as np
import pytest

from rasp_tuner import Float, InvalidSpace, Metric, Tuner, presets
from rasp_tuner.paper import PAPER
from rasp_tuner.presets import Preset
from rasp_tuner.space import Layout


def test_paper_constants_are_those_of_the_hyperparameter_table():
    k = presets.paper().constants
    table = {
        "memory_size": 200,
        "top_k": 3,
        "temperature": 1.0,
        "novelty_threshold": 0.7,
        "prompt_dim": 32,
        "experts": 6,
        "hidden_1": 48,
        "hidden_2": 24,
        "gate_hidden": 48,
        "min_active": 2,
        "doubt_share": 0.55,
        "momentum": 0.97,
        "stay": 0.65,
        "kappa": 2.0,
        "prompt_rate": 5e-3,
        "prompt_penalty": 1e-4,
        "full_rate": 1e-4,
        "anchor_penalty": 3e-4,
        "base_step": 0.15,
        # chosen here
        "perturbations": 6,
        "replay_size": 256,
        "batch_size": 32,
        "full_steps": 5,
        "anomaly_threshold": 2.0,
        "disagreement_threshold": 2.0,
    }
    assert k == table


def test_constants_reach_their_parts():
    changed = presets.paper(
        memory_size=7, top_k=2, temperature=0.5, novelty_threshold=0.6, prompt_dim=24, experts=8, base_step=0.25,
        kappa=1.5, stay=0.5, prompt_rate=0.01, full_rate=3e-4, replay_size=9, batch_size=4, momentum=0.9, min_active=3,
        doubt_share=0.4, prompt_penalty=0.2, anchor_penalty=0.3, full_steps=2, perturbations=11, anomaly_threshold=4.0,
        disagreement_threshold=5.0, hidden_1=10, hidden_2=9, gate_hidden=8,
    )  # fmt: skip
    assert not set(changed.constants.items()) & set(PAPER.items())  # every constant there is was changed
    parts = changed.build(Layout.continuous(2), 3, {"m": "min"}, np.random.default_rng(0))
    memory = parts.memory
    assert (memory.size, memory.top_k, memory.temperature, memory.novelty_threshold) == (7, 2, 0.5, 0.6)
    assert memory.prompts.shape == (7, 24)
    assert parts.surrogate.experts == 8
    assert (parts.surrogate.prompt_rate, parts.surrogate.full_rate) == (0.01, 3e-4)
    assert (parts.policy.base_step, parts.policy.kappa, parts.policy.stay) == (0.25, 1.5, 0.5)
    assert parts.replay.errors.shape == (9,)
    assert parts.batch_size == 4
    surrogate, adaptation = parts.surrogate, parts.adaptation
    assert (surrogate.min_active, surrogate.doubt_share, surrogate.full_steps) == (3, 0.4, 2)
    assert (surrogate.prompt_penalty, surrogate.anchor_penalty) == (0.2, 0.3)
    shapes = [tuple(surrogate.weights[name].shape) for name in ("expert2.w", "gate2.w")]
    assert shapes == [(8, 10, 9), (8, 8)]
    assert parts.policy.perturbations == 11
    assert (adaptation.anomaly_threshold, adaptation.disagreement_threshold) == (4.0, 5.0)
    averages = (parts.composer.emas["m"], parts.composer.error_ema, memory.distance_ema, adaptation.disagreement_ema)
    assert [ema.momentum for ema in averages] == [0.9] * 4


@pytest.mark.parametrize(
    ("name", "changes", "says"),
    [
        ("best", {}, r"one of \['paper', 'default'"),
        (None, {}, "preset must be one of"),
        (["paper"], {}, "preset must be one of"),
        ("paper", {"memory": 3}, "no constant 'memory'"),
        ("paper", {"top_k": 0}, "'top_k' must be a whole number from 1"),
        ("paper", {"top_k": 1.5}, "'top_k' must be a whole number"),
        ("paper", {"kappa": -1.0}, "'kappa' must be a number from 0"),
        ("paper", {"kappa": float("nan")}, "'kappa' must be a finite number"),
        ("paper", {"momentum": 1.0}, "'momentum'"),
        ("paper", {"temperature": 0.0}, "'temperature'"),
        ("paper", [1], "must be a mapping"),
        ("default", {"guard": -0.5}, "guard must be a share from 0"),
        ("default", {"guard": 2e9}, r"guard must be a share from 0 up to 1e\+09"),
        ("default", {"guard": np.zeros(2)}, "guard must be a finite number"),
        ("default", {"switching_cost": -1.0}, "switching_cost must be a number from 0"),
        ("default", {"find": 1.0}, "find must be True or False"),
    ],
)
def test_unknown_presets_and_constants_are_refused(name, changes, says):
    with pytest.raises(InvalidSpace, match=says):
        presets.named(name, changes)


def test_a_handmade_preset_is_checked_too():
    from rasp_tuner.paper import AdaptiveHybridTuner, ParamBounds

    with pytest.raises(InvalidSpace, match="'top_k'"):
        AdaptiveHybridTuner(ParamBounds([0.0], [1.0]), preset=Preset("paper", {"top_k": -1}))


def test_settings_of_the_engine_are_typed():
    assert presets.default().constants == {
        "switching_cost": 0.0,
        "guard": None,
        "budget": None,
        "find": False,
        "quadratic": False,
    }
    assert presets.default(find=np.True_).constants["find"] is True


def test_the_paper_refuses_a_scale_that_it_would_ignore():
    with pytest.raises(InvalidSpace, match=r"metrics\['ms'\]: preset 'paper' knows no scale 'log'"):
        Tuner({"x": Float(0, 1)}, {"tps": "max", "ms": Metric("min", scale="log")}, preset="paper")
    for scale in ("auto", "linear"):
        tuner = Tuner({"x": Float(0, 1)}, {"tps": "max", "ms": Metric("min", scale=scale)}, preset="paper")
        assert tuner.scales == {"tps": "linear", "ms": "linear"}


@pytest.mark.parametrize("option", ["budget", "guard", "switching_cost", "holdout"])
@pytest.mark.parametrize("given", [True, False, "0.1"])
def test_a_share_is_a_number(option, given):
    with pytest.raises(InvalidSpace, match=rf"{option} must be a finite number, got"):
        Tuner({"x": Float(0, 1)}, {"loss": "min"}, default={"x": 0.5}, **{option: given})
