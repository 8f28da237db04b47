"""Laws of retrieval, the paper's Lemma "perfect retrieval" among them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rasp_tuner.contexts.distance import euclidean
from rasp_tuner.paper import PromptMemory

seeds = st.integers(0, 2**32 - 1)


def filled(keys):
    """A memory that holds exactly these keys."""
    memory = PromptMemory(1, keys.shape[1], 1, novelty_threshold=0.0, top_k=1)
    for key in keys:
        memory.write(memory.retrieve(key), np.zeros(1), 0.5)
    assert len(memory) == len(keys)
    return memory


def in_ball(rng, center, radius):
    direction = rng.normal(size=len(center))
    return center + radius * rng.uniform() ** (1 / len(center)) * direction / np.linalg.norm(direction)


def separated_centers(rng, count, dim, gap):
    """Random centers, scaled so that the closest two lie exactly `gap` apart."""
    centers = rng.normal(size=(count, dim))
    closest = min(np.linalg.norm(a - b) for i, a in enumerate(centers) for b in centers[:i])
    return centers * gap / closest


@given(seed=seeds, regimes=st.integers(2, 8), dim=st.integers(1, 6))
def test_keys_anywhere_in_the_ball_need_a_separation_above_four_radii(seed, regimes, dim):
    """The true lemma: |mu_r - mu_s| > 4 rho. Then |c - k_r| <= 2 rho < |mu_r - mu_s| - 2 rho <= |c - k_s|."""
    rng = np.random.default_rng(seed)
    radius = 0.7
    centers = separated_centers(rng, regimes, dim, 4.0 * radius * 1.0001)
    memory = filled(np.array([in_ball(rng, center, radius) for center in centers]))
    for regime, center in enumerate(centers):
        assert memory.retrieve(in_ball(rng, center, radius)).slots == (regime,)


@given(seed=seeds, regimes=st.integers(2, 8), dim=st.integers(1, 6))
def test_keys_at_the_centers_need_only_the_printed_two_radii(seed, regimes, dim):
    rng = np.random.default_rng(seed)
    radius = 0.7
    centers = separated_centers(rng, regimes, dim, 2.0 * radius * 1.0001)
    memory = filled(centers)
    for regime, center in enumerate(centers):
        assert memory.retrieve(in_ball(rng, center, radius)).slots == (regime,)


@given(gap=st.floats(2.01, 3.99))
def test_between_two_and_four_radii_the_printed_condition_fails(gap):
    """Keys at the far end of one ball and the near end of the other: the wrong regime is nearer."""
    near_end, far_end = gap - 1.0, -1.0  # radius 1, centers 0 and gap
    memory = filled(np.array([[far_end], [near_end]]))
    context = np.array([1.0])  # in the ball around 0
    assert memory.retrieve(context).slots == (1,)


@given(
    keys=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=12, unique=True),
    context=st.floats(-1e3, 1e3),
    top_k=st.integers(1, 5),
    temperature=st.floats(0.01, 100.0),
)
def test_retrieval_is_a_convex_mix_of_the_nearest(keys, context, top_k, temperature):
    memory = PromptMemory(1, 1, 1, novelty_threshold=0.0, top_k=top_k, temperature=temperature)
    for i, key in enumerate(keys):
        memory.write(memory.retrieve(np.array([key])), np.array([i / len(keys)]), 0.5)
    seen = memory.retrieve(np.array([context]))
    away = euclidean(np.array(keys)[:, None], np.array([context]))
    assert len(seen.slots) == min(top_k, len(keys))
    assert np.isclose(seen.weights.sum(), 1.0)
    assert np.all(np.diff(seen.weights) <= 1e-15)  # nearer never weighs less
    assert max(away[list(seen.slots)]) <= min(np.delete(away, seen.slots), default=np.inf)
    bests = memory.best[list(seen.slots), 0]
    assert bests.min() - 1e-12 <= seen.hint[0] <= bests.max() + 1e-12
    assert 0.0 <= seen.novelty <= 1.0


@given(key=st.floats(allow_nan=False, allow_infinity=False), context=st.floats(allow_nan=False, allow_infinity=False))
def test_any_finite_context_gives_finite_answers(key, context):
    memory = filled(np.array([[key]]))
    seen = memory.retrieve(np.array([context]))
    assert np.isfinite(seen.nearest)
    assert np.all(np.isfinite(seen.weights))
    assert 0.0 <= seen.novelty <= 1.0
