import numpy as np
import pytest
from streams import noise, regimes

from rasp_tuner.context_report import flaws, screen


def test_constant_and_duplicate_dimensions_are_named():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 50))
    contexts = np.column_stack([a, np.full(50, 7.0), 5.0 - 3.0 * a, b, 2.0 * a])
    names = ["a", "still", "turned", "b", "double"]
    assert flaws.constant(contexts, names) == ["still: constant, so nothing can be learned from it"]
    (said,) = flaws.duplicates(contexts, names)
    assert said.startswith("a and turned, a and double: the same")
    assert flaws.duplicates(np.column_stack([a, b]), ["a", "b"]) == []


def test_a_counter_moves_one_way_and_a_wave_does_not():
    steps = np.arange(60.0)
    contexts = np.column_stack([steps**2, np.sin(steps / 3.0)])
    (said,) = flaws.one_way(contexts, ["uptime", "wave"])
    assert said.startswith("uptime: moves one way only")


def test_a_dimension_made_from_the_outcome_is_suspected():
    contexts, points, losses = regimes()
    leaked = 3.0 * losses + 0.02 * np.random.default_rng(0).normal(size=len(losses))
    report = screen(np.column_stack([contexts, leaked]), points, losses, ["weather", "load", "cpu_after"])
    (said,) = [warning for warning in report.warnings if "outcome" in warning]
    assert said.startswith("cpu_after (")


def test_honest_contexts_are_not_suspected():
    for contexts, points, losses in (noise(), regimes()):
        assert flaws.leakage(contexts, ["a", "b"], losses, points) == []


def test_a_loss_that_drifts_with_a_counter_is_no_leak():
    rng = np.random.default_rng(0)
    steps = np.arange(80.0)
    losses = steps / 20.0 + 0.05 * rng.normal(size=80)
    assert flaws.leakage(steps[:, None], ["uptime"], losses, rng.uniform(size=(80, 2))) == []


def test_a_leak_among_many_dimensions_is_found():
    _, points, losses = noise()
    contexts = np.random.default_rng(0).normal(size=(80, 60))
    contexts[:, 41] = losses
    (said,) = flaws.leakage(contexts, [f"c{i}" for i in range(60)], losses, points)
    assert said.startswith("c41 (")


def sized(effect, seed=0, n=150):
    """Inputs whose size sets the level of the time; parameters change it by `effect` times up to 0.8 or so."""
    rng = np.random.default_rng(seed)
    points, size = rng.uniform(size=(n, 3)), np.exp(rng.normal(size=n))
    bowl = ((points - 0.4) ** 2).sum(axis=1)
    return size, points, np.log(size) + effect * bowl + 0.03 * rng.normal(size=n)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("effect", [0.0, 0.2, 0.8])
def test_a_size_that_sets_the_level_is_no_leak(effect, seed):
    size, points, losses = sized(effect, seed)
    assert flaws.leakage(size[:, None], ["size_kb"], losses, points) == []


@pytest.mark.parametrize("seed", range(3))
def test_what_knows_the_effect_of_the_parameters_is_a_leak_also_beside_a_size(seed):
    size, points, losses = sized(0.8, seed)
    after = losses + 0.03 * np.random.default_rng(seed).normal(size=len(losses))
    (said,) = flaws.leakage(np.column_stack([size, after]), ["size_kb", "cpu_after"], losses, points)
    assert said.startswith("cpu_after (")


@pytest.mark.parametrize("seed", range(3))
def test_a_size_that_parameters_were_set_by_is_no_leak(seed):
    size, points, losses = sized(0.0, seed)
    noise = 0.03 * np.random.default_rng(seed).normal(size=len(size))
    points[:, 0] = np.clip(0.5 + 0.4 * np.tanh(np.log(size)) + noise, 0.0, 1.0)
    assert flaws.leakage(size[:, None], ["size_kb"], losses, points) == []


def test_dimensions_of_one_feature_are_no_duplicates_and_move_together():
    words = np.random.default_rng(0).integers(2, size=60)
    contexts = np.column_stack([words, 1.0 - words, np.zeros(60), words])
    assert flaws.duplicates(contexts[:, :3], ["codec"] * 3) == []
    assert flaws.duplicates(contexts, ["codec", "codec", "codec", "copy"])[0].startswith("codec and copy: the same")
    assert flaws.constant(contexts, ["codec", "codec", "codec", "copy"]) == []


def test_contexts_that_leave_all_that_is_known_are_seen_and_others_not():
    contexts = np.random.default_rng(0).normal(size=(60, 2))
    assert flaws.drifted(contexts) == []
    contexts[-flaws.LATEST_SAMPLES :] += 8.0
    (said,) = flaws.drifted(contexts)
    assert said.startswith("the latest 10 contexts are ")
    assert flaws.drifted(contexts, memory=contexts) == []  # memory knows them


def test_a_context_that_takes_a_few_values_only_is_near_to_itself():
    contexts = np.random.default_rng(0).integers(2, size=(60, 3)).astype(float)
    assert flaws.drifted(contexts) == []
