"""Merging: what both tuners know is known, in any order, and no sample counts twice."""

import itertools
from functools import cache

import numpy as np
import pytest

from rasp_tuner import Categorical, Float, Int, InvalidValue, Metric, Tuner, presets
from rasp_tuner.engine.gp.family import MOST_ROWS
from rasp_tuner.engine.kernel import native
from rasp_tuner.files import snapshot
from rasp_tuner.privacy import ContextShield

SMOOTH = {"x": Float(0, 1), "y": Float(0, 1)}
SPACES = {
    "smooth": SMOOTH,
    "mixed": {"x": Float(0, 1), "y": Int(0, 40)},
    "discrete": {"x": Int(0, 6), "y": Categorical(["a", "b", "c"])},
}
DEFAULTS = {"smooth": {"x": 0.5, "y": 0.5}, "mixed": {"x": 0.5, "y": 20}, "discrete": {"x": 3, "y": "a"}}
HERE, THERE = (-1.0, 0.0), (1.0, 0.0)


def tuner(seed=0, space="smooth", **settings):
    metrics = settings.pop("metrics", {"loss": "min"})
    return Tuner(
        SPACES[space], metrics, **{"context": 2, "default": DEFAULTS[space], "seed": seed, "budget": None, **settings}
    )


def shares(params):
    return [value / {"x": 6, "y": 40}[name] if isinstance(value, int) else value for name, value in params.items()]


def loss(context, params):
    """A bowl whose optimum is at x = 0.2 in one situation and at 0.8 in the other."""
    x, y = shares({name: "abc".index(v) / 2 if isinstance(v, str) else v for name, v in params.items()})
    return 1.0 + (x - (0.2 if context[0] < 0.0 else 0.8)) ** 2 + (y - 0.3) ** 2


