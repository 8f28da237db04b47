"""A tell with what ran is, for whatever ran, an observation of it under the context that was asked about.

Where knobs have levels, a tell also says which suggestions cannot be had: tests/engine/test_discrete_worlds.py.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from rasp_tuner import Categorical, Float, Int, Tuner

LEVELS = {
    "pool": Int(1, 64, log=True),
    "share": Float(0.0, 1.0, step=0.05),
    "codec": Categorical(["lz4", "zstd", None]),
}
SMOOTH = {"x": Float(-3.0, 5.0), "y": Float(0.1, 10.0)}
units = st.floats(0.0, 1.0)


def settings_of(space):
    """Legal settings of some knobs, or of all."""
    values = {name: units.map(knob.from_unit) for name, knob in space.items()}
    return st.fixed_dictionaries({}, optional=values)


def clipped(space):
    return st.tuples(st.just(space), st.lists(settings_of(space), min_size=1, max_size=6))


def loss(params):
    return sum(len(str(value)) if value is None or isinstance(value, str) else value for value in params.values())


@given(clipped(SMOOTH), st.integers(0, 3), st.integers(0, 3))
@settings(max_examples=25)
def test_a_tell_with_what_ran_is_an_observation_of_it(case, warm, seed):
    space, runs = case
    told, observed = (Tuner(space, {"m": "min"}, ["load"], seed=seed) for _ in range(2))
    for i in range(warm):
        for tuner in (told, observed):
            s = tuner.ask({"load": float(i)})
            tuner.tell(s.id, {"m": loss(s.params)})
    for i, some in enumerate(runs):
        context = {"load": float(i % 2)}
        s = told.ask(context)
        assert observed.ask(context).params == s.params
        ran = {**s.params, **some}
        told.tell(s.id, {"m": loss(ran)}, some)
        observed.observe(context, ran, {"m": loss(ran)})
        assert told.explain(s.id).ran == (None if ran == s.params else ran)
        assert told.recommend(context) == observed.recommend(context)
    assert told.ask([0.5]).params == observed.ask([0.5]).params
    assert told.learned == observed.learned


@given(st.sampled_from([LEVELS, SMOOTH]), st.integers(1, 12), st.integers(0, 3))
@settings(max_examples=15)
def test_to_say_that_the_suggestion_ran_says_nothing_new(space, steps, seed):
    silent, said = (Tuner(space, {"m": "min"}, ["load"], seed=seed) for _ in range(2))
    for i in range(steps):
        for tuner in (silent, said):
            s = tuner.ask({"load": float(i % 2)})
            tuner.tell(s.id, {"m": loss(s.params)}, *([s.params] if tuner is said else []))
    assert said.ask([0.0]).params == silent.ask([0.0]).params
    assert said.recommend([1.0]) == silent.recommend([1.0])
