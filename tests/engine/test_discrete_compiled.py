"""The compiled parts of the discrete family say what its NumPy code says, and lead to the same suggestions."""

import numpy as np
import pytest

from rasp_tuner import Categorical, Float, Int, Tuner
from rasp_tuner.engine.discrete import compiled
from rasp_tuner.engine.discrete.family import DiscreteFamily
from rasp_tuner.engine.discrete.here import SOURCES, Here, knowledge_gradient
from rasp_tuner.engine.discrete.kernel import (
    JITTER,
    WEIGHTS,
    Kernel,
    KernelEvidence,
    evidence,
    likeness,
    with_noise,
    with_row,
)
from rasp_tuner.engine.discrete.knobs import Knobs
from rasp_tuner.engine.discrete.search import CompiledHere
from rasp_tuner.engine.discrete.target import target_of
from rasp_tuner.engine.family import Trial
from rasp_tuner.engine.kernel import native

pytestmark = pytest.mark.skipif(not native.available(), reason=f"the native kernel is {native.why_not()}")

FIVE, THREE, TWO, MANY = (np.linspace(0.0, 1.0, n) for n in (5, 3, 2, 100))
SPACES = {  # levels of each knob, and whether they have no order
    "levels": ([FIVE] * 4 + [THREE] * 2 + [TWO] * 3, [False] * 4 + [True] * 2 + [False] * 3),
    "mixed": ([FIVE, None, MANY, THREE, TWO], [False, False, False, True, False]),
    "switches": ([TWO] * 12, [False] * 12),
}


@pytest.fixture
def numpy_only(monkeypatch):
    """A function that runs another without compiled code."""

    def run(function, *arguments):
        with monkeypatch.context() as patch:
            patch.setattr(native, "available", lambda: False)
            return function(*arguments)

    return run


