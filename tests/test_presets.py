import numpy as np
import pytest

from rasp_tuner import InvalidSpace, presets
from rasp_tuner.presets import Preset


def test_paper_constants_are_those_of_the_hyperparameter_table():
    k = presets.paper().constants
    table = {
        "memory_size": 200,
        "top_k": 3,
        "temperature": 1.0,
        "novelty_threshold": 0.7,
        "prompt_dim": 32,
        "experts": 6,
        "min_active": 2,
        "momentum": 0.97,
        "stay": 0.65,
        "kappa": 2.0,
        "prompt_rate": 5e-3,
        "prompt_penalty": 1e-4,
        "full_rate": 1e-4,
        "anchor_penalty": 3e-4,
        "base_step": 0.15,
    }
    assert {name: k[name] for name in table} == table


def test_constants_reach_their_parts():
    changed = presets.paper(
        memory_size=7, top_k=2, temperature=0.5, novelty_threshold=0.6, prompt_dim=24, experts=8, base_step=0.25,
        kappa=1.5, stay=0.5, prompt_rate=0.01, full_rate=3e-4, replay_size=9, batch_size=4, momentum=0.9,
    )  # fmt: skip
    parts = changed.build(2, 3, {"m": "min"}, np.random.default_rng(0))
    memory = parts.memory
    assert (memory.size, memory.top_k, memory.temperature, memory.novelty_threshold) == (7, 2, 0.5, 0.6)
    assert memory.prompts.shape == (7, 24)
    assert parts.surrogate.experts == 8
    assert (parts.surrogate.prompt_rate, parts.surrogate.full_rate) == (0.01, 3e-4)
    assert (parts.policy.base_step, parts.policy.kappa, parts.policy.stay) == (0.25, 1.5, 0.5)
    assert parts.replay.errors.shape == (9,)
    assert parts.batch_size == 4
    assert parts.composer.emas["m"].momentum == 0.9


@pytest.mark.parametrize(
    ("name", "changes", "says"),
    [
        ("best", {}, r"one of \['paper', 'default'\]"),
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
    ],
)
def test_unknown_presets_and_constants_are_refused(name, changes, says):
    with pytest.raises(InvalidSpace, match=says):
        presets.named(name, changes)


def test_a_handmade_preset_is_checked_too():
    from rasp_tuner import AdaptiveHybridTuner, ParamBounds

    with pytest.raises(InvalidSpace, match="'top_k'"):
        AdaptiveHybridTuner(ParamBounds([0.0], [1.0]), preset=Preset("paper", {"top_k": -1}))
