import math
from dataclasses import replace

import numpy as np
import pytest

from rasp_tuner.paper import PromptMemory
from rasp_tuner.paper.surrogate import TrainingBatch
from tests.later import Later

experts, torch = Later("rasp_tuner.paper.experts"), Later("torch")

DIM, CONTEXT, PROMPT = 3, 2, 4


def surrogate(seed=0, **changes):
    return experts.PromptMoE(DIM, CONTEXT, PROMPT, np.random.default_rng(seed), **changes)


def situation(seed=1, slots=3):
    """A retrieval with random prompts."""
    rng = np.random.default_rng(seed)
    memory = PromptMemory(DIM, CONTEXT, PROMPT, novelty_threshold=0.0)
    for _ in range(slots):
        context = rng.normal(size=CONTEXT)
        memory.write(memory.retrieve(context), rng.uniform(size=DIM), 0.5)
    seen = memory.retrieve(rng.normal(size=CONTEXT))
    memory.write_prompts(seen, rng.normal(size=(slots, PROMPT)))
    return memory.retrieve(seen.context)


def by_hand(moe, points, seen):
    """Expert outputs and gate weights, one expert and one layer at a time."""
    w = {name: value.numpy() for name, value in moe.weights.items()}
    outputs, gates = [], []
    for point in points:
        x = np.concatenate([point, seen.context, seen.prompt])
        row = []
        for e in range(moe.experts):
            h = np.maximum(x @ w["expert1.w"][e] + w["expert1.b"][e, 0], 0)
            h = np.maximum(h @ w["expert2.w"][e] + w["expert2.b"][e, 0], 0)
            row.append(float((h @ w["expert3.w"][e] + w["expert3.b"][e, 0])[0]))
        logits = np.maximum(x @ w["gate1.w"] + w["gate1.b"][0], 0) @ w["gate2.w"] + w["gate2.b"][0]
        outputs.append(row)
        gates.append(np.exp(logits) / np.exp(logits).sum())
    return np.array(outputs), np.array(gates)


def test_architecture_is_the_papers():
    shapes = {
        name: tuple(weight.shape)
        for name, weight in experts.PromptMoE(5, 3, 32, np.random.default_rng(0)).weights.items()
    }
    assert shapes["expert1.w"] == (6, 5 + 3 + 32, 48)
    assert shapes["expert2.w"] == (6, 48, 24)
    assert shapes["expert3.w"] == (6, 24, 1)
    assert shapes["gate1.w"] == (40, 48)
    assert shapes["gate2.w"] == (48, 6)


def test_full_mixture_equals_a_loop_over_experts():
    moe, seen = surrogate(), situation()
    points = np.random.default_rng(2).uniform(size=(7, DIM))
    outputs, gate = by_hand(moe, points, seen)
    mean = (gate * outputs).sum(1)
    prediction = moe.predict(points, seen)
    assert np.allclose(prediction.gate, gate)
    assert np.allclose(prediction.mean, mean)
    assert np.allclose(prediction.variance, (gate * (outputs - mean[:, None]) ** 2).sum(1))


@pytest.mark.parametrize("doubt", [0.0, 0.4, 1.0])
def test_top_k_mixture_keeps_the_heaviest_experts_and_renormalises(doubt):
    moe, seen = surrogate(), replace(situation(), novelty=0.3)
    points = np.random.default_rng(2).uniform(size=(5, DIM))
    active = moe.active_experts(doubt, 0.3)
    outputs, gate = by_hand(moe, points, seen)
    prediction = moe.predict(points, seen, doubt)
    for i in range(5):
        keep = np.argsort(-gate[i])[:active]
        weights = gate[i, keep] / gate[i, keep].sum()
        mean = weights @ outputs[i, keep]
        assert prediction.mean[i] == pytest.approx(mean)
        assert prediction.variance[i] == pytest.approx(weights @ (outputs[i, keep] - mean) ** 2)
        assert np.count_nonzero(prediction.gate[i]) == active
        assert prediction.gate[i].sum() == pytest.approx(1.0)


