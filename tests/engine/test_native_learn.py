"""The learning side of the compiled kernel: it does what the arrays version does, on streams of every kind."""

import numpy as np
import pytest

from rasp_tuner.base.numerics import Array
from rasp_tuner.engine.kernel import native
from rasp_tuner.engine.kernel.belief import SlotBelief, shapes
from rasp_tuner.engine.kernel.believe import MOVING_LOOK_EVERY_STEPS
from rasp_tuner.engine.kernel.choose import draws_needed
from rasp_tuner.engine.kernel.draws import DrawKeys
from rasp_tuner.engine.kernel.learn import learn, start
from rasp_tuner.engine.kernel.native_batch import NativeBatch, native_draws
from rasp_tuner.engine.kernel.state import RANK, Dims, E, State, blank

pytestmark = pytest.mark.skipif(not native.available(), reason=f"the native kernel is {native.why_not()}")

PER_SLOT = ("keys", "prompts", "counts", "last")
FITTED = ("encode", "theta", "covariance", "unit")  # of the moving optimum: means something once there is a fit
KINDS = ("noise", "outliers", "failures", "places", "jumps")


def fresh(dims: Dims, size: int) -> State:
    return blank(dims, size, start(dims))


def copied(state: State) -> State:
    return state.map(np.copy)


def draws(dims: Dims, size: int, rng: np.random.Generator) -> Array:
    return rng.random((size, draws_needed(dims)))


