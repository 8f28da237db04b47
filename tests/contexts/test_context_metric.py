"""How alike contexts are, and the situations that follow: absurd values, columns of noise, a scale that changes."""

import numpy as np
import pytest

from rasp_tuner import Categorical, Int, Tuner
from rasp_tuner.contexts.context_metric import ALIKE, ContextMetric, z_of_many
from rasp_tuner.contexts.context_scales import MOST_KEPT, MOST_LATEST, ContextScales
from rasp_tuner.contexts.regimes import RegimeTimeline, coarse
from rasp_tuner.errors import SnapshotError

MOST_MOVED = 1.5  # factor by which one value may move a scale


def scales_of(contexts):
    scales = ContextScales(contexts.shape[1])
    for context in contexts:
        scales.observe(context)
    return scales


def situations_of(contexts):
    """The situation of each context by what is known at the end, and which contexts were strays."""
    regimes, strays = RegimeTimeline(contexts.shape[1]), []
    for context in contexts:
        regimes.add(context)
        strays.append(regimes.stray)
    found = np.full(len(contexts), -1)
    for label, start, end in regimes.situation_segments():
        found[start : end + 1] = label
    return found, np.array(strays)


def blocks(count, stay, steps, seed=0):
    """Contexts [steps, 2] of situations that follow one another, and which they are of."""
    rng, true = np.random.default_rng(seed), np.arange(steps) // stay % count
    return np.array([[0.0, 5.0], [10.0, 1.0], [20.0, 9.0]])[true] + rng.normal(size=(steps, 2)) * 0.3, true