def samples(t, count, where, seed=0):
    """What a tuner tried in one situation, and what came of it; it has learned that."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(count):
        context = np.array(where) + 0.05 * rng.normal(size=2)
        s = t.ask(context)
        measured = {name: loss(context, s.params) + 0.003 * rng.normal() for name in t._optimizer.metrics}
        t.tell(s.id, measured)
        found.append((context, s.params, measured))
    return found


def taught(seed, count, where, space="smooth", **settings):
    if not settings:  # many tests begin with one of these
        return Tuner.from_bytes(learned(seed, count, where, space))
    t = tuner(seed, space, **settings)
    samples(t, count, where, seed)
    return t


@cache
def learned(seed, count, where, space):
    t = tuner(seed, space)
    samples(t, count, where, seed)
    return t.to_bytes()


def copy(t, **given):
    return Tuner.from_bytes(t.to_bytes(), **given)


def merged(first, *others):
    both = copy(first)
    for other in others:
        both.merge(other)
    return both


def kernel(t):
    return t._optimizer.family._quadratics.tuners


def sums(t):
    """All that is a sum over samples: of prompts and losses in their own units, of contexts, of costs."""
    state, objective = kernel(t), t._optimizer.objective
    n, q, p = int(state.count[0]), kernel(t).first.shape[1], state.window_points.shape[2]
    first = state.prompts[0, :n, : 1 + 2 * p + q].sum(axis=0)
    first[1 + 2 * p :] += state.first[0] * first[0]
    mean = state.mean[0] + state.origin[0]
    moment = state.moment[0] + state.origin[0] * (2.0 * state.mean[0] + state.origin[0])
    moments = [objective._mean, np.sqrt(np.array(objective._squares))]
    return np.concatenate([first, state.steps[0] * mean, state.steps[0] * moment, state.changes[0], *moments])


def regret(t, context, space="smooth"):
    grid = [np.linspace(0, 1, 41)] * 2 if space == "smooth" else (range(7), "abc")
    best = min(loss(context, {"x": x, "y": y}) for x, y in itertools.product(*grid))
    return loss(context, t.recommend(context)) - best


@pytest.mark.parametrize("count", [6, 60])
def test_sums_add(count):
    a, b = taught(1, count, HERE), taught(2, count + 3, THERE)
    both = merged(a, b)
    first, second = sums(a), sums(b)
    counted = slice(0, len(first) - 4)  # the last are moments of the objective
    np.testing.assert_allclose(sums(both)[counted], (first + second)[counted], rtol=1e-9)
    assert both.learned == a.learned + b.learned == 2 * count + 3
    assert both.slots().visits.sum() == both.learned
    everything = np.concatenate([t._optimizer.recent().losses[:, 0] for t in (a, b)])
    objective = both._optimizer.objective
    assert objective._mean[0] == pytest.approx(everything.mean(), rel=1e-9)
    assert objective._squares[0] == pytest.approx(((everything - everything.mean()) ** 2).sum(), rel=1e-6)


@pytest.mark.parametrize("space", SPACES)
def test_either_may_take_the_other_in(space):
    a, b = taught(1, 40, HERE, space), taught(2, 25, THERE, space)
    before = b.to_bytes()
    one, two = merged(a, b), merged(b, a)
    assert b.to_bytes() == before
    for where in (HERE, THERE, (0.0, 0.5)):
        assert shares(one.recommend(where))[0] == pytest.approx(shares(two.recommend(where))[0], abs=1e-9)
        assert one.expected_of_default(where) == pytest.approx(two.expected_of_default(where), rel=1e-9)


def test_three_in_any_order_know_the_same():
    three = [taught(1, 50, HERE), taught(2, 30, THERE), taught(3, 41, (0.8, 0.3))]
    ways = [merged(*order) for order in itertools.permutations(three)]
    ways += [merged(a, merged(b, c)) for a, b, c in itertools.permutations(three)]
    for way in ways[1:]:
        np.testing.assert_allclose(sums(way), sums(ways[0]), rtol=1e-9)
        for where in (HERE, THERE, (0.0, 0.5)):
            for name, value in ways[0].recommend(where).items():
                assert way.recommend(where)[name] == pytest.approx(value, abs=1e-6)


def test_both_kernels_merge_alike(monkeypatch):
    a, b = taught(1, 40, HERE), taught(2, 30, THERE)
    here = merged(a, b)
    monkeypatch.setattr(native, "available", lambda: False)
    there = merged(a, b)
    np.testing.assert_allclose(sums(here), sums(there), rtol=1e-12)
    for where in (HERE, THERE):
        assert here.recommend(where) == pytest.approx(there.recommend(where), abs=1e-6)


def test_full_memories_are_merged_too():
    a, b = taught(1, 220, HERE), taught(2, 220, THERE)
    both = merged(a, b)
    assert len(both.slots().visits) == 192
    np.testing.assert_allclose(sums(both), sums(merged(b, a)), rtol=1e-9)
    np.testing.assert_allclose(sums(both)[:9], (sums(a) + sums(b))[:9], rtol=1e-9)
    assert both.slots().last.min() == 0.0


@pytest.mark.parametrize(
    ("space", "seeds", "wrong"), [("smooth", 3, 0), pytest.param("discrete", 6, 1, marks=pytest.mark.slow)]
)
def test_a_merged_tuner_knows_both_situations(space, seeds, wrong):
    """Of six merged Gaussian processes one takes two situations for ruggedness."""
    known = []
    for seed in range(seeds):
        a, b = taught(2 * seed + 1, 50, HERE, space), taught(2 * seed + 2, 50, THERE, space)
        both, *worst = (max(regret(t, where, space) for where in (HERE, THERE)) for t in (merged(a, b), a, b))
        assert min(worst) > 0.2
        known.append(both < 0.06)
    assert sum(known) >= seeds - wrong


@pytest.mark.parametrize("seed", range(3))
def test_a_merged_tuner_predicts_better_than_either(seed):
    a, b = taught(2 * seed + 1, 50, HERE), taught(2 * seed + 2, 50, THERE)
    points = np.random.default_rng(seed).random((20, 2))

    def error(t):
        pairs = itertools.product((HERE, THERE), points)
        return np.mean(
            [abs(t._optimizer.expect(np.array(c), p).mean - loss(c, {"x": p[0], "y": p[1]})) for c, p in pairs]
        )

    assert error(merged(a, b)) < 0.5 * min(error(a), error(b))


@pytest.mark.parametrize("seed", range(3))
def test_halves_that_are_merged_agree_with_a_tuner_that_learned_everything(seed):
    a, b, everything = tuner(1), tuner(2), tuner(3)
    parts = samples(a, 45, HERE, 2 * seed), samples(b, 45, THERE, 2 * seed + 1)
    for sample in itertools.chain(*zip(*parts, strict=True)):
        everything.observe(*sample)
    both = merged(a, b)
    np.testing.assert_allclose(sums(both)[:7], sums(everything)[:7], rtol=1e-9)
    assert sums(both)[7] == pytest.approx(sums(everything)[7], rel=0.1)  # bounds of contexts come with time
    for where in (HERE, THERE):
        one, other = both.recommend(where), everything.recommend(where)
        assert max(abs(one[name] - other[name]) for name in one) < 0.06
        assert both.expected_of_default(where) == pytest.approx(everything.expected_of_default(where), rel=0.03)


def test_discrete_rows_are_those_of_a_tuner_that_learned_everything():
    a, b, everything = (tuner(seed, "discrete") for seed in (1, 2, 3))
    parts = samples(a, 50, HERE, 1), samples(b, 50, THERE, 2)
    for sample in itertools.chain(*zip(*parts, strict=True)):
        everything.observe(*sample)
    one, other, *parts = (t._optimizer.family.state() for t in (merged(a, b), everything, a, b))
    assert {tuple(point) for point in one["points"]} == {tuple(point) for point in other["points"]}
    assert one["counts"].sum() == sum(state["counts"].sum() for state in parts)
    total = sum(state["counts"] @ state["losses"] for state in parts)
    np.testing.assert_allclose(one["counts"] @ one["losses"], total, rtol=1e-9)


def test_discrete_rows_beyond_the_bound_are_those_that_the_others_predict():
    rng, wide = np.random.default_rng(0), {f"k{i}": Int(0, 9) for i in range(6)}
    pair = [Tuner(wide, {"loss": Metric("min", scale="linear")}, seed=seed) for seed in (1, 2)]
    for t in pair:
        for _ in range(MOST_ROWS + 22):
            params = {name: int(rng.integers(10)) for name in wide}
            t.observe(None, params, {"loss": float(sum((v - 3) ** 2 for v in params.values()))})
    both = merged(*pair)
    rows = [t._optimizer.family.state() for t in (both, *pair)]
    assert [len(state["points"]) for state in rows] == [MOST_ROWS] * 3
    assert rows[0]["clock"][0] == 2.0 * (MOST_ROWS + 22)
    best = min(float((state["losses"] @ state["weights"]).min()) for state in rows[1:])
    assert sum((value - 3) ** 2 for value in both.recommend().values()) <= best


def test_a_merged_tuner_goes_on_and_survives_a_restart():
    both = merged(taught(1, 30, HERE), taught(2, 30, THERE))
    again = copy(both)
    assert again.to_bytes() == both.to_bytes()
    for t in (both, again):
        samples(t, 20, HERE, 9)
    assert again.to_bytes() == both.to_bytes()
    assert both.learned == 80


def test_no_sample_counts_twice():
    a, b, c = taught(1, 20, HERE), taught(2, 20, THERE), taught(3, 20, THERE)
    old = copy(a)
    samples(old, 5, THERE, 7)  # a copy that went its own way still holds what it was copied with
    ab, bc = merged(a, b), merged(b, c)
    loaded = copy(ab)
    for one, other in [(a, a), (a, copy(a)), (a, old), (old, a), (ab, a), (ab, old), (b, loaded), (ab, bc), (bc, ab)]:
        before = one.to_bytes()
        with pytest.raises(InvalidValue, match=r"both tuners hold samples of tuner [0-9a-f]{16}"):
            one.merge(other)
        assert one.to_bytes() == before
    ab.merge(c)
    assert ab.learned == 60


def test_a_tuner_that_was_merged_into_an_empty_one_is_known_there():
    a, empty = taught(1, 20, HERE), tuner(5)
    empty.merge(a)
    assert empty.recommend(HERE) == a.recommend(HERE)
    samples(empty, 3, HERE, 4)
    with pytest.raises(InvalidValue, match="20 the same"):
        a.merge(empty)
    a.merge(tuner(6))
    assert a.learned == 20


def test_tuners_that_began_alike_need_seeds_of_their_own():
    def began(seed):
        t = tuner(seed, context=None)
        t.observe(None, {"x": 0.5, "y": 0.5}, {"loss": 1.0})
        t.observe(None, {"x": 0.5, "y": 0.1 * seed}, {"loss": 2.0})
        return t

    with pytest.raises(InvalidValue, match="seeds of their own"):
        began(0).merge(copy(began(0)))
    assert merged(began(1), began(2)).learned == 4


@pytest.mark.parametrize("lineage", [{"own": None, "held": {}}, {"own": "a", "held": {"a": 13}}, {"held": 1}, [], 3])
def test_a_lineage_that_cannot_be_is_refused(lineage):
    header, arrays = snapshot.decode(taught(4, 12, HERE).to_bytes())
    header["lineage"] = lineage
    with pytest.raises(InvalidValue.__base__):
        Tuner.from_bytes(snapshot.encode({k: v for k, v in header.items() if k not in ("arrays", "numerics")}, arrays))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("space", {"space": "mixed"}),
        ("metrics", {"metrics": {"loss": "max"}}),
        ("metrics", {"metrics": {"cost": "min"}}),
        ("metrics", {"metrics": {"loss": Metric("min", scale="log")}}),
        ("context", {"context": ["u", "v"]}),
        ("default", {"default": {"x": 0.5, "y": 0.4}}),
        ("preset", {"switching_cost": 1.0}),
        ("shield", {"shield": ContextShield([(-2.0, 2.0)] * 2, key="kept outside, and long")}),
    ],
)
def test_tuners_of_another_kind_are_refused(name, settings):
    t, other = taught(1, 5, HERE), tuner(2, **settings)
    before = t.to_bytes()
    with pytest.raises(InvalidValue, match=f"the same {name}"):
        t.merge(other)
    with pytest.raises(InvalidValue, match="only a Tuner"):
        t.merge(before)
    assert t.to_bytes() == before


def test_the_papers_preset_cannot_be_merged():
    small = presets.paper(experts=2, hidden_1=4, hidden_2=4, memory_size=8)
    one, other = (tuner(seed, preset=small) for seed in (1, 2))
    with pytest.raises(InvalidValue, match="'paper' cannot be merged"):
        one.merge(other)


def test_what_differs_in_weights_is_seen_by_the_weights_of_the_one_that_stays():
    def pulled(seed, weight):
        t = tuner(seed, metrics={"left": Metric("min", weight), "right": "min"})
        rng = np.random.default_rng(seed)
        for _ in range(40):
            x, y = rng.random(2)
            t.observe(rng.normal(size=2), {"x": x, "y": y}, {"left": x + y, "right": 2.0 - x - y + 0.3 * x * x})
        return t

    a, b = pulled(1, 20.0), pulled(2, 0.05)
    left, right = merged(a, b), merged(b, a)
    assert left.recommend(HERE)["x"] < 0.3 < 0.7 < right.recommend(HERE)["x"]
    left.reweigh({"left": 0.05})
    assert left.recommend(HERE) == pytest.approx(right.recommend(HERE), abs=0.05)


def test_levels_that_differ_by_factors_between_tuners_call_for_logarithms():
    def scaled(seed, factor, where):
        t, rng = tuner(seed), np.random.default_rng(seed)
        for _ in range(40):
            context = np.array(where) + 0.05 * rng.normal(size=2)
            s = t.ask(context)
            t.tell(s.id, {"loss": factor * loss(context, s.params) * np.exp(0.01 * rng.normal())})
        return t

    a, b = scaled(1, 1.0, HERE), scaled(2, 1000.0, THERE)
    assert a.scales == b.scales == {"loss": "linear"}
    both = merged(a, b)
    assert both.scales == {"loss": "log"}
    assert both.expected_of_default(HERE) == pytest.approx(1.13, rel=0.3)
    assert both.expected_of_default(THERE) == pytest.approx(1130.0, rel=0.3)


def test_costs_add():
    a, b = taught(1, 30, HERE, budget=0.02), taught(2, 20, THERE, budget=0.02)
    one, other, both = a.budget(), b.budget(), merged(a, b).budget()
    assert (both.steps, both.spent) == (one.steps + other.steps, pytest.approx(one.spent + other.spent))
    assert both.earned == pytest.approx(one.earned + other.earned)


def test_failures_before_any_success_come_along():
    failed, known = tuner(1), taught(2, 20, HERE)
    for _ in range(3):
        failed.tell_failed(failed.ask(HERE).id)
    for both in (merged(failed, known), merged(known, failed)):
        assert both.learned == 23
        assert both.slots().visits.sum() == 23
    more = tuner(3)
    more.observe_failed(HERE, {"x": 0.9, "y": 0.9})
    assert len(merged(failed, more)._optimizer._early) == 4


def test_what_waits_stays_with_its_tuner():
    a, b = taught(1, 5, HERE), taught(2, 5, THERE)
    mine, theirs = a.ask(HERE), b.ask(THERE)
    a.merge(b)
    assert [s.id for s in a.pending] == [mine.id]
    a.tell(mine.id, {"loss": 1.0})
    b.tell(theirs.id, {"loss": 1.0})
    assert (a.learned, b.learned) == (11, 6)


def test_long_contexts_are_merged():
    rng = np.random.default_rng(0)
    one, other = (Tuner(SMOOTH, {"loss": "min"}, 768, seed=seed) for seed in (1, 2))
    for t, sign in ((one, -1.0), (other, 1.0)):
        for _ in range(12):
            context = sign + 0.1 * rng.normal(size=768)
            s = t.ask(context)
            t.tell(s.id, {"loss": loss([sign], s.params)})
    assert merged(one, other).recommend(np.ones(768)) == pytest.approx(merged(other, one).recommend(np.ones(768)))