def test_active_experts_follow_eq_eta_mix():
    moe = surrogate()
    assert moe.active_experts(0.0, 0.0) == 2
    assert moe.active_experts(1.0, 1.0) == 6
    assert moe.active_experts(0.7, 0.0) == 4  # 2 + 4 * 0.55 * 0.7 = 3.54
    assert moe.active_experts(0.0, 0.7) == 3  # 2 + 4 * 0.45 * 0.7 = 3.26
    assert surrogate(doubt_share=0.0).active_experts(1.0, 0.0) == 2


def test_gradient_in_theta_matches_finite_differences():
    moe = surrogate()
    for seed in range(20):
        seen = situation(seed)
        point = np.random.default_rng(seed).uniform(size=DIM)
        steps = 1e-6 * np.eye(DIM)
        numeric = (moe.predict(point + steps, seen).mean - moe.predict(point - steps, seen).mean) / 2e-6
        assert np.allclose(moe.gradient(point, seen), numeric, atol=1e-7)


@pytest.mark.parametrize("error", [0.4, 3.0])  # inside and outside the quadratic part of SmoothL1
def test_prompt_step_matches_finite_differences(error):
    moe = surrogate(prompt_rate=0.1, prompt_penalty=0.05)
    for seed in range(10):
        seen = situation(seed)
        point = np.random.default_rng(seed).uniform(size=DIM)

        def objective(prompts, seen=seen, point=point):
            mean = moe.predict(point[None], replace(seen, prompts=prompts, prompt=seen.weights @ prompts)).mean[0]
            miss = abs(mean - error)
            return (0.5 * miss**2 if miss < 1 else miss - 0.5) + 0.05 * (prompts**2).sum()

        numeric = np.zeros_like(seen.prompts)
        for index in np.ndindex(*numeric.shape):
            step = np.zeros_like(numeric)
            step[index] = 1e-6
            numeric[index] = (objective(seen.prompts + step) - objective(seen.prompts - step)) / 2e-6
        moved = moe.update_prompts_only(point, seen, error)
        assert np.allclose(moved, seen.prompts - 0.1 * numeric, atol=1e-7)


def test_prompt_updates_leave_experts_and_gate_alone():
    moe, seen = surrogate(), situation()
    before = {name: weight.tobytes() for name, weight in moe.state().items()}
    prompts = seen.prompts.copy()
    moved = moe.update_prompts_only(np.full(DIM, 0.5), seen, 0.9)
    assert not np.array_equal(moved, prompts)
    assert np.array_equal(seen.prompts, prompts)
    assert {name: weight.tobytes() for name, weight in moe.state().items()} == before


def test_every_prompt_update_brings_the_prediction_nearer():
    moe, seen = surrogate(prompt_rate=0.5, prompt_penalty=0.0), situation()
    point = np.full(DIM, 0.5)
    misses = []
    for _ in range(50):
        misses.append(abs(moe.predict(point[None], seen).mean[0] - 0.7))
        prompts = moe.update_prompts_only(point, seen, 0.7)
        seen = replace(seen, prompts=prompts, prompt=seen.weights @ prompts)
    assert np.all(np.diff(misses) < 0)


def batch(seed=0, n=16):
    rng = np.random.default_rng(seed)
    return TrainingBatch(
        rng.uniform(size=(n, DIM)), rng.normal(size=(n, CONTEXT)), rng.normal(size=(n, PROMPT)), rng.uniform(size=n)
    )


def test_emergency_update_moves_every_weight_and_no_anchor():
    moe = surrogate()
    before = {name: weight.copy() for name, weight in moe.state().items()}
    moe.update_full_emergency(batch())
    for name, weight in moe.state().items():
        if name.startswith("anchor."):
            assert np.array_equal(weight, before[name])
        else:
            assert np.abs(weight - before[name]).max() > 0


def test_emergency_update_is_adam_on_mse_and_anchor():
    """Beside torch's own optimiser, on the same loss."""
    moe, other = surrogate(), surrogate()
    data = batch()
    moe.update_full_emergency(batch(5))  # away from the anchor, so that the anchor term counts
    other.restore(moe.state())
    moe.update_full_emergency(data)
    weights = list(other.weights.values())
    for weight in weights:
        weight.requires_grad_()
    optimizer = torch.optim.Adam(weights, lr=1e-4)
    rows = torch.tensor(np.concatenate([data.points, data.contexts, data.prompts], 1))
    for _ in range(5):
        outputs, gate = other._forward(rows)
        loss = ((gate * outputs).sum(1) - torch.tensor(data.errors)).square().mean()
        for name, weight in other.weights.items():
            loss = loss + 3e-4 * (weight - other.anchor[name]).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for name, weight in other.weights.items():
        assert np.allclose(moe.weights[name].numpy(), weight.detach().numpy(), rtol=0, atol=1e-12), name


