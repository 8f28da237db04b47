from dataclasses import replace

import numpy as np
import pytest

from rasp_tuner import Float, InvalidValue, SnapshotError, Tuner, presets
from rasp_tuner.paper import AdaptiveHybridTuner, ParamBounds
from rasp_tuner.paper.surrogate import Prediction

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
    theta, by_hand = BOX.center, []
    for _ in range(30):
        by_hand.append(theta.tolist())
        theta, info = hybrid.tune_one_step(theta, hybrid.optimizer.composer.compose(evaluate(theta)))
    assert by_hand == ran
    assert info.path in ("fast", "slow")
    assert 0.0 <= info.novelty <= 1.0
    assert len(info.slots) == len(info.weights) <= 3
    assert sum(info.gate) == pytest.approx(1.0)


def test_expectation_and_error_of_info_are_of_the_same_point():
    hybrid = AdaptiveHybridTuner(BOX, 1, lambda: [0.0])
    theta, info = hybrid.tune_one_step(BOX.center, 0.9)
    assert (info.error, info.predicted, info.gate) == (0.9, None, ())  # nobody had proposed the middle
    optimizer, unit = hybrid.optimizer, BOX.normalize(theta)
    seen = optimizer.memory.retrieve(np.zeros(1))
    believed = optimizer.surrogate.predict(unit[None], seen)
    _, info = hybrid.tune_one_step(theta, 0.2)
    assert info.error == 0.2
    assert info.predicted == pytest.approx(float(believed.mean[0]), abs=0.1)  # ranked by some of the experts
    expected = info.predicted
    theta, info = hybrid.tune_one_step(theta, 0.7)  # again the same point, which is not what was proposed last
    assert (info.error, info.predicted) == (0.7, None)
    _, info = hybrid.tune_one_step(theta, 0.3)
    assert info.predicted not in (None, expected)


def test_the_named_tuner_walks_the_same_path():
    """Tuner adds names and ids around Algorithm 1, nothing else: same seed, same box, same suggestions."""
    box = ParamBounds([0.0, 0.0], [1.0, 1.0])

    def loss(theta):
        return {"loss": float(((theta - 0.3) ** 2).sum())}

    plain = AdaptiveHybridTuner(box, 0, metrics={"loss": "min"}, seed=3)
    named = Tuner({"a": Float(0, 1, digits=12), "b": Float(0, 1, digits=12)}, {"loss": "min"}, preset="paper", seed=3)
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
    assert hybrid.optimizer.memory.keys[:2, 0].tolist() == [0.0, 7.0]
    assert hybrid.optimizer.replay.contexts[:2, 0].tolist() == [0.0, 7.0]


def test_propose_learns_nothing():
    hybrid, evaluate = tuner()
    for _ in hybrid.run(evaluate, 25):
        pass
    before = {name: array.tobytes() for name, array in hybrid.state().items()}
    for _ in range(10):
        hybrid.propose(np.array([3.0]), BOX.center)
    assert {name: array.tobytes() for name, array in hybrid.state().items()} == before


def test_a_state_that_is_not_of_such_a_tuner_changes_nothing():
    (one, _), (other, _) = tuner(1), tuner(2)
    for t in (one, other):
        t.tune_one_step(t.bounds.center, 0.5)
    before = {name: array.tobytes() for name, array in one.state().items()}
    bad = {**other.state(), "replay/added": np.array(7.0)}  # the last part that is read
    with pytest.raises(SnapshotError, match="'replay/added' must be the number of samples"):
        one.restore(bad)
    assert {name: array.tobytes() for name, array in one.state().items()} == before


def test_a_failed_sample_teaches_the_surrogate_but_is_no_ones_best():
    hybrid = AdaptiveHybridTuner(BOX, 1, lambda: [0.0])
    corner = BOX.upper
    hybrid.learn(np.array([0.0]), BOX.center, 0.5)
    prompts = hybrid.optimizer.memory.prompts.copy()
    hybrid.learn(np.array([0.0]), corner, 1.0, failed=True)
    hybrid.learn(np.array([50.0]), corner, 1.0, failed=True)  # a new context: still no slot
    assert len(hybrid.optimizer.memory) == 1
    assert hybrid.best_known(np.array([50.0])).tolist() == BOX.center.tolist()
    assert len(hybrid.optimizer.replay) == 3
    assert not np.array_equal(hybrid.optimizer.memory.prompts, prompts)


def test_a_failure_before_anything_is_known_is_survived():
    hybrid = AdaptiveHybridTuner(BOX, 1, lambda: [0.0])
    hybrid.learn(np.array([0.0]), BOX.center, 1.0, failed=True)
    assert hybrid.best_known(np.array([0.0])) is None


def test_anomalies_move_the_shared_weights_and_calm_steps_do_not():
    preset = presets.paper(anomaly_threshold=0.5)
    hybrid = AdaptiveHybridTuner(BOX, 0, preset=preset)
    shared = lambda: hybrid.optimizer.surrogate.weights["expert1.w"].numpy().tobytes()  # noqa: E731
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
    assert len(hybrid.optimizer.replay) == 0


def test_a_context_that_cannot_be_had_changes_nothing():
    looks = iter([[1.0], [1.0]])
    hybrid = AdaptiveHybridTuner(BOX, 1, lambda: next(looks))
    hybrid.tune_one_step(BOX.center, 0.5)
    with pytest.raises(StopIteration):  # the caller's own error, as it is
        hybrid.tune_one_step(BOX.center, 0.5)
    assert len(hybrid.optimizer.replay) == 1


def test_a_context_of_the_wrong_length_is_refused_before_anything_is_learned():
    hybrid = AdaptiveHybridTuner(BOX, 2, lambda: [1.0])
    with pytest.raises(InvalidValue, match="context must hold 2 numbers, got 1"):
        hybrid.tune_one_step(BOX.center, 0.5)
    assert len(hybrid.optimizer.replay) == 0


