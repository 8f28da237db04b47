"""Learning in the kernel: a batch learns what each of its tuners would alone; states convert."""

from dataclasses import fields

import numpy as np
import pytest

from rasp_tuner.engine.kernel import convert, learn, memory, moving, outliers, pooled_prior
from rasp_tuner.engine.kernel.belief import SlotBelief
from rasp_tuner.engine.kernel.belief import shapes as belief_shapes
from rasp_tuner.engine.kernel.state import SLOTS, Dims, E, L, State, blank
from rasp_tuner.errors import SnapshotError

AT_STEPS = (0, 1, 2, 9, 38, 39, 99, 198, 199)  # tuners of a batch have seen so many
DIMS = [Dims(1, 0, 1), Dims(2, 1, 2), Dims(2, 40, 1)]


def sample(dims, rng):
    """A point, a context, losses and whether it failed: a bowl with a false measurement now and then."""
    point, context = rng.random(dims.knobs), rng.normal(size=dims.context).round(1)
    y = float(((point - 0.4) ** 2).sum()) + 0.01 * rng.normal() + 50.0 * (rng.random() < 0.08)
    return point, context, y * np.linspace(1.0, 0.5, dims.columns), float(rng.random() < 0.05)


def belief_of(dims, state, rng):
    """What no tuner would hold true, but of the right shapes and kinds: learning takes it as it comes."""
    d, p = dims.knobs, dims.features
    arrays = {name: rng.random((1, *shape)) for name, shape in belief_shapes(dims).items()}
    basis = rng.normal(size=(1, L, 3 * p, p))
    arrays["G"] = basis.swapaxes(2, 3) @ basis
    arrays["S"] = np.linalg.inv(arrays["G"] + np.eye(p))
    arrays["rest"] = arrays["rest"] + 10.0
    arrays["weights"] /= arrays["weights"].sum()
    arrays["mean"][:, :, 1 + d :] += 0.5
    arrays["moving"] = state.fitted.copy()
    arrays["x"][:, 0] = 1.0
    arrays["kernels"] *= np.arange(dims.rows) < state.count[0]
    logs = rng.normal(size=(1, E)) - 8.0 * (rng.random() < 0.1)
    return SlotBelief(**arrays), logs


def step(dims, states, seeds):
    """Arguments of `learn` for tuners [B], each by its own seed."""
    parts = []
    for state, seed in zip(states, seeds, strict=True):
        rng = np.random.default_rng(seed)
        belief, logs = belief_of(dims, state, rng)
        point, context, losses, failed = sample(dims, rng)
        parts.append((belief, point[None], context[None], losses[None], np.array([failed]), logs))
    beliefs, *others = zip(*parts, strict=True)
    joined = {
        f.name: np.concatenate([getattr(one, f.name) for one in beliefs])
        for f in fields(SlotBelief)
        if f.name != "experts"
    }
    points, contexts, losses, failed, logs = (np.concatenate(arrays) for arrays in others)
    return SlotBelief(**joined), np.full(dims.knobs, 0.5), points, contexts, losses, failed, logs


def copied(state):
    return state.map(lambda array: array.copy())


@pytest.fixture(scope="module", params=DIMS, ids=str)
def history(request):
    """Dimensions, and states of tuners that have seen AT_STEPS samples."""
    dims, states = request.param, []
    state = blank(dims, 1, learn.start(dims))
    for at in range(max(AT_STEPS) + 1):
        if at in AT_STEPS:
            states.append(copied(state))
        learn.learn(dims, state, *step(dims, [state], [(at, 0)]))
    assert state.count[0] == SLOTS  # it was full, and merged
    return dims, states


def assert_same(actual, expected, tolerance=1e-9):
    """Of two states of one tuner; rows not in use mean nothing, and few contexts have components that are arbitrary."""
    n = int(expected.count[0])
    arbitrary = expected.encode.shape[1] > expected.encode.shape[2] >= n
    for name, array in expected.items():
        if arbitrary and name in ("encode", "theta", "covariance"):
            continue
        other = np.asarray(getattr(actual, name))
        if name in ("keys", "prompts", "counts", "last"):
            array, other = array[:, :n], other[:, :n]
        elif name == "trust":
            array, other = array[:, :, :n], other[:, :, :n]
        size = np.abs(array).max(initial=1e-300)
        np.testing.assert_allclose(other / size, array / size, atol=tolerance, rtol=0.0, err_msg=name)


def test_a_batch_learns_what_each_tuner_would_alone(history):
    dims, states = history
    alone = [copied(state) for state in states]
    batch = State(**{name: np.concatenate([getattr(s, name) for s in states]) for name, _ in states[0].items()})
    for again in range(3):
        seeds = [(at, 1 + again) for at in AT_STEPS]
        arguments = step(dims, alone, seeds)
        for state, seed in zip(alone, seeds, strict=True):
            learn.learn(dims, state, *step(dims, [state], [seed]))
        learn.learn(dims, batch, *arguments)
        for i, state in enumerate(alone):
            assert_same(batch.map(lambda array, i=i: array[i : i + 1]), state)