class Worlds:
    """One world for each kind of trouble: what each answers, and where it is."""

    def __init__(self, dims: Dims, seed: int) -> None:
        self.dims, self.rng, self.steps = dims, np.random.default_rng(seed), 0
        self.contexts = self.rng.normal(size=(len(KINDS), dims.context))
        self.moves = 0.1 * self.rng.normal(size=(dims.context, dims.knobs))
        self.steep = self.rng.uniform(0.5, 2.0, size=(dims.knobs, dims.columns))
        self.places = self.rng.normal(size=(3, dims.context))

    def next_contexts(self) -> Array:
        self.contexts = 0.9 * self.contexts + 0.4 * self.rng.normal(size=self.contexts.shape)
        wobble = 0.01 * (self.dims.context > RANK)  # three places alone have no third component
        place = self.places[self.steps // 5 % 3] + wobble * self.rng.normal(size=self.dims.context)
        self.contexts[KINDS.index("places")] = place
        return self.contexts.copy()

    def answers(self, points: Array) -> tuple[Array, Array]:
        """Losses [B, k], and which runs failed [B]."""
        rng, t, failed = self.rng, self.steps, np.zeros(len(KINDS))
        losses = (points - 0.4 - self.contexts @ self.moves) ** 2 @ self.steep
        losses += 0.05 * rng.normal(size=losses.shape)
        losses[KINDS.index("outliers")] += 20.0 * rng.exponential() * (rng.random() < 0.12)
        if rng.random() < 0.2:
            failed[KINDS.index("failures")] = 1.0
            losses[KINDS.index("failures")] = 3.0
        losses[KINDS.index("jumps")] *= 1.0 if t % 90 < 60 else 1e3
        self.steps += 1
        return losses, failed


def same_signs(dims: Dims, state: State, other: State) -> None:
    """Give the components of a context in `state` the signs that they have in `other`: either will do."""
    signs = np.sign((state.encode * other.encode).sum(axis=1))
    signs[signs == 0.0] = 1.0
    ones = np.ones((len(signs), 1))
    every = np.concatenate([ones] * (1 + dims.knobs) + [ones, signs] * dims.knobs, axis=1)
    state.encode *= signs[:, None]
    state.theta *= every
    state.covariance *= every[:, :, None] * every[:, None]


def assert_same(dims: Dims, compiled: State, arrays: State, step: int) -> None:
    same_signs(dims, compiled, arrays)
    for i in range(arrays.size):
        n = int(arrays.count[i])
        for name, whole in arrays.items():
            if name in FITTED and (not arrays.fitted[i] or step < 3):  # few contexts: some components are arbitrary
                continue
            got, want = getattr(compiled, name)[i], whole[i]
            if name in PER_SLOT:
                got, want = got[:n], want[:n]
            if name == "trust":
                got, want = got[:, :n], want[:, :n]
            if want.size:
                size = np.abs(want) + 1e-3 * float(np.abs(want).max()) + 1e-12
                worst = float((np.abs(got - want) / size).max())
                assert worst < 1e-6, f"step {step}, {KINDS[i]}: {name} differs by {worst:.1e}"


@pytest.mark.parametrize(
    ("dims", "steps"), [(Dims(1, 0, 1), 60), (Dims(2, 1, 2), 210), (Dims(5, 3, 1), 110), (Dims(3, 40, 3), 60)]
)
def test_it_is_the_arrays_version(dims: Dims, steps: int) -> None:
    """From one and the same state both learn the same, whatever comes."""
    worlds, rng = Worlds(dims, seed=dims.knobs), np.random.default_rng(0)
    size = len(KINDS)
    default = rng.uniform(0.3, 0.7, size=dims.knobs)
    state = fresh(dims, size)
    state.location[:2] = 0.2
    state.location_variance[:2] = rng.uniform(0.1, 0.4, size=dims.knobs)
    for step in range(steps):
        contexts = worlds.next_contexts()
        belief = NativeBatch(dims, default, state).believe(contexts)
        points = belief.choose(draws(dims, size, rng))[0]
        losses, failed = worlds.answers(points)
        logs = belief.forecast(points, (losses * state.weights).sum(axis=1))[2]
        arrays, same = copied(state), SlotBelief(**{name: getattr(belief, name).copy() for name in shapes(dims)})
        belief.learn(points, contexts, losses, failed, logs)
        if (
            step < 50 or step % MOVING_LOOK_EVERY_STEPS >= MOVING_LOOK_EVERY_STEPS - 2
        ):  # with a fit and without; at merges
            learn(dims, arrays, same, default, points, contexts, losses, failed, logs)
            assert_same(dims, copied(state), arrays, step)
    assert (state.steps == steps).all()


def taught(dims: Dims, size: int, steps: int, seed: int = 0) -> State:
    """Tuners that have learned from random points."""
    rng, state = np.random.default_rng(seed), fresh(dims, size)
    default = np.full(dims.knobs, 0.5)
    for _ in range(steps):
        teach(dims, state, default, rng)
    return state


def teach(dims: Dims, state: State, default: Array, rng: np.random.Generator, scale: float = 1.0) -> None:
    size = state.size
    contexts, points = rng.normal(size=(size, dims.context)), rng.random((size, dims.knobs))
    losses = scale * ((points - 0.3) ** 2).sum(axis=1, keepdims=True) * np.ones(dims.columns)
    belief = NativeBatch(dims, default, state).believe(contexts)
    logs = belief.forecast(points, (losses * state.weights).sum(axis=1))[2]
    belief.learn(points, contexts, losses, np.zeros(size), logs)


def test_a_young_tuner_ignores_belief_and_densities() -> None:
    """They say nothing yet, and may hold anything."""
    dims, default = Dims(2, 2, 1), np.full(2, 0.5)
    rng = np.random.default_rng(3)
    for steps in (0, 1):
        state = taught(dims, 1, steps)
        contexts, point = rng.normal(size=(1, 2)), rng.random((1, 2))
        belief = NativeBatch(dims, default, state).believe(contexts)
        if steps == 0:
            belief.buffer[:] = np.nan
        belief.learn(point, contexts, [[1.0]], [0.0], np.full((1, E), np.nan))
        assert all(np.isfinite(array).all() for _, array in state.items())


def test_some_rows_learn_as_they_would_alone_and_the_others_do_not() -> None:
    dims, default = Dims(2, 3, 1), np.full(2, 0.5)
    state = taught(dims, 4, 12)
    before, rows = copied(state), np.array([2, 0])
    rng = np.random.default_rng(5)
    contexts, points, losses = rng.normal(size=(2, 3)), rng.random((2, 2)), rng.random((2, 1))
    belief = NativeBatch(dims, default, state).believe(contexts, rows)
    logs = belief.forecast(points, losses[:, 0])[2]
    belief.learn(points, contexts, losses, np.zeros(2), logs)
    for i, row in enumerate(rows):
        alone = State(**{name: array[row : row + 1].copy() for name, array in before.items()})
        belief = NativeBatch(dims, default, alone).believe(contexts[i : i + 1])
        belief.learn(points[i], contexts[i], losses[i], [0.0], logs[i])
        for name, array in state.items():
            np.testing.assert_array_equal(array[row], getattr(alone, name)[0], err_msg=name)
    for name, array in state.items():
        np.testing.assert_array_equal(array[[1, 3]], getattr(before, name)[[1, 3]], err_msg=name)


@pytest.mark.parametrize("scales", [(0.0, 1e60), (1.0, 1e-60), (1e80, 1.0), (1.0, 0.0)])
def test_a_metric_that_jumps_leaves_all_numbers_finite(scales: tuple[float, float]) -> None:
    dims, default = Dims(3, 2, 2), np.full(3, 0.5)
    state, rng = fresh(dims, 2), np.random.default_rng(1)
    for step in range(120):
        teach(dims, state, default, rng, scales[step // 15 % 2])
        bad = [name for name, array in state.items() if not np.isfinite(array).all()]
        assert not bad, f"step {step}: {bad}"


def test_memory_stays_within_its_slots_and_forgets_no_sample() -> None:
    dims = Dims(2, 3, 1)
    state = taught(dims, 2, 420)
    n = int(state.count[0])
    assert (state.count < dims.rows).all()
    assert state.counts[0, :n].sum() == state.prompts[0, :n, 0].sum() == state.steps[0] == 420


def test_a_whole_ask_and_a_whole_tell_are_their_parts_one_after_the_other() -> None:
    dims, size, rng = Dims(3, 2, 1), 4, np.random.default_rng(5)
    state, default = taught(Dims(3, 2, 1), 4, 12), np.full(3, 0.4)
    contexts, keys = rng.normal(size=(size, 2)), DrawKeys(3, np.arange(4.0), np.full(4, 12.0))
    batch = NativeBatch(dims, default, state)
    belief, points, versus = batch.ask(contexts, keys)
    parts = batch.believe(contexts)
    np.testing.assert_array_equal(belief.buffer, parts.buffer)
    np.testing.assert_array_equal(points, parts.choose(native_draws(keys, size, draws_needed(dims)))[0])
    np.testing.assert_array_equal(versus, parts.versus_default(points))
    losses = ((points - 0.3) ** 2).sum(axis=1, keepdims=True)  # as taught: no outliers, so that densities count
    other, failed, y = copied(state), np.zeros(size), losses[:, 0]
    apart = NativeBatch(dims, default, other).believe(contexts)
    mean, variance, logs = apart.forecast(points, y)
    told = belief.tell(points, contexts, losses, failed, y)
    apart.learn(points, contexts, losses, failed, logs)
    for got, wanted in zip(told, (np.array(versus), mean, variance), strict=True):
        np.testing.assert_array_equal(got, wanted)
    for (name, mine), (_, theirs) in zip(state.items(), other.items(), strict=True):
        np.testing.assert_array_equal(mine, theirs, err_msg=name)
