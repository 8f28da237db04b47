"""6,000 generated bad inputs: only the library's own errors come out, and not a byte of state moves."""

import random
from decimal import Decimal

import numpy as np
import pytest

from rasp_tuner import Categorical, Float, Int, Metric, RaspError, Tuner, presets

CALLS = 6_000
LOOK_EVERY_CALLS = 40  # a change would stay: looking now and then misses none
SMALL = presets.paper(memory_size=8, prompt_dim=2, experts=2, replay_size=8)
SPACE = {"n": Int(1, 64, log=True), "x": Float(0.1, 10.0), "c": Categorical(["a", "b"])}
PARAMS = {"n": 8, "x": 1.0, "c": "a"}
METRICS = {"ms": 1.0, "tps": 2.0}
CONTEXT = {"q": 1.0, "k": 2.0}


class Broken:
    """An object whose every conversion raises."""

    def __float__(self):
        raise RuntimeError("no float")

    def __repr__(self):
        raise RuntimeError("no repr")

    def __eq__(self, other):
        raise RuntimeError("no equality")

    __hash__ = None


NOT_NUMBERS = [
    None, float("nan"), float("inf"), float("-inf"), np.float32("inf"), 10**400, -(10**5000), "1.0", "", b"1", 1j,
    [], [1.0], (), {}, set(), object(), Broken(), Decimal("NaN"), Decimal("1"), np.array([1.0]), np.array(1.0),
    range(5), lambda: 1, type, np.datetime64("2026-01-01"), np.str_("x"), iter([1.0]), NotImplemented, ...,
]  # fmt: skip
JUNK = [
    *NOT_NUMBERS, "s999", "s-1", "s0 ", "x" * 10_000, 0, 1, -1, 2.5, True, {"a": 1}, {1: 1}, {None: None},
    [[1.0], [2.0]],
]  # fmt: skip


def one_wrong(rng, good, bad_values):
    """`good` with one value made bad, one name missing, one name too many, or replaced as a whole."""
    kind = rng.randrange(4)
    if kind == 0:
        return {**good, rng.choice(list(good)): rng.choice(bad_values)}
    if kind == 1:
        dropped = rng.choice(list(good))
        return {name: value for name, value in good.items() if name != dropped}
    if kind == 2:
        return {**good, rng.choice(["zz", 1, None, ("a",), ""]): 1.0}
    return rng.choice([junk for junk in JUNK if not isinstance(junk, dict)])


def bad_context(rng):
    if rng.random() < 0.5:
        return one_wrong(rng, CONTEXT, NOT_NUMBERS)
    return rng.choice(
        [[1.0], [1.0, 2.0, 3.0], [1.0, rng.choice(NOT_NUMBERS)], np.zeros((2, 2)), np.array([1.0, np.nan])]
    )


def bad_params(rng):
    bad = {"n": [0, 65, 1.5, *NOT_NUMBERS], "x": [0.0, 11.0, -1e308, *NOT_NUMBERS], "c": ["z", "A", 0, *NOT_NUMBERS]}
    name = rng.choice(list(bad))
    return {**PARAMS, name: rng.choice(bad[name])} if rng.random() < 0.7 else one_wrong(rng, PARAMS, [Broken()])


def bad_call(rng, tuner, waiting, answered):
    """A call that must raise."""
    bad_id = rng.choice([answered, *JUNK])
    return rng.choice(
        [
            lambda: tuner.ask(bad_context(rng)),
            lambda: tuner.recommend(bad_context(rng)),
            lambda: tuner.what_if(bad_context(rng)),
            lambda: tuner.what_if(CONTEXT, {"n": rng.choice([0, 65, 1.5, *NOT_NUMBERS])}),
            lambda: tuner.tell(waiting, one_wrong(rng, METRICS, NOT_NUMBERS)),
            lambda: tuner.tell(bad_id, METRICS),
            lambda: tuner.tell_failed(bad_id, "why"),
            lambda: tuner.tell_failed(waiting, rng.choice([j for j in JUNK if not isinstance(j, str)])),
            lambda: tuner.explain(rng.choice(JUNK)),
            lambda: tuner.observe(bad_context(rng), PARAMS, METRICS),
            lambda: tuner.observe(CONTEXT, bad_params(rng), METRICS),
            lambda: tuner.observe(CONTEXT, PARAMS, one_wrong(rng, METRICS, NOT_NUMBERS)),
            lambda: Tuner.from_bytes(rng.choice([b"", b"junk", rng.randbytes(200), *JUNK])),
            lambda: Tuner.load(rng.choice([j for j in JUNK if not isinstance(j, (int, bytes))])),
            lambda: tuner.save(rng.choice([j for j in JUNK if not isinstance(j, str)])),
            lambda: bad_tuner(rng),
        ]
    )


def bad_tuner(rng):
    good = {"space": SPACE, "metrics": {"ms": "min"}, "context": ["q"], "default": PARAMS, "preset": SMALL, "seed": 0}
    bad = {
        "space": [{}, {"x": 1}, {"": Float(0, 1)}, {1: Float(0, 1)}, *NOT_NUMBERS],
        "metrics": [{}, {"m": "up"}, {"m": 1}, {1: "min"}, {"m": Metric}, {"m": Broken()}, *NOT_NUMBERS],
        "context": ["q", [""], ["a", "a"], [1], 0, -1, 1.5, True, {"a": 1}, 10**9, float("nan"), b"q", Broken()],
        "default": [one_wrong(rng, PARAMS, [Broken()]), bad_params(rng)],
        "preset": ["", "best", *NOT_NUMBERS],
        "seed": [-1, 1.5, True, 2**64, *NOT_NUMBERS],
    }
    field = rng.choice(list(bad))
    value = rng.choice(bad[field])
    if field == "default" and value is None:
        return Tuner(**{**good, "seed": -1})  # None is a legal default: break something else
    return Tuner(**{**good, field: value})


@pytest.mark.slow
def test_bad_inputs_raise_typed_errors_and_leave_every_byte_alone():
    rng = random.Random(2026)
    tuner = Tuner(SPACE, {"ms": "min", "tps": Metric("max")}, context=["q", "k"], preset=SMALL)
    for _ in range(12):
        answered = tuner.ask(CONTEXT).id
        tuner.tell(answered, METRICS)
    waiting = tuner.ask(CONTEXT).id
    before = tuner.to_bytes()
    messages = set()
    for i in range(CALLS):
        call = bad_call(rng, tuner, waiting, answered)
        try:
            call()
        except RaspError as error:
            messages.add(str(error)[:60])
        else:
            raise AssertionError(f"bad call {i} was accepted (line {call.__code__.co_firstlineno})")
        if i % LOOK_EVERY_CALLS == 0 or i == CALLS - 1:
            assert tuner.to_bytes() == before, i
    assert len(messages) > 200  # the calls were of many kinds