@pytest.mark.parametrize("absurd", [1e3, -1e9, 1e100])
@pytest.mark.parametrize("n", [20, 60, 400])
def test_one_value_moves_a_scale_by_less_than_a_stated_factor(n, absurd):
    rng = np.random.default_rng(n)
    for contexts in (rng.normal(size=(n, 1)), rng.exponential(size=(n, 1)), rng.integers(0, 3, (n, 1)) * 1.0):
        calm = scales_of(contexts).metric()
        contexts[n // 2] = absurd
        shaken = scales_of(contexts).metric()
        assert 1.0 / MOST_MOVED < shaken.deviation[0] / calm.deviation[0] < MOST_MOVED
        assert abs(shaken.median[0] - calm.median[0]) < calm.deviation[0]


def test_a_context_that_changes_its_scale_for_good_is_followed_after_a_few_samples():
    rng = np.random.default_rng(0)
    scales = scales_of(rng.normal(size=(400, 1)))
    before = scales.metric().deviation[0]
    for context in 1000.0 * rng.normal(size=(20, 1)):
        scales.observe(context)
    grown = scales.metric()
    assert grown.deviation[0] > 20.0 * before
    assert grown.likeness(np.array([1000.0]), np.array([[0.0]]), None)[0] < ALIKE  # and still told apart
    assert grown.likeness(np.array([1.0]), np.array([[0.0]]), None)[0] > 0.9


@pytest.mark.parametrize("dim", [1, 3, 100, 2000])
def test_the_sample_is_bounded_and_spread_over_all_of_the_past(dim):
    contexts = np.arange(1000.0)[:, None] + np.zeros(dim)
    scales = scales_of(contexts)
    assert len(scales.kept) <= MOST_KEPT
    assert len(scales.latest) == MOST_LATEST
    assert np.diff(scales.kept[:, 0]).max() <= 2.0 * 1000.0 / len(scales.kept)
    assert scales.kept[-1, 0] > 900.0


def test_what_was_kept_goes_on_and_what_could_not_be_is_refused():
    contexts = np.random.default_rng(0).normal(size=(300, 2))
    scales = scales_of(contexts[:200])
    again = ContextScales(2)
    again.restore(scales.state())
    for context in contexts[200:]:
        scales.observe(context)
        again.observe(context)
    assert all((a == b).all() for a, b in zip(scales.metric(), again.metric(), strict=True))
    for wrong in ({"kept": np.zeros((0, 2))}, {"clock": np.array([3.0, 0.0])}, {"latest": np.full((1, 2), np.nan)}):
        with pytest.raises(SnapshotError):
            ContextScales(2).restore({**scales.state(), **wrong})


@pytest.mark.parametrize("absurd", [1e4, -1e7, 1e80])
def test_absurd_values_neither_merge_nor_split_situations(absurd):
    contexts, true = blocks(3, 20, 600)
    expected, _ = situations_of(contexts)
    hit = np.array([7, 110, 333, 334, 501])
    contexts[hit, hit % 2] = absurd
    found, strays = situations_of(contexts)
    calm = np.ones(600, dtype=bool)
    calm[hit] = False
    calm[:60] = False  # of the first visits
    assert len(set(expected[60:].tolist())) == 3
    assert len(set(zip(true[calm].tolist(), found[calm].tolist(), strict=True))) == 3
    assert not strays[calm].any()
    assert not set(found[hit[1:]].tolist()) & set(found[calm].tolist())  # of no situation that lasts


def test_absurd_values_never_take_all_the_room():
    contexts, true = blocks(3, 20, 600)
    hit = np.arange(5, 600, 30)  # more than there is room for, each absurd in its own way
    contexts[hit, 0] = 10.0 ** np.random.default_rng(0).uniform(3.0, 12.0, len(hit))
    found, strays = situations_of(contexts)
    late = np.arange(600) >= 300
    late[hit] = False
    assert not strays[late].any()
    assert len(set(zip(true[late].tolist(), found[late].tolist(), strict=True))) == 3


def test_situations_are_told_apart_after_a_change_of_scale():
    contexts, true = blocks(3, 20, 800)
    contexts[400:] *= 1000.0
    found, _ = situations_of(contexts)
    late = slice(480, None)
    assert len(set(found[late].tolist())) == 3
    assert len(set(zip(true[late].tolist(), found[late].tolist(), strict=True))) == 3


def test_a_dimension_that_was_learned_to_be_irrelevant_opens_nothing():
    rng, (contexts, true) = np.random.default_rng(1), blocks(2, 20, 400)
    slow = np.repeat(rng.normal(size=(50, 1)), 8, axis=0) * 50.0  # lasts, so that only its relevance tells
    both = np.column_stack([contexts, slow])
    deaf = RegimeTimeline(3)
    for context in both:
        deaf.add(context, np.array([2.0, 2.0, 0.02]))
    found = np.array([deaf.known_situation(context) for context in both])
    pairs = set(zip(true.tolist(), found.tolist(), strict=True))
    assert len(pairs) == 2
    assert len(set(situations_of(both)[0].tolist())) > 2


def test_relevances_are_followed_in_steps():
    assert coarse(np.array([0.7, 1.9, 2.1, 14.0, 0.06])).tolist() == [1.0, 1.0, 4.0, 16.0, 0.0625]


@pytest.mark.parametrize("columns", [1, 12])
def test_columns_of_noise_do_not_make_every_visit_a_new_situation(columns):
    rng, names = np.random.default_rng(0), ["load", *(f"noise{i}" for i in range(columns))]
    space = {"codec": Categorical(["a", "b", "c", "d"]), "level": Int(1, 6)}
    tuner = Tuner(space, {"ms": "min"}, context=names, default={"codec": "a", "level": 3}, seed=1)
    for step in range(180):
        load = step // 20 % 3
        s = tuner.ask({name: 10.0 * load if name == "load" else rng.normal() for name in names})
        miss = 4.0 * (s.params["codec"] != "bdc"[load]) + abs(s.params["level"] - (5, 1, 3)[load])
        tuner.tell(s.id, {"ms": 10.0 * (1 + load) + miss + 0.1 * rng.normal()})
    relevance = tuner.relevance()
    assert relevance[0] > 10.0 * relevance[1:].max()
    visits = [seen.visits if (seen := tuner.explain(f"s{step}").seen) else 0 for step in range(5, 180, 20)]
    assert visits == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_a_metric_of_few_contexts_expects_more_to_come():
    few, many = (ContextMetric.of(np.array([[0.0], [1.0]]), samples) for samples in (2.0, 200.0))
    assert few.deviation[0] > 5.0 * many.deviation[0]


def test_the_metric_of_many_streams_is_that_of_each():
    rng = np.random.default_rng(0)
    contexts, used = rng.normal(size=(9, 64, 3)) ** 3, rng.random((9, 64)) < np.linspace(0.0, 1.0, 9)[:, None]
    contexts[:, :, 2] = 7.0
    contexts[5, used[5].argmax(), 0] = 1e90
    many = z_of_many(np.where(used[:, :, None], contexts, 1e50), used)
    for own, flags, z in zip(contexts, used, many, strict=True):
        if flags.any():
            metric = ContextMetric.of(own[flags], float(flags.sum()))
            assert z[flags] == pytest.approx(metric.z(own[flags], np.ones(3)))
        assert not z[~flags].any()


def test_a_spread_of_the_largest_contexts_is_no_larger():
    metric = ContextMetric.of(np.array([[1e100], [-1e100], [1e100]]), 3.0)
    assert metric.deviation[0] == 1e100
