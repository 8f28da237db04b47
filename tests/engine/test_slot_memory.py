"""Memory: nothing that was told is lost, situations stay apart, and no unit of a context matters."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from teaching import teach

from rasp_tuner.engine.kernel import memory, outliers
from rasp_tuner.engine.kernel.learn import start
from rasp_tuner.engine.kernel.masks import ALL_ROWS
from rasp_tuner.engine.kernel.memory import SHARP_STEPS
from rasp_tuner.engine.kernel.state import SLOTS, SPARE_SLOTS, Dims, L, blank
from rasp_tuner.engine.quadratic.family import QuadraticFamily

FULL = SLOTS + SPARE_SLOTS


def written(contexts, psi=None, trust=1.0):
    """Dimensions and state of a tuner whose memory was told these contexts [n, c], with psi [n, 4]."""
    dims = Dims(1, contexts.shape[1], 1)
    state = blank(dims, 1, start(dims))
    psi = np.ones((len(contexts), dims.sample)) if psi is None else psi
    for t, context in enumerate(contexts):
        memory.write(dims, state, context[None], psi[t : t + 1], np.array([trust]))
    return dims, state


def visits(samples, unit=1.0, shift=0.0, d=2):
    """Contexts [n, d] of noisy visits to two situations, ten steps each."""
    noise = 0.1 * np.random.default_rng(0).normal(size=(samples, d))
    return (np.arange(samples)[:, None] // 10 % 2 + noise) * unit + shift


def gaps(dims, state, context):
    """[2, N] to the slots in use."""
    return memory.gaps(dims, state, np.asarray(context, dtype=float)[None])[0][:, : int(state.count[0])]


def filled(samples, contexts=None):
    """A family, and all psi [n, 4] that it was told: numbers whose sums are exact."""
    family, rng = QuadraticFamily(np.array([0.5]), 2, 1), np.random.default_rng(0)
    told, contexts = [], visits(samples) if contexts is None else contexts
    for context in contexts:
        u, y = rng.integers(-2, 3) / 2.0, float(rng.integers(-9, 9))
        teach(family, np.array([0.5 + u / 2.0]), context, np.array([y]))
        told.append([1.0, u, u**2, y])
    told = np.array(told)
    told[:, 3] -= told[0, 3]  # losses are relative to the first
    return family, told


@cache
def filled_once(_kernel, samples):
    """The same for tests that only look, by the kernel that is in place."""
    return filled(samples)


def sums(told):
    """[P] of the upper triangles of psi psi', and those of every sample [n, P]."""
    above, beside = np.triu_indices(told.shape[1])
    each = told[:, above] * told[:, beside]
    return each.sum(axis=0), each


@pytest.mark.parametrize("samples", [1, FULL - 1, FULL, FULL + 60])
def test_merging_keeps_every_sum_and_the_size_is_bounded(kernel, samples):
    family, told = filled_once(kernel, samples)
    state = family.tuners
    n = int(state.count[0])
    assert n == samples if samples < FULL else SLOTS <= n < FULL
    assert state.counts[0, :n].sum() == state.steps[0] == samples
    assert np.array_equal(state.prompts[0, :n].sum(axis=0), sums(told)[0])
    assert (state.trust[0, :, :n] > 0.0).all()
    assert (state.trust[0, :, :n] <= 1.0).all()


def test_what_is_trusted_alike_stays_so_when_merged():
    _, state = written(visits(300), trust=0.25)
    n = int(state.count[0])
    assert state.trust[0, :, :n] == pytest.approx(np.full((L, n), 0.25))


def test_what_is_recent_is_not_merged(kernel):
    family, told = filled_once(kernel, FULL + 60)
    state, n = family.tuners, int(family.tuners.count[0])
    ages = state.steps[0] - 1.0 - state.last[0, :n]
    recent = ages < SHARP_STEPS
    order = np.argsort(-ages[recent])
    assert np.array_equal(state.counts[0, :n][recent], np.ones(SHARP_STEPS))
    assert np.array_equal(state.prompts[0, :n][recent][order], sums(told)[1][-SHARP_STEPS:])
    assert state.counts[0, :n].max() > 1.0


@pytest.mark.usefixtures("kernel")
def test_a_situation_not_seen_for_long_keeps_a_slot_of_its_own():
    t = np.arange(400)
    contexts = np.where(t < 20, 10.0, 0.01 * (t % 7))[:, None] * np.ones(2)
    family, _ = filled(400, contexts)
    slots = family.remembered()
    own = np.abs(slots.contexts - 10.0).max(axis=1) < 0.1
    assert slots.visits[own].sum() == 20
    assert slots.visits[~own].sum() == 380
    assert (slots.contexts[~own] < 0.1).all()


