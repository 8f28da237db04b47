import numpy as np
import pytest

from rasp_tuner import AdaptiveHybridTuner, Float, InvalidValue, ParamBounds, Tuner, presets

BOX = ParamBounds([-5.0, 0.0, 100.0], [5.0, 1.0, 200.0])


def world(seed=0):
    """A context that alternates between two values, and a bowl whose bottom depends on it."""
    rng, clock = np.random.default_rng(seed), {"t": -1}

    def look():
        clock["t"] += 1
        return [float(clock["t"] // 10 % 2)]

    def evaluate(theta):
        u = BOX.normalize(theta)
        return {"loss": float(((u - 0.3 - 0.4 * (clock["t"] // 10 % 2)) ** 2).sum() + 0.01 * rng.normal())}

    return look, evaluate


def tuner(seed=0, preset="paper"):
    look, evaluate = world()
    return AdaptiveHybridTuner(BOX, 1, look, metrics={"loss": "min"}, preset=preset, seed=seed), evaluate


def test_algorithm_one_starts_in_the_middle_and_stays_in_the_box():
    hybrid, evaluate = tuner()
    thetas = [theta for theta, _ in hybrid.run(evaluate, 60)]
    assert thetas[0].tolist() == [0.0, 0.5, 150.0]
    assert len(thetas) == 60
    assert all(np.array_equal(BOX.clip(theta), theta) for theta in thetas)
    assert len({theta.tobytes() for theta in thetas}) > 50  # it moves


def test_run_equals_tune_one_step_by_hand():
    hybrid, evaluate = tuner()
    ran = [theta.tolist() for theta, _ in hybrid.run(evaluate, 30)]
    hybrid, evaluate = tuner()
    hybrid._context = hybrid._look()
    theta, by_hand = BOX.center, []
    for _ in range(30):
        by_hand.append(theta.tolist())
        theta, info = hybrid.tune_one_step(theta, hybrid.parts.composer.compose(evaluate(theta)))
    assert by_hand == ran
    assert info.path in ("fast", "slow")
    assert 0.0 <= info.novelty <= 1.0
    assert len(info.slots) == len(info.weights) <= 3
    assert sum(info.gate) == pytest.approx(1.0)


def test_the_named_tuner_walks_the_same_path():
    """Tuner adds names and ids around Algorithm 1, nothing else: same seed, same box, same suggestions."""
    box = ParamBounds([0.0, 0.0], [1.0, 1.0])

    def loss(theta):
        return {"loss": float(((theta - 0.3) ** 2).sum())}

    plain = AdaptiveHybridTuner(box, 0, metrics={"loss": "min"}, seed=3)
    named = Tuner({"a": Float(0, 1), "b": Float(0, 1)}, {"loss": "min"}, preset="paper", seed=3)
    for theta, _ in plain.run(loss, 40):
        suggestion = named.ask()
        got = np.array([suggestion.params["a"], suggestion.params["b"]])
        assert np.allclose(got, theta, atol=1e-9)  # names carry twelve digits
        named.tell(suggestion.id, loss(got))


def test_samples_are_filed_under_the_context_they_ran_in():
    contexts = iter([[0.0], [7.0], [0.0]])
    hybrid = AdaptiveHybridTuner(BOX, 1, lambda: next(contexts))
    hybrid.tune_one_step(BOX.center, 0.5)  # ran at 0, the world is now at 7
    hybrid.tune_one_step(BOX.center, 0.6)  # ran at 7
    assert hybrid.parts.memory.keys[:2, 0].tolist() == [0.0, 7.0]
    assert hybrid.parts.replay.contexts[:2, 0].tolist() == [0.0, 7.0]


def test_propose_learns_nothing():
    hybrid, evaluate = tuner()
    for _ in hybrid.run(evaluate, 25):
        pass
    before = {name: array.tobytes() for name, array in hybrid.state().items()}
    for _ in range(10):
        hybrid.propose(np.array([3.0]), BOX.center)
    assert {name: array.tobytes() for name, array in hybrid.state().items()} == before


def test_a_failed_sample_teaches_the_surrogate_but_is_no_ones_best():
    hybrid = AdaptiveHybridTuner(BOX, 1, lambda: [0.0])
    corner = BOX.upper
    hybrid.learn(np.array([0.0]), BOX.center, 0.5)
    prompts = hybrid.parts.memory.prompts.copy()
    hybrid.learn(np.array([0.0]), corner, 1.0, failed=True)
    hybrid.learn(np.array([50.0]), corner, 1.0, failed=True)  # a new context: still no slot
    assert len(hybrid.parts.memory) == 1
    assert hybrid.best_known(np.array([50.0])).tolist() == BOX.center.tolist()
    assert len(hybrid.parts.replay) == 3
    assert not np.array_equal(hybrid.parts.memory.prompts, prompts)


def test_a_failure_before_anything_is_known_is_survived():
    hybrid = AdaptiveHybridTuner(BOX, 1, lambda: [0.0])
    hybrid.learn(np.array([0.0]), BOX.center, 1.0, failed=True)
    assert hybrid.best_known(np.array([0.0])) is None


def test_anomalies_move_the_shared_weights_and_calm_steps_do_not():
    preset = presets.paper(anomaly_threshold=0.5)
    hybrid = AdaptiveHybridTuner(BOX, 0, preset=preset)
    shared = lambda: hybrid.parts.surrogate.weights["expert1.w"].numpy().tobytes()  # noqa: E731
    before = shared()
    _, info = hybrid.tune_one_step(BOX.center, 0.1)
    assert (info.path, shared()) == ("fast", before)
    _, info = hybrid.tune_one_step(BOX.center, 1.0)
    assert info.path == "slow"
    assert "unusual error" in info.reason
    assert shared() != before


@pytest.mark.parametrize("error", [-0.1, 1.1, float("nan"), float("inf"), "0.5", None])
def test_errors_outside_the_unit_interval_are_refused(error):
    hybrid = AdaptiveHybridTuner(BOX)
    with pytest.raises(InvalidValue, match="error"):
        hybrid.tune_one_step(BOX.center, error)
    assert len(hybrid.parts.replay) == 0


def test_a_context_that_cannot_be_had_changes_nothing():
    looks = iter([[1.0], [1.0]])
    hybrid = AdaptiveHybridTuner(BOX, 1, lambda: next(looks))
    hybrid.tune_one_step(BOX.center, 0.5)
    with pytest.raises(StopIteration):  # the caller's own error, as it is
        hybrid.tune_one_step(BOX.center, 0.5)
    assert len(hybrid.parts.replay) == 1


def test_a_context_of_the_wrong_length_is_refused_before_anything_is_learned():
    hybrid = AdaptiveHybridTuner(BOX, 2, lambda: [1.0])
    with pytest.raises(InvalidValue, match="context must hold 2 numbers, got 1"):
        hybrid.tune_one_step(BOX.center, 0.5)
    assert len(hybrid.parts.replay) == 0
