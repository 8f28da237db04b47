import numpy as np
import pytest

from rasp_tuner import Float, Int, Tuner
from rasp_tuner.engine.kernel import native
from rasp_tuner.engine.kernel.backend import Kernel
from rasp_tuner.engine.kernel.belief import shapes
from rasp_tuner.engine.together import FEWEST
from rasp_tuner.tuner import think_ahead

MANY = FEWEST + 1


@pytest.fixture(autouse=True)
def arrays(monkeypatch):
    """No compiled kernel."""
    monkeypatch.setattr(native, "available", lambda: False)


@pytest.fixture
def batches(monkeypatch):
    """How many tuners each call of the kernel believed for."""
    sizes, believe = [], Kernel.believe

    def counted(self, state, contexts, rows=None):
        sizes.append(len(contexts))
        return believe(self, state, contexts, rows)

    monkeypatch.setattr(Kernel, "believe", counted)
    return sizes


def grown(steps, *, knobs=3, dim=2, seed=0, default=0.5, preset="default", **more):
    space = {**{f"x{i}": Float(0.0, 1.0) for i in range(knobs)}, **more}
    start = {name: default if isinstance(knob, Float) else knob.low for name, knob in space.items()}
    tuner = Tuner(space, {"loss": "min"}, context=dim, default=start, seed=seed, preset=preset)
    rng = np.random.default_rng(seed)
    for t in range(steps):
        suggestion = tuner.ask(rng.normal(size=dim))
        if t % 9 == 4:
            tuner.tell_failed(suggestion.id)
        else:
            loss = 1.0 + sum((value - 0.3) ** 2 for value in suggestion.params.values()) + 0.05 * rng.normal()
            tuner.tell(suggestion.id, {"loss": loss})
    return tuner


def contexts_for(count, dim=2, seed=7):
    return np.random.default_rng(seed).normal(size=(count, dim))


def kept(tuner):
    return tuner._optimizer._latest[1]


@pytest.mark.parametrize(("knobs", "dim"), [(1, 1), (8, 32)])
def test_beliefs_are_the_same_bit_for_bit_at_any_age(knobs, dim, batches):
    ages = [1, 4, 34, 101]
    tuners = [grown(age, knobs=knobs, dim=dim, seed=age + i) for i in range(FEWEST) for age in ages]
    contexts = contexts_for(len(tuners), dim)
    alone = []
    for tuner, context in zip(tuners, contexts, strict=True):
        tuner._optimizer._latest = None
        tuner._optimizer.believe(context)
        alone.append(kept(tuner))
    batches.clear()
    think_ahead(zip(tuners, contexts, strict=True))
    assert batches == [FEWEST] * len(ages)
    for tuner, one in zip(tuners, alone, strict=True):
        assert kept(tuner) is not one
        for name in shapes(tuner._optimizer.gate.families[0].dims):
            ours, theirs = getattr(kept(tuner).arrays, name), getattr(one.arrays, name)
            np.testing.assert_array_equal(ours, theirs, err_msg=name, strict=True)


def test_tuners_that_think_ahead_go_the_same_way_to_the_last_bit():
    ahead, alone = ([grown(12, seed=i) for i in range(MANY)] for _ in range(2))
    for t in range(12):
        contexts = contexts_for(MANY, seed=t)
        think_ahead(zip(ahead, contexts, strict=True))
        for ours, theirs, context in zip(ahead, alone, contexts, strict=True):
            one, other = ours.ask(context), theirs.ask(context)
            assert one == other
            for tuner in (ours, theirs):
                tuner.tell(one.id, {"loss": sum(one.params.values()) + context[0]})
    assert [tuner.to_bytes() for tuner in ahead] == [tuner.to_bytes() for tuner in alone]


def test_an_ask_uses_what_was_computed_ahead(batches):
    """A planted difference shows: each tuner is given the belief of its neighbour."""
    tuners, contexts = [grown(15, seed=i) for i in range(MANY)], contexts_for(MANY)
    twins = [Tuner.from_bytes(tuner.to_bytes()) for tuner in tuners]
    think_ahead(zip(tuners, contexts, strict=True))
    beliefs = [kept(tuner).arrays for tuner in tuners]
    for tuner, planted in zip(tuners, [*beliefs[1:], beliefs[0]], strict=True):
        kept(tuner).arrays = planted
    batches.clear()
    planted = [tuner.ask(context).params for tuner, context in zip(tuners, contexts, strict=True)]
    assert not batches
    right = [tuner.ask(context).params for tuner, context in zip(twins, contexts, strict=True)]
    assert planted != right


def test_what_is_learned_or_asked_in_between_makes_it_worthless(batches):
    tuners, contexts = [grown(10, seed=i) for i in range(MANY)], contexts_for(MANY)
    twins = [Tuner.from_bytes(tuner.to_bytes()) for tuner in tuners]
    think_ahead(zip(tuners, contexts, strict=True))
    for tuner, twin in zip(tuners, twins, strict=True):
        for one in (tuner, twin):
            one.observe([0.1, 0.2], dict.fromkeys(["x0", "x1", "x2"], 0.9), {"loss": 5.0})
    batches.clear()
    for tuner, twin, context in zip(tuners, twins, contexts, strict=True):
        for now in (context, context + 1.0):
            assert tuner.ask(now) == twin.ask(now)
    assert batches == [1] * (4 * MANY)


def test_only_tuners_of_one_shape_share_a_call_and_a_wrong_context_is_left_to_its_ask(batches):
    alike = [grown(12, seed=i) for i in range(FEWEST)]
    others = [  # the last ones: long contexts are projected, which differs in the last bits
        grown(12, knobs=4), grown(12, dim=3), grown(12, default=0.4), grown(12, n=Int(0, 3)), grown(12, preset="paper"),
        grown(0), *(grown(12, dim=40, seed=i) for i in range(FEWEST)),
    ]  # fmt: skip
    before = [tuner.to_bytes() for tuner in (*alike, *others)]
    batches.clear()
    asks = [(tuner, [0.5] * tuner._encoder.dim) for tuner in (*alike, *others)]
    think_ahead(asks)
    assert batches == [FEWEST]
    think_ahead([(alike[0], [float("nan"), 0.0]), *asks[1:]])
    assert batches == [FEWEST]  # one too few
    assert [tuner.to_bytes() for tuner in (*alike, *others)] == before