def test_emergency_updates_fit_and_the_anchor_holds_back():
    def miss_and_drift(penalty):
        moe, data = surrogate(full_rate=1e-2, anchor_penalty=penalty), batch()
        for _ in range(60):
            moe.update_full_emergency(data)
        outputs, gate = moe._forward(torch.tensor(np.concatenate([data.points, data.contexts, data.prompts], 1)))
        miss = float(((gate * outputs).sum(1) - torch.tensor(data.errors)).square().mean())
        drift = sum(float((moe.weights[n] - moe.anchor[n]).square().sum()) for n in moe.weights)
        return miss, drift

    free_miss, free_drift = miss_and_drift(0.0)
    held_miss, held_drift = miss_and_drift(1.0)
    assert free_miss < 1e-2 < held_miss
    assert held_drift < 0.1 * free_drift


def test_restore_takes_weights_and_anchor_back():
    moe, other = surrogate(0), surrogate(1)
    moe.update_full_emergency(batch())
    other.restore(moe.state())
    for name, weight in moe.state().items():
        assert np.array_equal(other.state()[name], weight)


def test_an_interrupted_emergency_leaves_a_state_that_can_be_saved():
    moe = surrogate()
    with pytest.raises(RuntimeError):
        moe.update_full_emergency(
            TrainingBatch(np.zeros((2, DIM)), np.zeros((2, CONTEXT)), np.zeros((2, PROMPT + 1)), np.zeros(2))
        )
    assert np.all(np.isfinite(moe.state()["expert1.w"]))


def test_arithmetic_runs_on_one_thread(monkeypatch):
    moe, seen, threads = surrogate(), situation(), []
    forward = moe._forward
    monkeypatch.setattr(moe, "_forward", lambda rows: threads.append(torch.get_num_threads()) or forward(rows))
    moe.predict(np.zeros((1, DIM)), seen)
    moe.gradient(np.zeros(DIM), seen)
    moe.update_prompts_only(np.zeros(DIM), seen, 0.5)
    assert threads == [1, 1, 1]


def test_the_callers_thread_setting_is_left_as_it_was():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        surrogate().predict(np.zeros((1, DIM)), situation())
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_the_callers_torch_settings_do_not_matter():
    """Tuning while a model is evaluated under no_grad, or with another default device, is ordinary use."""
    seen, point = situation(), np.full(DIM, 0.5)
    usual = surrogate()
    expected = usual.update_prompts_only(point, seen, 0.9), usual.gradient(point, seen)
    for setting in (torch.no_grad(), torch.inference_mode(), torch.device("meta")):
        with setting:
            moe = surrogate()
            moe.update_full_emergency(batch())
            moe = surrogate()
            got = moe.update_prompts_only(point, seen, 0.9), moe.gradient(point, seen)
        assert np.array_equal(got[0], expected[0])
        assert np.array_equal(got[1], expected[1])


def test_overflowing_gradients_leave_the_weights_alone():
    moe = surrogate()
    before = {name: weight.copy() for name, weight in moe.state().items()}
    wild = TrainingBatch(np.zeros((2, DIM)), np.full((2, CONTEXT), 1e100), np.zeros((2, PROMPT)), np.zeros(2))
    moe.update_full_emergency(wild)
    for name, weight in moe.state().items():
        assert np.array_equal(weight, before[name]), name


def test_extreme_contexts_give_finite_predictions():
    moe = surrogate()
    memory = PromptMemory(DIM, CONTEXT, PROMPT)
    seen = memory.retrieve(np.array([1e100, -1e100]))
    prediction = moe.predict(np.zeros((2, DIM)), seen)
    assert np.all(np.isfinite(prediction.mean))
    assert np.all(np.isfinite(prediction.variance))
    assert math.isclose(prediction.gate[0].sum(), 1.0)
