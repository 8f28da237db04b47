import math

import numpy as np
import pytest

from rasp_tuner import InvalidSpace, InvalidValue
from rasp_tuner.paper import PromptMemory


def memory(**changes):
    return PromptMemory(dim=2, context_dim=1, prompt_dim=3, **changes)


def learn(mem, context, point=(0.5, 0.5), error=0.5):
    mem.write(mem.retrieve(np.array([float(context)])), np.array(point), error)


def opened_at(*contexts, **changes):
    """A memory with exactly these keys: a threshold of zero makes everything new."""
    mem = memory(novelty_threshold=0.0, **changes)
    for i, context in enumerate(contexts):
        learn(mem, context, point=(i / 10, 1 - i / 10), error=i / 10)
    return mem


def test_defaults_are_the_papers():
    mem = memory()
    assert (mem.size, mem.top_k, mem.temperature, mem.novelty_threshold) == (200, 3, 1.0, 0.7)


def test_empty_memory_finds_everything_new():
    seen = memory().retrieve(np.array([1.0]))
    assert seen.slots == ()
    assert seen.hint is None
    assert seen.novelty == 1.0
    assert (seen.confidence, seen.entropy) == (0.0, 0.0)
    assert seen.prompt.tolist() == [0.0, 0.0, 0.0]


def test_retrieval_weighs_the_nearest_by_softmax_of_distance():
    mem = opened_at(0.0, 1.0, 3.0, 50.0)
    seen = mem.retrieve(np.array([0.5]))
    raw = np.exp([-0.5, -0.5, -2.5])
    assert seen.slots == (0, 1, 2)
    assert np.allclose(seen.weights, raw / raw.sum())
    assert np.allclose(seen.hint, seen.weights @ mem.best[[0, 1, 2]])
    assert seen.confidence == pytest.approx(seen.weights.max())
    assert seen.entropy == pytest.approx(-(seen.weights * np.log(seen.weights)).sum())
    assert seen.nearest == 0.5


def test_temperature_sharpens_and_softens():
    sharp = opened_at(0.0, 1.0, temperature=0.1).retrieve(np.array([0.2]))
    soft = opened_at(0.0, 1.0, temperature=10.0).retrieve(np.array([0.2]))
    assert sharp.confidence > 0.99
    assert soft.confidence < 0.52


def test_retrieved_prompt_is_the_weighted_sum_of_prompts():
    mem = opened_at(0.0, 1.0)
    seen = mem.retrieve(np.array([0.0]))
    mem.write_prompts(seen, np.array([[1.0, 2.0, 3.0], [-1.0, 0.0, 1.0]]))
    again = mem.retrieve(np.array([0.0]))
    assert np.allclose(again.prompt, again.weights[0] * np.array([1, 2, 3]) + again.weights[1] * np.array([-1, 0, 1]))


def test_novelty_is_the_logistic_score_of_the_nearest_distance():
    mem = opened_at(0.0)
    seen = mem.retrieve(np.array([2.0]))
    mean = 0.03 * 2.0
    sigma = math.sqrt(0.97 + 0.03 * (2.0 - mean) ** 2)
    assert seen.novelty == pytest.approx(1 / (1 + math.exp(-(2.0 - mean) / (sigma + 1e-8))))


def test_a_new_context_opens_a_slot_with_a_zero_prompt():
    mem = memory()
    learn(mem, 0.0, point=(0.1, 0.2), error=0.4)
    mem.write_prompts(mem.retrieve(np.array([0.0])), np.ones((1, 3)))
    learn(mem, 5.0, point=(0.8, 0.9), error=0.6)
    assert len(mem) == 2
    assert mem.keys[:2, 0].tolist() == [0.0, 5.0]
    assert mem.best[1].tolist() == [0.8, 0.9]
    assert mem.prompts[1].tolist() == [0.0, 0.0, 0.0]


def test_a_familiar_context_opens_none_and_keeps_the_better_parameters():
    mem = memory()
    learn(mem, 0.0, point=(0.1, 0.1), error=0.4)
    learn(mem, 0.0, point=(0.2, 0.2), error=0.3)  # better
    learn(mem, 0.0, point=(0.9, 0.9), error=0.8)  # worse
    assert len(mem) == 1
    assert mem.best[0].tolist() == [0.2, 0.2]
    assert mem.best_known(mem.retrieve(np.array([0.1]))).tolist() == [0.2, 0.2]