class Spy:
    """A surrogate that writes down what it is asked and moves prompts by one."""

    def __init__(self, experts=2):
        self.experts, self.predicted, self.doubts, self.sloped, self.fast, self.batches = experts, [], [], [], [], []

    def predict(self, points, seen, doubt=None):
        self.predicted.append((points.copy(), seen))
        self.doubts.append(doubt)
        mean = points.sum(axis=1)  # downhill is towards the lower corner, and beyond it
        return Prediction(mean, np.full(len(points), 0.01), np.full((len(points), self.experts), 0.5))

    def gradient(self, point, _seen):
        self.sloped.append(point.copy())
        return np.full(len(point), 10.0)

    def update_prompts_only(self, point, seen, error):
        self.fast.append((point.copy(), seen, error))
        return seen.prompts + 1.0

    def update_full_emergency(self, batch):
        self.batches.append(batch)


def spied(context_dim=1, **changes):
    hybrid = AdaptiveHybridTuner(ParamBounds.unit(2), context_dim, preset=presets.paper(**changes))
    spy = Spy()
    hybrid.optimizer = replace(hybrid.optimizer, surrogate=spy)
    return hybrid, spy


def test_candidates_are_ranked_as_they_are_and_clipped_afterwards():
    hybrid, spy = spied()
    proposal = hybrid.propose(np.zeros(1), np.array([0.5, 0.5]))
    ranked, _ = spy.predicted[-1]
    assert ranked[0].tolist() == [-1.0, -1.0]  # 0.5 - 0.15 * 10
    assert proposal.point.tolist() == [0.0, 0.0]
    assert proposal.why.source == "gradient"
    assert proposal.why.predicted == -2.0


def test_gradient_and_doubt_are_taken_at_the_base_center_and_only_the_ranking_saves_experts():
    hybrid, spy = spied()
    hybrid.learn(np.zeros(1), np.array([1.0, 1.0]), 0.2)  # the hint
    spy.predicted.clear()
    spy.doubts.clear()
    hybrid.propose(np.zeros(1), np.array([0.0, 0.0]))
    base = [0.35, 0.35]
    assert spy.sloped[-1].tolist() == pytest.approx(base)
    assert spy.predicted[0][0][0].tolist() == pytest.approx(base)
    assert spy.doubts[0] is None
    assert 0.0 <= spy.doubts[1] <= 1.0


def test_the_fast_path_trains_the_prompts_retrieved_after_the_slot_is_opened():
    hybrid, spy = spied()
    hybrid.learn(np.array([3.0]), np.array([0.1, 0.2]), 0.4)
    point, seen, error = spy.fast[0]
    assert (point.tolist(), seen.slots, error) == ([0.1, 0.2], (0,), 0.4)
    assert np.all(hybrid.optimizer.memory.prompts[0] == 1.0)
    assert spy.predicted[0][1].slots == ()  # the trigger looks at what was believed before


def test_the_slow_path_replays_the_newest_sample_first_with_todays_prompts_and_moves_no_prompt():
    hybrid, spy = spied(anomaly_threshold=0.0, batch_size=3, top_k=1)
    samples = [(0.0, 0.1), (10.0, 0.2), (20.0, 0.3), (30.0, 0.9)]
    for context, error in samples[:-1]:
        hybrid.optimizer.adaptation.anomaly_threshold = 99.0
        hybrid.learn(np.array([context]), np.array([error, error]), error)
    prompts = hybrid.optimizer.memory.prompts.copy()
    hybrid.optimizer.adaptation.anomaly_threshold = 0.0
    verdict = hybrid.learn(np.array([30.0]), np.array([0.9, 0.9]), 0.9)
    assert verdict.path == "slow"
    (batch,) = spy.batches
    assert batch.errors[0] == 0.9
    assert len(batch.errors) == 3
    by_error = {error: (context, slot) for slot, (context, error) in enumerate(samples)}
    for point, context, prompt, error in zip(batch.points, batch.contexts, batch.prompts, batch.errors, strict=True):
        expected_context, slot = by_error[float(error)]
        assert point.tolist() == [error, error]
        assert context.tolist() == [expected_context]
        assert prompt.tolist() == hybrid.optimizer.memory.prompts[slot].tolist()
    assert np.array_equal(hybrid.optimizer.memory.prompts, prompts)


def test_the_next_point_is_chosen_for_the_context_now_in_force():
    looks = iter([[0.0], [50.0], [0.0], [50.0]])
    hybrid = AdaptiveHybridTuner(BOX, 1, lambda: next(looks))
    hybrid.tune_one_step(BOX.center, 0.5)  # ran at 0
    _, info = hybrid.tune_one_step(BOX.center, 0.5)  # ran at 50; the world is back at 0
    assert info.slots[0] == 0
    _, info = hybrid.tune_one_step(BOX.center, 0.5)  # now at 50 again
    assert info.slots[0] == 1


def test_a_failure_counts_as_an_error_of_one_in_the_average():
    hybrid, _ = spied()
    hybrid.learn(np.zeros(1), np.zeros(2), 1.0, failed=True)
    assert hybrid.optimizer.composer.error_ema.mean == pytest.approx(0.03)
    assert hybrid.optimizer.memory.distance_ema.moments.tolist() == [0.0, 1.0]


def test_contexts_from_the_function_saturate_too():
    hybrid = AdaptiveHybridTuner(BOX, 1, lambda: [1e300])
    theta = BOX.center
    for _ in range(5):
        theta, info = hybrid.tune_one_step(theta, 0.5)
    assert np.all(np.isfinite(theta))
    assert np.isfinite(info.predicted)