def test_a_converted_state_is_the_same(history):
    dims, states = history
    for state in states:
        assert_same(convert.from_family(dims, convert.to_family(dims, state, 0)), state, 0.0)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("steps", -1.0, "'steps' must hold whole numbers from 0"),
        ("steps", 39.0, "'count' must be at most the number of steps"),
        ("steps", 2.0**60, "'steps' must hold whole numbers"),
        ("count", 3.0, "'count' must be the number of slots"),
        ("latest", 199.0, "'latest' must be a slot in use"),
        ("curvature", 1e-200, "'curvature' must be 0 or at least"),
        ("theta", 1e31, "'theta' must end with numbers up to 1e"),
        ("prompts", 1e9, "'prompts' must begin with their counts"),
        ("early", 3.0, "'early' must hold whole numbers from 0 to 2"),
        ("last", 1e9, "'last' must hold steps of the past"),
        ("noises", -1e5, "'noises' must have a largest near 0"),
    ],
)
def test_a_state_that_no_tuner_could_have_is_refused(history, name, value, message):
    dims, states = history
    snapshot = convert.to_family(dims, states[-1], 0)
    snapshot[name][...] = value
    with pytest.raises(SnapshotError, match=message):
        convert.from_family(dims, snapshot)


@pytest.mark.parametrize("place", [1, -1])  # the sum of u; that of a squared loss
def test_sums_that_no_samples_have_are_refused(history, place):
    dims, states = history
    snapshot = convert.to_family(dims, states[-1], 0)
    snapshot["prompts"][3, place] = 1e230
    with pytest.raises(SnapshotError, match=r"'prompts' must be sums of as many samples, got 1e\+230"):
        convert.from_family(dims, snapshot)


def test_many_states_are_packed_and_checked(history):
    dims, states = history
    batch = State(**{name: np.concatenate([getattr(s, name) for s in states[-2:]]) for name, _ in states[0].items()})
    packed = convert.to_packed(batch)
    assert_same(convert.from_packed(dims, 2, packed), batch, 0.0)
    packed["count"][0] -= 1.0
    with pytest.raises(SnapshotError, match=r"must have the shape \["):
        convert.from_packed(dims, 2, packed)


def test_new_weights_forget_what_the_old_target_meant(history):
    dims, states = history
    batch = State(**{name: np.concatenate([getattr(s, name) for s in states[-2:]]) for name, _ in states[0].items()})
    learn.reweigh(batch, np.full((2, dims.columns), 2.0), np.array([False, True]))
    assert batch.weights[:, 0].tolist() == [1.0, 2.0]
    assert batch.fitted.tolist() == [1.0, 0.0]
    assert batch.tracked[1] == batch.curvature[1] == 0.0


def test_recent_samples_come_oldest_first(history):
    dims, states = history
    u = learn.recent(states[-1], 0)[0]
    latest = sample_of(dims, 198)
    assert u.shape == (128, dims.knobs)
    np.testing.assert_allclose(u[-1], 2.0 * (latest[0] - 0.5))
    contexts, counts, ages = learn.remembered(states[-1], 0)
    np.testing.assert_allclose(contexts[-1], latest[1], atol=1e-12)
    assert (counts.sum(), ages[-1]) == (199.0, 0.0)


def sample_of(dims, at):
    rng = np.random.default_rng((at, 0))
    belief_of(dims, blank(dims, 1, learn.start(dims)), rng)
    return sample(dims, rng)


def test_a_bowl_expected_elsewhere_has_its_least_value_there():
    dims = Dims(2, 0, 1)
    state = blank(dims, 2, learn.start(dims))
    state.location[1] = [0.5, -1.0]
    mean = pooled_prior.prior(dims, state).mean
    assert mean[0].tolist() == [0.5, 0.0, 0.0, 1.0, 1.0]
    assert mean[1].tolist() == [1.75, -1.0, 2.0, 1.0, 1.0]


def test_one_singular_matrix_does_not_spoil_the_others():
    matrices = np.stack([np.eye(2) * 2.0, np.zeros((2, 2)), np.eye(2)])
    inverses, there = moving.inverse(matrices)
    assert there.tolist() == [True, False, True]
    np.testing.assert_allclose(inverses, np.stack([np.eye(2) / 2.0, np.zeros((2, 2)), np.eye(2)]))


def test_median_of_the_values_in_use():
    values = np.array([[3.0, 1.0, 2.0, 9.0], [3.0, 1.0, 2.0, 9.0]])
    used = np.array([[True, True, True, False], [True] * 4])
    assert outliers.masked_median(values, used).tolist() == [2.0, 2.5]


def test_slots_with_the_same_key_are_merged_first():
    dims = Dims(1, 1, 1)
    state = blank(dims, 1, learn.start(dims))
    rng, one = np.random.default_rng(0), np.ones(1)
    for i in range(dims.rows):
        context = np.array([[7.0 if i in (3, 5) else rng.normal()]])
        memory.write(dims, state, context, np.ones((1, dims.sample)), one)
    assert state.count[0] == SLOTS
    assert state.counts[0, :SLOTS].sum() == dims.rows
    at_seven = np.abs(state.keys[0, :SLOTS, 0] + state.origin[0, 0] - 7.0) < 1e-12
    assert state.counts[0, :SLOTS][at_seven].tolist() == [2.0]
