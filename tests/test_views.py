"""What a tuner shows of itself to those who watch it: read-only, and without a trace in what it does next."""

import math

import numpy as np
import pytest

from rasp_tuner import Categorical, Float, Int, Tuner
from rasp_tuner.errors import InvalidValue

SPACES = {
    "smooth": {"x": Float(0.0, 10.0), "y": Float(0.0, 1.0)},
    "mixed": {"x": Int(0, 10), "y": Float(0.0, 1.0)},
    "choices": {"x": Int(0, 1), "codec": Categorical(["a", "b", "c"])},
}


def play(tuner, steps, look=lambda _, __: None, seed=0):
    rng, asked = np.random.default_rng(seed), []
    for _ in range(steps):
        context = {"load": float(rng.choice([1.0, 9.0]) + rng.normal() * 0.1)}
        s = tuner.ask(context)
        look(tuner, context)
        asked.append(s.params)
        tuner.tell(s.id, {"ms": (s.params["x"] - 7.0) ** 2 + float(rng.normal())})
    return asked


def tuner_of(space, preset="default"):
    return Tuner(SPACES[space], {"ms": "min"}, ["load"], preset=preset)


@pytest.mark.parametrize("space", SPACES)
def test_looking_between_ask_and_tell_changes_no_bit(space):
    def look(tuner, context):
        tuner.expected_of_default(context)
        tuner.recommend({"load": 5.0})
        tuner.slots()
        tuner.check_context(context)
        tuner.capture()

    plain, watched = tuner_of(space), tuner_of(space)
    assert play(plain, 80) == play(watched, 80, look)
    assert plain.to_bytes() == watched.to_bytes()


@pytest.mark.parametrize("space", SPACES)
def test_a_snapshot_between_ask_and_tell_changes_no_bit(space):
    plain, stopped = tuner_of(space), tuner_of(space)
    play(plain, 40)
    rng = np.random.default_rng(0)
    for _ in range(40):
        s = stopped.ask({"load": float(rng.choice([1.0, 9.0]) + rng.normal() * 0.1)})
        stopped = Tuner.from_bytes(stopped.to_bytes())
        stopped.tell(s.id, {"ms": (s.params["x"] - 7.0) ** 2 + float(rng.normal())})
    assert stopped.to_bytes() == plain.to_bytes()


def test_a_capture_is_of_its_moment():
    tuner = tuner_of("mixed")
    play(tuner, 30)
    now, later = tuner.to_bytes(), tuner.capture()
    play(tuner, 10)
    assert later() == now


def test_a_capture_may_keep_fewer_explanations():
    tuner = tuner_of("smooth")
    play(tuner, 30)
    whole, less = tuner.to_bytes(), tuner.capture(explained=5)()
    again = Tuner.from_bytes(less)
    assert len(less) < len(whole)
    assert again.explain("s29") == tuner.explain("s29")
    with pytest.raises(LookupError):
        again.explain("s20")
    assert play(again, 20) == play(tuner, 20)


def test_the_default_is_expected_to_be_what_it_is():
    """Within about the noise of one run, though it seldom runs."""
    off = []
    for seed in range(6):
        tuner = Tuner(SPACES["smooth"], {"ms": "min"}, ["load"], seed=seed)
        assert tuner.expected_of_default({"load": 1.0}) is None
        play(tuner, 60, seed=seed)
        off.append(tuner.expected_of_default({"load": 1.0}) - 4.0)
    assert np.sqrt(np.mean(np.square(off))) < 1.5


@pytest.mark.parametrize("space", SPACES)
def test_slots_are_the_contexts_that_were_met(space):
    tuner = tuner_of(space)
    assert len(tuner.slots().visits) == 0
    play(tuner, 40)
    slots = tuner.slots()
    assert slots.contexts.shape == (len(slots.visits), 1)
    assert slots.visits.sum() >= 39 or space == "choices"  # whose rows count to nine; an odd one is put aside at first
    assert set(np.round(slots.contexts[:, 0]).tolist()) == {1.0, 9.0}
    assert all(math.isnan(age) or 0 <= age < 40 for age in slots.last)
    assert len(tuner.experts) == len(tuner.explain("s39").gate)


def test_the_papers_stack_shows_itself_too():
    tuner = tuner_of("smooth", "paper")
    play(tuner, 5)
    assert tuner.experts == tuple(f"network {i}" for i in range(1, 7))
    assert tuner.expected_of_default({"load": 1.0}) is None
    assert len(tuner.slots().contexts) >= 1


def test_a_context_can_be_checked_before_asking():
    with pytest.raises(InvalidValue, match="context lacks"):
        tuner_of("smooth").check_context({})
