"""Which contexts are one situation: noise and alternation make none, and what lasts is told apart."""

import numpy as np
import pytest

from rasp_tuner.contexts.regimes import MAX_REGIMES, RegimeTimeline
from rasp_tuner.errors import SnapshotError


def timeline(contexts):
    """The timeline, and the situation of each context by what is known at the end."""
    regimes = RegimeTimeline(contexts.shape[1])
    for context in contexts:
        regimes.add(context)
    out = np.full(len(contexts), -1)
    for label, start, end in regimes.situation_segments():
        out[start : end + 1] = label
    return regimes, out


@pytest.mark.parametrize("dim", [1, 2, 5, 40])
def test_noise_is_one_situation(dim):
    _, found = timeline(np.random.default_rng(dim).normal(size=(800, dim)))
    assert len(set(found.tolist())) == 1


@pytest.mark.parametrize("stay", [1, 2])
def test_contexts_that_alternate_are_one_situation(stay):
    _, found = timeline((np.arange(400) // stay % 2 * 9.0)[:, None])
    assert len(set(found[50:].tolist())) == 1


@pytest.mark.parametrize(("stay", "noise"), [(5, 0.0), (12, 0.0), (12, 0.1), (50, 0.1)])
def test_regimes_that_last_are_told_apart_beside_a_dimension_of_noise(stay, noise):
    rng, true = np.random.default_rng(3), np.arange(800) // stay % 4
    contexts = np.column_stack([true * 2.0 + noise * rng.normal(size=800), noise * 10.0 * rng.normal(size=800)])
    _, found = timeline(contexts)
    late = slice(400, None)
    pairs = set(zip(true[late].tolist(), found[late].tolist(), strict=True))
    assert len(pairs) <= 5  # one to one, but for an outlier
    assert len({label for _, label in pairs}) >= 4


def test_a_second_situation_is_found_at_once_after_a_long_first_one():
    rng = np.random.default_rng(0)
    contexts = np.concatenate([rng.normal(0.0, 1.0, (300, 2)), rng.normal(12.0, 1.0, (20, 2))])
    regimes, found = timeline(contexts)
    assert (found[302:] == found[-1]).all()
    assert found[-1] != found[299]
    assert len(regimes.labels) <= MAX_REGIMES


def test_a_context_far_from_all_is_no_known_situation():
    regimes, found = timeline((np.arange(60) // 15 % 2 * 9.0)[:, None])
    assert regimes.known_situation(np.array([9.0])) == found[15]
    assert regimes.known_situation(np.array([500.0])) is None
    assert RegimeTimeline(1).known_situation(np.array([1.0])) is None


def test_what_was_kept_goes_on():
    rng = np.random.default_rng(0)
    contexts = (np.arange(300) // 20 % 3 * 5.0)[:, None] + rng.normal(0.0, 0.1, (300, 1))
    regimes, _ = timeline(contexts)
    again = RegimeTimeline(1)
    again.restore(regimes.to_json(), regimes.state())
    for context in contexts:
        assert again.add(context) == regimes.add(context)
    assert again.to_json() == regimes.to_json()


@pytest.mark.parametrize(
    "name", ["centres", "counts", "median", "deviation", "relevance", "moves", "recent", "scales/kept", "scales/latest"]
)
def test_what_could_not_be_is_refused(name):
    regimes, _ = timeline((np.arange(60) // 15 % 2 * 9.0)[:, None])
    state = regimes.state()
    with pytest.raises(SnapshotError, match=f"'{name}' must have the shape"):
        RegimeTimeline(1).restore(regimes.to_json(), {**state, name: state[name][:1, None]})