def test_the_threshold_decides_what_is_new():
    for threshold, slots in ((0.6, 2), (0.95, 1)):
        mem = memory(novelty_threshold=threshold)
        learn(mem, 0.0)
        learn(mem, 1.0)  # novelty about 0.72
        assert len(mem) == slots


def test_distances_are_averaged_only_when_something_is_written():
    mem = opened_at(0.0, 4.0)
    before = mem.distance_ema.moments.tolist()
    for _ in range(5):
        mem.retrieve(np.array([9.0]))
    assert mem.distance_ema.moments.tolist() == before
    learn(mem, 9.0)
    assert mem.distance_ema.mean > before[0]


def test_the_oldest_slot_makes_room():
    mem = opened_at(0.0, 10.0, 20.0, 30.0, size=3)
    assert len(mem) == 3
    assert sorted(mem.keys[:, 0].tolist()) == [10.0, 20.0, 30.0]


def test_a_slot_that_takes_an_old_ones_place_starts_with_a_zero_prompt():
    mem = opened_at(0.0, size=1)
    mem.write_prompts(mem.retrieve(np.array([0.0])), np.ones((1, 3)))
    learn(mem, 9.0)
    assert mem.retrieve(np.array([9.0])).prompt.tolist() == [0.0, 0.0, 0.0]


def test_an_equal_error_keeps_the_older_best_and_a_threshold_must_be_passed():
    mem = memory()
    learn(mem, 0.0, point=(0.1, 0.1), error=0.4)
    learn(mem, 0.0, point=(0.2, 0.2), error=0.4)
    assert mem.best[0].tolist() == [0.1, 0.1]
    at_threshold = memory(novelty_threshold=mem.retrieve(np.array([3.0])).novelty)
    learn(at_threshold, 0.0)
    at_threshold.distance_ema.moments = mem.distance_ema.moments
    learn(at_threshold, 3.0)
    assert len(at_threshold) == 1


def test_only_the_nearest_slot_takes_a_new_best_and_its_error():
    mem = opened_at(0.0, 1.0)
    mem.novelty_threshold = 1.0
    learn(mem, 0.1, point=(0.7, 0.7), error=-1.0)
    learn(mem, 0.1, point=(0.9, 0.9), error=-0.5)  # not better than what it has now
    assert mem.best[:2].tolist() == [[0.7, 0.7], [0.1, 0.9]]


def test_an_earlier_answer_is_not_changed_by_later_writes():
    mem = opened_at(0.0)
    seen = mem.retrieve(np.array([0.0]))
    mem.write_prompts(seen, np.ones((1, 3)))
    learn(mem, 0.0, point=(0.9, 0.9), error=0.0)
    assert seen.prompts.tolist() == [[0.0, 0.0, 0.0]]
    assert seen.hint.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("changes", [{"size": 0}, {"top_k": 0}, {"temperature": 0.0}, {"temperature": float("nan")}])
def test_ill_defined_memories_are_refused(changes):
    with pytest.raises(InvalidSpace, match=next(iter(changes))):
        memory(**changes)


def test_vectors_of_another_length_are_refused_and_nothing_is_written():
    mem = memory()
    with pytest.raises(InvalidValue, match="context must have shape"):
        mem.retrieve(np.zeros(3))
    with pytest.raises(InvalidValue, match="point must have shape"):
        mem.write(mem.retrieve(np.zeros(1)), np.zeros(5), 0.5)
    assert len(mem) == 0


def test_state_restores_slots_and_novelty():
    mem = opened_at(0.0, 1.0, 5.0, 9.0, size=3)
    other = memory(novelty_threshold=0.0, size=3)
    other.restore(mem.state())
    a, b = mem.retrieve(np.array([2.0])), other.retrieve(np.array([2.0]))
    assert a.slots == b.slots
    assert a.novelty == b.novelty
    assert np.array_equal(a.hint, b.hint)
    learn(mem, 7.0)
    learn(other, 7.0)
    assert np.array_equal(mem.keys, other.keys)  # both overwrote the same oldest slot