@pytest.fixture(params=sorted(SPACES))
def both(request, numpy_only):
    """The same family without and with compiled code, after 70 samples, some of them failures."""
    levels, unordered = SPACES[request.param]
    default = np.array([0.5 if own is None else own[len(own) // 2] for own in levels])

    def taught():
        family, rng = DiscreteFamily(levels, unordered, default, 2), np.random.default_rng(3)
        family.reweigh(np.ones(1))
        for step in range(70):
            context = rng.normal(size=2) if step % 3 else np.ones(2)
            point = np.array([rng.random() if own is None else rng.choice(own) for own in levels])
            y = (1.0 + point.sum() + 0.5 * point[0] * context[0] + 0.1 * rng.normal(size=1)) ** 2
            family.learn(Trial(point, context, y, step % 9 == 0, point), family.believe(context), None)
        return family

    plain = numpy_only(taught)
    fast = DiscreteFamily(levels, unordered, default, 2)
    fast.restore(plain.state())
    assert plain._knobs.tables is None
    assert fast._knobs.tables is not None
    return plain, fast


def same(got, wanted):
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=0.0, atol=1e-9 * max(float(np.abs(wanted).max(initial=0.0)), 1e-300))


def test_beliefs_agree(both, numpy_only):
    rng = np.random.default_rng(0)
    for context in rng.normal(size=(4, 2)):
        plain, fast = (family.believe(context) for family in both)
        same(fast.similar(), plain.similar())
        same(fast._offset, plain._offset)
        same(fast._here.known, plain._here.known)
        same(fast._here.elites, plain._here.elites)
        points = plain._here.elites
        for got, wanted in zip(*(b.fit.kernel.rows_of(b.fit.knobs, points) for b in (fast, plain)), strict=True):
            same(got, wanted)
        same(fast.predict(points), plain.predict(points))
        look, other = fast.look(points[0]), plain.look(points[0])
        same((*look.pair.variance, look.pair.covariance), (*other.pair.variance, other.pair.covariance))
        for got, wanted in zip((look.pair.mean, *look[1:]), (other.pair.mean, *other[1:]), strict=True):
            same(got, wanted)
        same(fast.compare(points[0], points[1]), plain.compare(points[0], points[1]))
        mean, covariance = plain._here._joint(plain.fit.kernel.rows_of(plain.fit.knobs, points))
        for noise in (1e-6, 0.1, 10.0):
            same(knowledge_gradient(mean, covariance, noise), numpy_only(knowledge_gradient, mean, covariance, noise))


def test_candidates_are_the_same_from_the_same_draws(both, numpy_only):
    for seed in range(20):
        context = np.random.default_rng(seed).normal(size=2)
        plain, fast = (family.believe(context)._here for family in both)
        wanted = numpy_only(plain.candidates, np.random.default_rng(seed))
        found = fast.candidates(np.random.default_rng(seed))
        assert found.counts == wanted.counts
        np.testing.assert_array_equal(found.places, wanted.places)
        np.testing.assert_allclose(found.points, wanted.points, rtol=0.0, atol=1e-12)
        assert fast.ranked(found) == numpy_only(plain.ranked, wanted)
        rngs = np.random.default_rng(seed), np.random.default_rng(seed)
        plain, fast = (family.believe(context) for family in both)
        choices = fast.choose(rngs[0]), numpy_only(plain.choose, rngs[1])
        same(choices[0].point, choices[1].point)
        assert choices[0].source == choices[1].source
        assert rngs[0].bit_generator.state == rngs[1].bit_generator.state


def test_candidates_come_from_where_they_say(both):
    for family in both:
        found = family.believe(np.zeros(2))._here.candidates(np.random.default_rng(0))
        sources = [found.source(row) for row in range(len(found.points))]
        assert sources == sorted(sources, key=SOURCES.index)
        assert set(sources) == set(SOURCES)
        np.testing.assert_array_equal(found.points[sources.index("default")], family._knobs.default)


def test_candidates_that_are_all_barred_leave_the_default():
    for limited in (False, True):
        family = DiscreteFamily([TWO], [False], np.zeros(1), 1)
        family.reweigh(np.ones(1))
        for point in (np.zeros(1), np.ones(1)):
            asked = 1.0 - point if limited else point
            family.learn(Trial(point, np.zeros(1), np.ones(1), True, asked), None, None)
        found = family.believe(np.zeros(1))._here.candidates(np.random.default_rng(0))
        same(found.points, [[0.0]])
        assert found.source(0) == "default"


def test_refits_agree(both, numpy_only):
    plain, fast = both
    s, kernel, knobs = plain._state, plain._kernel, plain._knobs
    gaps, kc = numpy_only(likeness, s["contexts"], kernel.width)
    for got, wanted in zip(likeness(s["contexts"], kernel.width), (gaps, kc), strict=True):
        same(got, wanted)
    y = s["values"][:, 0]
    target = numpy_only(target_of, y, kc, 2.0)
    for got, wanted in zip(target_of(y, kc, 2.0), target, strict=True):
        same(got, wanted)
    rows = kernel.rows_of(knobs, s["points"])
    inputs = (rows, gaps, kc, target.values, s["doubt"], s["counts"], 4.0, (3.0, 0.5))
    found = evidence(kernel, fast._knobs, *inputs), evidence(kernel, knobs, *inputs)
    for got, wanted in zip(*found, strict=True):
        same(got, wanted)
    same(with_noise(s["inverse"], 3, 0.2), numpy_only(with_noise, s["inverse"], 3, 0.2))
    for row in (5, len(s["inverse"])):
        border = s["inverse"], row, s["gram"][0].copy(), 50.0, JITTER
        same(with_row(*border), numpy_only(with_row, *border))
    same(fast._target().values, plain._target().values)


def evidence_of(rows: int, numpy_only, least: float = 0.5) -> list[KernelEvidence]:
    """Of so many random rows, with and without compiled code; noises are at least so many times the usual."""
    rng, (levels, unordered) = np.random.default_rng(rows), SPACES["levels"]
    points = np.array([[rng.choice(own) for own in levels] for _ in range(rows)])
    gaps, kc = likeness(rng.normal(size=(rows, 2)), 0.5)
    target, noise_factor, counts = rng.normal(size=rows), rng.uniform(least, 2.0, rows), rng.integers(1, 9, rows) + 0.0

    def found() -> KernelEvidence:
        knobs = Knobs(levels, unordered, np.array([own[0] for own in levels]))
        kernel = Kernel.of(np.linspace(-1.0, 0.5, WEIGHTS + knobs.dim), 2.0, knobs)
        arrays = (kernel.rows_of(knobs, points), gaps, kc, target, noise_factor, counts)
        return evidence(kernel, knobs, *arrays, 4.0, (3.0, 0.5))

    return [found(), numpy_only(found)]


@pytest.mark.parametrize("rows", [1, 7, 24, 25, 51, 150])
def test_evidence_of_any_number_of_rows_agrees_and_its_inverse_is_symmetric(rows, numpy_only):
    fast, plain = evidence_of(rows, numpy_only)
    for got, wanted in zip(fast, plain, strict=True):
        same(got, wanted)
    for found in (fast, plain):
        assert (found.inverse == found.inverse.T).all()


@pytest.mark.parametrize("rows", [3, 90])
def test_an_indefinite_matrix_is_no_error(rows, numpy_only):
    """Rounding makes such matrices where points are equal."""
    fast, plain = evidence_of(rows, numpy_only, -300.0)
    for got, wanted in zip(fast, plain, strict=True):
        same(got, wanted)


def test_effects_are_drawn_of_an_indefinite_matrix(both, numpy_only):
    plain, fast = (family._fit._replace(inverse=1e3 * family._fit.inverse) for family in both)
    for seed in range(5):
        context = np.random.default_rng(seed).normal(size=2)
        wanted = numpy_only(Here(plain, context).candidates, np.random.default_rng(seed))
        found = CompiledHere(fast, context, both[1]._search).candidates(np.random.default_rng(seed))
        np.testing.assert_allclose(found.points, wanted.points, rtol=0.0, atol=1e-12)


def test_arrays_that_do_not_lie_row_by_row_are_refused():
    with pytest.raises(TypeError, match="contiguous"):
        compiled.address(np.zeros((3, 4)).T)


@pytest.mark.parametrize("context", [None, 2])
def test_a_stream_gets_the_same_suggestions(context, numpy_only):
    space = {f"k{i}": Int(0, 4) for i in range(3)} | {f"s{i}": Categorical([False, True]) for i in range(3)}
    space |= {"c": Categorical(["a", "b", "c"]), "n": Int(1, 100), "x": Float(0.0, 1.0)}
    default = dict.fromkeys(space, False) | {"k0": 2, "k1": 2, "k2": 2, "c": "b", "n": 50, "x": 0.5}

    def played():
        tuner, rng = Tuner(space, {"y": "min"}, context=context, default=default, seed=1), np.random.default_rng(2)
        asked = []
        for step in range(90):
            s = tuner.ask(rng.normal(size=context) if context else None)
            p = s.params
            asked.append([float("abc".index(v)) if isinstance(v, str) else float(v) for v in p.values()])
            ran = {**p, "s2": False} if step % 4 == 0 else p
            y = (p["k0"] - 3) ** 2 + p["s0"] + 2.0 * (p["c"] == "b") + 0.01 * p["n"] + (p["x"] - 0.2) ** 2
            if p["k1"] == 4:
                tuner.tell_failed(s.id, "no")
            else:
                tuner.tell(s.id, {"y": y + 0.1 * rng.normal()}, ran)
        return asked

    np.testing.assert_allclose(played(), numpy_only(played), rtol=0.0, atol=1e-9)