def test_slots_merge_within_their_situation(kernel):
    family, _ = filled_once(kernel, FULL + 60)
    to_first, to_second = (gaps(family.dims, family.tuners, [where, where])[0] for where in (0.0, 1.0))
    assert np.all((np.minimum(to_first, to_second) < 10.0) & (np.maximum(to_first, to_second) > 10.0))


@given(
    units=st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=2),
    shifts=st.lists(st.floats(-100.0, 100.0), min_size=2, max_size=2),
)
@settings(max_examples=25)
def test_gaps_do_not_depend_on_the_units_of_context(units, shifts):
    unit, shift = np.array(units), np.array(shifts) * np.array(units)
    (dims, plain), (_, changed) = written(visits(100)), written(visits(100, unit, shift))
    for where in ([0.0, 0.0], [1.0, 0.5], [7.0, -3.0]):
        expected, got = gaps(dims, plain, where), gaps(dims, changed, np.array(where) * unit + shift)
        assert got == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert memory.reach(changed) == pytest.approx(memory.reach(plain), rel=1e-6)


@pytest.mark.parametrize("d", [0, 1, 32, 33, 100])
def test_gaps_are_finite_and_least_at_a_slot_itself(d):
    contexts = np.random.default_rng(0).normal(size=(40, d))
    wobbles, spreads = gaps(*written(contexts), contexts[17])
    assert np.isfinite(wobbles).all()
    assert (wobbles >= 0.0).all()
    assert wobbles[17] == pytest.approx(0.0, abs=1e-9)
    if d:
        assert wobbles.argmin() == spreads.argmin() == 17


def test_a_dimension_that_never_moved_counts_once_it_does():
    contexts = np.column_stack([np.sin(np.arange(20.0)), np.full(20, 5.0)])
    dims, state = written(contexts)
    moved, same = (gaps(dims, state, [0.0, where])[0].min() for where in (9.0, 5.0))
    assert moved > same + 1.0


@pytest.mark.usefixtures("kernel")
def test_restored_it_goes_on_in_the_same_way():
    family, _ = filled(FULL + 5)
    other = QuadraticFamily(np.array([0.5]), 2, 1)
    other.restore({name: array.copy() for name, array in family.state().items()})
    for part in (family, other):
        teach(part, np.array([0.75]), np.array([0.4, 0.6]), np.ones(1))
    assert all(np.array_equal(array, other.state()[name]) for name, array in family.state().items())
    here = np.ones(2)
    assert np.array_equal(gaps(family.dims, family.tuners, here), gaps(other.dims, other.tuners, here))


def test_state_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="shape"):
        QuadraticFamily(np.array([0.5]), 3, 1).restore(filled(5)[0].state())


def test_only_the_trust_of_the_latest_sample_is_restored():
    dims, state = written(visits(3))
    for trust in (0.1, 0.2):
        memory.write(dims, state, np.zeros((1, 2)), np.ones((1, dims.sample)), np.array([trust]))
    outliers.restore_trust(state, np.ones(1, dtype=bool))
    assert state.trust[0, :, 3:5].tolist() == [[0.1, 1.0]] * L


def test_a_situation_was_seen_before_unless_it_is_the_first_of_its_kind():
    _, state = written(visits(40))
    slots, others = np.arange(40)[None], np.ones((1, 40, 40), dtype=bool)
    seen = memory.seen_before(state, ALL_ROWS, slots, others)[0]
    assert np.flatnonzero(~seen).tolist() == [0, 10]


def test_situations_are_looked_for_among_the_others_only():
    _, state = written(visits(40))
    second = np.arange(40) // 10 % 2 == 1
    others = np.broadcast_to(~second, (1, 40, 40))
    seen = memory.seen_before(state, ALL_ROWS, np.arange(40)[None], others)[0]
    assert seen.tolist() == [slot > 0 and not second[slot] for slot in range(40)]


def test_the_reach_is_wider_where_distances_between_neighbours_vary_more():
    rng = np.random.default_rng(0)
    few, many = (float(memory.reach(written(rng.normal(size=(150, d)))[1])[0]) for d in (1, 50))
    assert few > 3.0 > 2.8 > many > 2.0  # the mean square over many dimensions is nearly the same each time
