"""Compiled code is safe by itself: it knows the structs it is given, and stays within its arrays whatever they hold."""

import ctypes
import math

import numpy as np
import pytest

from rasp_tuner import Float, Tuner
from rasp_tuner.engine.kernel import native, shared_structs
from rasp_tuner.engine.kernel.choose import draws_needed
from rasp_tuner.engine.kernel.learn import start
from rasp_tuner.engine.kernel.native_batch import NativeBatch
from rasp_tuner.engine.kernel.state import Dims, State, blank, shapes

pytestmark = pytest.mark.skipif(not native.available(), reason=f"the native kernel is {native.why_not()}")

DIMS, DEFAULT, GUARD = Dims(2, 2, 1), np.full(2, 0.5), 4096
BAD = [math.nan, -math.inf, math.inf, -1e9, -1.0, 0.0, 0.5, 39.0, 41.0, 127.5, 199.0, 200.0, 201.0, 1e6, 2.0**63]


class Guarded:
    """A state of one tuner, each array of which lies between numbers that nobody may change."""

    def __init__(self) -> None:
        self.rooms, arrays = {}, {}
        for name, shape in shapes(DIMS).items():
            size = int(np.prod(shape))
            room = self.rooms[name] = np.full(size + 2 * GUARD, 7.25)
            arrays[name] = room[GUARD : GUARD + size].reshape(1, *shape)
        self.state = State(**arrays)

    def fill(self, state: State) -> None:
        for name, array in state.items():
            getattr(self.state, name)[...] = array

    def broken(self) -> list[str]:
        return [n for n, room in self.rooms.items() if (room[:GUARD] != 7.25).any() or (room[-GUARD:] != 7.25).any()]


def steps(state: State, count: int, rng: np.random.Generator) -> None:
    """What a tuner does, by the compiled functions."""
    batch = NativeBatch(DIMS, DEFAULT, state)
    for _ in range(count):
        context = rng.normal(size=(1, 2))
        belief = batch.believe(context)
        draws = rng.random((1, draws_needed(DIMS)))
        point = np.clip(np.nan_to_num(belief.choose(draws)[0]), 0.0, 1.0)
        belief.best()
        logs = belief.forecast(point, np.ones(1))[2]
        belief.learn(point, context, np.ones((1, 1)), np.zeros(1), logs)


@pytest.fixture(scope="module", params=[0, 30, 45, 198])
def taught(request) -> State:
    state, rng = blank(DIMS, 1, start(DIMS)), np.random.default_rng(0)
    steps(state, request.param, rng)
    return state


@pytest.mark.parametrize("name", ["count", "steps", "latest", "early", "last", "counts", "suspected", "fitted"])
def test_no_count_or_index_leads_out_of_an_array(taught, name):
    for value in BAD:
        guarded = Guarded()
        guarded.fill(taught)
        getattr(guarded.state, name)[...] = value
        guarded.state.suspected[...] = 1.0  # the next odd sample reaches for the latest one
        steps(guarded.state, 12, np.random.default_rng(1))
        assert guarded.broken() == [], value


def test_numbers_that_are_none_lead_nowhere_else(taught):
    for name in shapes(DIMS):
        guarded = Guarded()
        guarded.fill(taught)
        getattr(guarded.state, name)[...] = math.nan
        steps(guarded.state, 3, np.random.default_rng(1))
        assert guarded.broken() == [], name


@pytest.mark.nightly
def test_many_tuners_of_one_sample_each_fit_into_one_memory():
    """None of their slots is old when there are too many."""

    def taught_once(seed: int) -> Tuner:
        tuner = Tuner({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)}, {"ms": "min"}, ["qps"], seed=seed)
        tuner.tell(tuner.ask({"qps": float(seed % 5)}).id, {"ms": 1.0 + seed % 7})
        return tuner

    tuners = [taught_once(seed) for seed in range(195)]
    while len(tuners) > 1:  # two and two: a long memory is merged a few times only
        for into, other in zip(tuners[::2], tuners[1::2], strict=False):
            into.merge(other)
        tuners = tuners[::2]
    tuner = tuners[0]
    for step in range(12):
        tuner.tell(tuner.ask({"qps": float(step % 5)}).id, {"ms": 2.0})
    slots = tuner.slots()
    assert slots.visits.sum() == 195 + 12
    assert len(slots.visits) < 200


LOAD = native._library.__wrapped__  # what is done once in a process


def refused(monkeypatch) -> str | None:
    monkeypatch.setattr(native, "_library", LOAD)
    return native.why_not()


def test_the_library_at_hand_has_the_same_structs(monkeypatch):
    assert refused(monkeypatch) is None
    names = set(shared_structs.STRUCTS)
    assert names == {"Dims", "State", "One"}


@pytest.mark.parametrize("name", list(shared_structs.STRUCTS))
def test_a_library_with_other_structs_is_not_used(monkeypatch, name):
    own = shared_structs.STRUCTS[name]._fields_
    for wrong in ([*own[1:], own[0]], [("more", ctypes.c_int64), *own], own[:-1], [*own, ("more", ctypes.c_void_p)]):
        other = type("Other", (ctypes.Structure,), {"_fields_": wrong})
        monkeypatch.setitem(shared_structs.STRUCTS, name, other)
        assert f"built for other structs, {name}" in str(refused(monkeypatch))


def test_a_library_with_other_constants_is_not_used(monkeypatch):
    monkeypatch.setitem(shared_structs.NUMBERS, "SLOTS", 191)
    assert "built for other structs, SLOTS is 192 there and 191 here" in str(refused(monkeypatch))
