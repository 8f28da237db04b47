import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rasp_tuner.engine.memory import SlotMemory


def filled(samples, size=80, d=2, unit=1.0, shift=0.0, seed=0):
    """A memory that saw noisy visits of two situations, and all it was told."""
    rng = np.random.default_rng(seed)
    slots, prompts = SlotMemory(d, 3, 2, size), []
    for t in range(samples):
        context = (float(t // 10 % 2) + 0.1 * rng.normal(size=d)) * unit + shift
        prompts.append(rng.integers(-9, 9, size=3).astype(float))  # whole numbers: sums are exact
        slots.write(context, prompts[-1], 1.0)
    return slots, np.array(prompts)


@pytest.mark.parametrize("samples", [1, 80, 81, 300])
def test_merging_keeps_every_sum_and_the_size_is_bounded(samples):
    slots, prompts = filled(samples)
    assert slots.count == samples if samples < 88 else 80 <= slots.count < 88
    assert slots.counts.sum() == samples
    assert np.array_equal(slots.prompts.sum(axis=0), prompts.sum(axis=0))
    assert slots.trust.shape == (2, slots.count)
    assert slots.trust == pytest.approx(np.ones((2, slots.count)))


def test_what_is_recent_is_not_merged():
    slots, prompts = filled(300)
    recent = slots.ages < 40  # half its size
    order = np.argsort(-slots.ages[recent])
    assert np.array_equal(slots.counts[recent], np.ones(40))
    assert np.array_equal(slots.prompts[recent][order], prompts[-40:])


def test_a_situation_not_seen_for_long_keeps_a_slot_of_its_own():
    slots = SlotMemory(1, 1, 1, 80)
    for t in range(400):
        slots.write(np.array([10.0 if t < 20 else 0.01 * (t % 7)]), np.array([t < 20], dtype=float), 1.0)
    wobbles, _ = slots.gaps(np.array([10.0]))
    own = wobbles < 1.0
    assert slots.prompts[own].sum() == slots.counts[own].sum() == 20


def test_slots_merge_within_their_situation():
    slots, _ = filled(300)
    to_first, to_second = (slots.gaps(np.full(2, where))[0] for where in (0.0, 1.0))
    assert np.all((np.minimum(to_first, to_second) < 10.0) & (np.maximum(to_first, to_second) > 10.0))


@given(
    units=st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=2),
    shifts=st.lists(st.floats(-100.0, 100.0), min_size=2, max_size=2),
)
@settings(max_examples=25)
def test_gaps_do_not_depend_on_the_units_of_context(units, shifts):
    unit, shift = np.array(units), np.array(shifts) * np.array(units)
    plain, changed = filled(100)[0], filled(100, unit=unit, shift=shift)[0]
    for where in ([0.0, 0.0], [1.0, 0.5], [7.0, -3.0]):
        pairs = zip(plain.gaps(np.array(where)), changed.gaps(np.array(where) * unit + shift), strict=True)
        for expected, got in pairs:
            assert got == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert changed.reach == pytest.approx(plain.reach, rel=1e-6)


@pytest.mark.parametrize("d", [0, 1, 32, 33, 100])
def test_gaps_are_finite_and_least_at_a_slot_itself(d):
    slots, rng = SlotMemory(d, 1, 1, 50), np.random.default_rng(0)
    contexts = rng.normal(size=(40, d))
    for context in contexts:
        slots.write(context, np.ones(1), 1.0)
    wobbles, spreads = slots.gaps(contexts[17])
    assert np.isfinite(wobbles).all()
    assert (wobbles >= 0.0).all()
    assert wobbles[17] == pytest.approx(0.0, abs=1e-9)
    if d:
        assert wobbles.argmin() == spreads.argmin() == 17


def test_a_dimension_that_never_moved_counts_once_it_does():
    slots = SlotMemory(2, 1, 1, 50)
    for t in range(20):
        slots.write(np.array([np.sin(t), 5.0]), np.ones(1), 1.0)
    assert slots.gaps(np.array([0.0, 9.0]))[0].min() > slots.gaps(np.array([0.0, 5.0]))[0].min() + 1.0


def test_restored_it_goes_on_in_the_same_way():
    slots, _ = filled(150)
    other = SlotMemory(2, 3, 2, 80)
    other.restore({name: array.copy() for name, array in slots.state().items()})
    for part in (slots, other):
        part.write(np.array([0.4, 0.6]), np.ones(3), 0.5)
    assert all(np.array_equal(array, other.state()[name]) for name, array in slots.state().items())
    assert np.array_equal(slots.gaps(np.ones(2)), other.gaps(np.ones(2)))


def test_state_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="shape"):
        SlotMemory(3, 3, 2, 80).restore(filled(5)[0].state())


def test_only_the_trust_of_the_latest_sample_is_restored():
    slots, _ = filled(3)
    slots.write(np.zeros(2), np.ones(3), 0.1)
    slots.write(np.zeros(2), np.ones(3), 0.2)
    slots.restore_trust()
    assert slots.trust[:, -2:].tolist() == [[0.1, 1.0], [0.1, 1.0]]


def test_a_situation_was_seen_before_unless_it_is_the_first_of_its_kind():
    slots, _ = filled(40)
    assert [slot for slot in range(40) if not slots.seen_before(slot)] == [0, 10]


def test_the_reach_is_wider_where_distances_between_neighbours_vary_more():
    rng, reaches = np.random.default_rng(0), []
    for d in (1, 50):  # the mean square over many dimensions is nearly the same each time
        slots = SlotMemory(d, 1, 1, 200)
        for _ in range(150):
            slots.write(rng.normal(size=d), np.ones(1), 1.0)
        reaches.append(slots.reach)
    assert reaches[0] > 3.0 > 2.8 > reaches[1] > 2.0
