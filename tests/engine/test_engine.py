"""The engine of preset `default`, through the public Tuner."""

import itertools

import numpy as np
import pytest

from rasp_tuner import Categorical, Float, Int, InvalidSpace, InvalidValue, Tuner, presets
from rasp_tuner.engine.quadratic.family import QuadraticFamily
from rasp_tuner.files import snapshot

TWO = {"x": Float(0.0, 1.0, digits=12), "y": Float(0.0, 1.0, digits=12)}  # fewer digits hide small changes
MIXED = {"n": Int(1, 9), "x": Float(0.0, 1.0), "c": Categorical(["a", "b", "c"])}


def drive(tuner, steps, metrics, context=lambda _: None):
    """Every suggestion of a stream; `metrics(t, params)` answers, None tells of a failure."""
    asked = []
    for t in range(steps):
        s = tuner.ask(context(t))
        told = metrics(t, s.params)
        if told is None:
            tuner.tell_failed(s.id, "boom")
        else:
            tuner.tell(s.id, told)
        asked.append(s.params)
        assert all(np.isfinite(value) for value in s.params.values() if isinstance(value, float))
        if t % 5 == 4:  # it takes a third of a step's time
            assert str(tuner.explain(s.id))
    return asked


@pytest.mark.parametrize("corner", [0.0, 1.0])
def test_the_first_probe_leaves_a_default_at_the_edge(corner):
    for seed in range(8):
        tuner = Tuner(TWO, {"loss": "min"}, default={"x": corner, "y": corner}, seed=seed)
        first = tuner.ask()
        tuner.tell(first.id, {"loss": 1.0})
        assert tuner.ask().params != first.params


@pytest.mark.parametrize("before", [0.0, 3.0])
@pytest.mark.parametrize("after", [1e-100, 1.0, 1e100])
def test_a_metric_may_be_constant_and_then_move(before, after):
    tuner = Tuner(TWO, {"loss": "min"}, context=1)
    drive(tuner, 40, lambda t, p: {"loss": before if t < 15 else after * (p["x"] - 0.3) ** 2}, lambda t: [float(t % 2)])


@pytest.mark.parametrize("size", [1e-320, 1e-200, 1e-100, 1e100, 1e300])
@pytest.mark.parametrize("space", [TWO, MIXED], ids=["floats", "mixed"])
def test_tiny_and_huge_metrics_give_finite_suggestions(space, size):
    tuner = Tuner(space, {"loss": "min"}, context=1)
    drive(tuner, 30, lambda t, p: {"loss": size * (p["x"] - 0.3 * (t % 2)) ** 2}, lambda t: [float(t % 2)])


@pytest.mark.parametrize("size", [1e-320, 1e-100, 1e100, 1e308])
def test_tiny_and_huge_contexts_give_finite_suggestions(size):
    tuner = Tuner(TWO, {"loss": "min"}, context=2)
    noise = np.random.default_rng(0)
    drive(
        tuner, 40, lambda _, p: {"loss": (p["x"] - 0.3) ** 2}, lambda t: [size * noise.uniform(-1, 1), (-1) ** t * size]
    )


@pytest.mark.parametrize("size", [2.0**63, 1e100, 1.7e308])
@pytest.mark.parametrize("when", [3, 10, 45])
def test_one_absurd_context_does_not_end_a_tuner(size, when):
    tuner = Tuner(TWO, {"loss": "min"}, context=1)
    drive(
        tuner,
        when + 35,
        lambda t, p: {"loss": (p["x"] - 0.3 - 0.1 * (t % 3)) ** 2 + p["y"]},
        lambda t: [size if t == when else float(t % 3)],
    )
    Tuner.from_bytes(tuner.to_bytes())


@pytest.mark.parametrize("space", [TWO, MIXED], ids=["floats", "mixed"])
def test_a_default_that_fails_is_left(space):
    tuner = Tuner(space, {"loss": "min"})
    asked = drive(tuner, 40, lambda _, p: None if p["x"] > 0.4 else {"loss": p["x"]})
    assert sum(params["x"] <= 0.4 for params in asked) > 20
    assert tuner.recommend()["x"] <= 0.4


@pytest.mark.parametrize("change", [2, 4, 9])
def test_a_metric_that_was_tiny_may_become_huge_beside_another(change):
    tuner = Tuner(TWO, {"a": "min", "b": "max"})
    drive(tuner, 20, lambda t, p: {"a": (1e-100 if t < change else 1e100) * (p["x"] + t % 3), "b": p["y"]})


def test_a_metric_may_jump_from_tiny_to_huge():
    tuner = Tuner(TWO, {"loss": "min"})
    drive(tuner, 30, lambda t, p: {"loss": (1e-50 if t < 9 else 1e100) * (p["x"] + t % 3)})


CENTRES = np.array([[0.2, 0.7], [0.8, 0.3]])


def regime(t):
    return t // 15 % 2


def loss(t, params):
    """A bowl whose bottom depends on which of two situations is in force; zero at best."""
    return float(((np.array([params["x"], params["y"]]) - CENTRES[regime(t)]) ** 2).sum())


def regimes(t):
    return [float(regime(t)) + 0.02 * np.sin(5.0 * t), 1.0]


def answer(t, params):
    return {"loss": 5.0 + loss(t, params)}


@pytest.mark.parametrize("seed", range(3))
def test_a_bowl_that_depends_on_context_is_learned_and_a_return_is_recognised(seed):
    losses = [loss(t, p) for t, p in enumerate(drive(Tuner(TWO, {"loss": "min"}, 2, seed=seed), 60, answer, regimes))]
    static = 0.13 * 60  # of the default, in either situation
    assert sum(losses) < 0.5 * static
    assert max(losses[30], losses[45]) < 0.01  # the first steps after either situation came back
    assert np.mean(losses[30:]) < 0.005


def test_a_metric_to_maximise_is_learned_as_its_negative_is():
    low = drive(Tuner(TWO, {"loss": "min"}, 2), 40, answer, regimes)
    high = drive(Tuner(TWO, {"gain": "max"}, 2), 40, lambda t, p: {"gain": -answer(t, p)["loss"]}, regimes)
    assert high == low


def changes(asked):
    return sum(a != b for a, b in itertools.pairwise(asked))


@pytest.mark.parametrize("seed", range(3))
def test_a_cost_of_switching_makes_changes_rarer_and_pays(seed):
    cost, totals, counts = 0.05, {}, {}
    for heeded in (0.0, cost):
        asked = drive(Tuner(TWO, {"loss": "min"}, 2, seed=seed, switching_cost=heeded), 60, answer, regimes)
        counts[heeded] = changes(asked)
        totals[heeded] = sum(loss(t, p) for t, p in enumerate(asked)) + cost * counts[heeded]
    assert counts[cost] < 0.6 * counts[0.0]
    assert totals[cost] < totals[0.0]


def test_a_cost_beyond_all_gain_means_no_change_after_a_first_look():
    asked = drive(Tuner(TWO, {"loss": "min"}, 2, switching_cost=1e9), 20, answer, regimes)
    assert changes(asked[len(TWO) + 2 :]) == 0


def test_the_guard_keeps_near_a_good_default():
    margin, kept = 0.1, []

    def true(p):
        return 1.0 + (p["x"] - 0.52) ** 2 + (p["y"] - 0.49) ** 2

    for seed in range(4):
        noise = np.random.default_rng(seed)
        tuner = Tuner(TWO, {"loss": "min"}, 2, default={"x": 0.5, "y": 0.5}, guard=margin, seed=seed)
        asked = drive(tuner, 60, lambda _, p, noise=noise: {"loss": true(p) + 0.01 * noise.normal()}, regimes)
        kept += [true(p) <= (1.0 + margin) * true({"x": 0.5, "y": 0.5}) + 0.02 for p in asked[4:]]
    assert np.mean(kept) >= 0.95


def test_the_guard_falls_back_and_says_so():
    tuner = Tuner(TWO, {"loss": "min"}, default={"x": 0.5, "y": 0.5}, guard=0.0)
    sources = set()
    for _ in range(30):
        s = tuner.ask()
        sources.add(tuner.explain(s.id).source)
        tuner.tell(s.id, {"loss": 1.0 + (s.params["x"] - 0.5) ** 2 + (s.params["y"] - 0.5) ** 2})
    assert sources & {"best known (guard)", "default (guard)"}


@pytest.mark.parametrize("bad", [-0.1, float("nan"), "x"])
def test_a_guard_is_a_share_from_zero_up(bad):
    with pytest.raises(InvalidSpace, match="guard"):
        Tuner(TWO, {"loss": "min"}, default={"x": 0.5, "y": 0.5}, guard=bad)


def test_frozen_it_suggests_what_it_recommends_and_still_learns():
    tuner = Tuner(TWO, {"loss": "min"}, 2)
    drive(tuner, 20, answer, regimes)
    assert "frozen" not in tuner.explain(tuner.ask(regimes(20)).id).source
    tuner.freeze()
    assert tuner.frozen
    loaded = Tuner.from_bytes(tuner.to_bytes())
    assert loaded.frozen
    for t in range(20, 40):
        best = loaded.recommend(regimes(t))
        s = loaded.ask(regimes(t))
        assert s.params == best
        assert "frozen" in loaded.explain(s.id).source
        loaded.tell(s.id, answer(t, s.params))
    assert loaded.learned == 40
    loaded.unfreeze()
    assert not Tuner.from_bytes(loaded.to_bytes()).frozen
    tried = {tuple(loaded.ask(regimes(40)).params.values()) for _ in range(10)}
    assert len(tried) > 1  # it explores again


def test_frozen_before_anything_is_known_it_suggests_the_default():
    tuner = Tuner(TWO, {"loss": "min"}, default={"x": 0.1, "y": 0.2})
    tuner.freeze()
    assert tuner.ask().params == tuner.ask().params == {"x": 0.1, "y": 0.2}


def pulled():
    """A tuner that knows two metrics with bottoms at 0.2 and at 0.8."""
    tuner = Tuner(TWO, {"left": "min", "right": "max"})
    rng = np.random.default_rng(0)
    for x, y in rng.random((40, 2)):
        tuner.observe(None, {"x": x, "y": y}, {"left": (x - 0.2) ** 2, "right": -1e3 * (x - 0.8) ** 2})
    return tuner


def test_other_weights_move_the_recommendation_at_once():
    tuner = pulled()
    assert tuner.recommend()["x"] == pytest.approx(0.5, abs=0.15)
    for weights, bottom in (({"left": 1e3}, 0.2), ({"left": 1.0, "right": 1e3}, 0.8)):
        tuner.reweigh(weights)
        assert tuner.recommend()["x"] == pytest.approx(bottom, abs=0.05)
        assert Tuner.from_bytes(tuner.to_bytes()).recommend() == tuner.recommend()
    assert tuner.learned == 40


@pytest.mark.parametrize("bad", [{"up": 1.0}, {"left": 0.0}, {"left": 2.0, "right": float("nan")}, None, [1.0]])
def test_bad_weights_are_refused_and_change_nothing(bad):
    tuner = pulled()
    before = tuner.to_bytes()
    with pytest.raises(InvalidValue, match="weights"):
        tuner.reweigh(bad)
    assert tuner.to_bytes() == before


def test_a_region_that_fails_is_left():
    tuner = Tuner(TWO, {"loss": "min"})
    asked = drive(tuner, 60, lambda _, p: None if p["x"] > 0.7 else {"loss": (p["x"] - 0.9) ** 2 + (p["y"] - 0.4) ** 2})
    assert sum(p["x"] > 0.7 for p in asked[30:]) <= 10
    assert 0.5 < tuner.recommend()["x"] <= 0.72


def test_failures_before_any_success_are_kept_and_survive_a_restart():
    tuner = Tuner(TWO, {"loss": "min"}, 2)
    for t in range(80):
        tuner.tell_failed(tuner.ask(regimes(t)).id)
    loaded = Tuner.from_bytes(tuner.to_bytes())
    assert loaded.to_bytes() == tuner.to_bytes()
    assert len(snapshot.decode(loaded.to_bytes())[1]["early"]) == 64  # bounded
    assert drive(loaded, 10, answer, regimes) == drive(tuner, 10, answer, regimes)
    assert len(snapshot.decode(loaded.to_bytes())[1]["family/counts"]) == 74


def test_asking_never_learns_whatever_is_set():
    tuner = Tuner(TWO, {"loss": "min"}, 2, default={"x": 0.5, "y": 0.5}, guard=0.1, switching_cost=0.01)
    drive(tuner, 50, answer, regimes)

    def learned():
        header, arrays = snapshot.decode(tuner.to_bytes())
        kept = {name: value for name, value in header.items() if name not in ("random", "ledger")}
        return kept, {name: a.tobytes() for name, a in arrays.items() if not name.startswith("ledger/")}

    before = learned()
    for t in range(50):
        tuner.ask([np.sin(t), 1e3 * t])
        tuner.recommend([np.cos(t), 1.0])
    assert learned() == before


def test_late_and_out_of_order_answers_are_learned():
    tuner, rng = Tuner(TWO, {"loss": "min"}, 2), np.random.default_rng(0)
    waiting = []
    for t in range(60):
        waiting.append((t, tuner.ask(regimes(t))))
        if len(waiting) == 8:
            rng.shuffle(waiting)
            while len(waiting) > 2:
                when, s = waiting.pop()
                tuner.tell(s.id, answer(when, s.params))
    for t in (0, 15):
        assert loss(t, tuner.recommend(regimes(t))) < 0.02


def test_what_was_observed_before_the_first_ask_counts():
    tuner, rng = Tuner(TWO, {"loss": "min"}, 2), np.random.default_rng(0)
    for t in range(30):
        params = dict(zip("xy", rng.random(2).tolist(), strict=True))
        tuner.observe(regimes(t), params, answer(t, params))
    assert loss(30, tuner.ask(regimes(30)).params) < 0.05
    assert loss(15, tuner.recommend(regimes(15))) < 0.01


@pytest.mark.parametrize("value", [0.0, 3.0, -1e100])
def test_a_constant_metric_does_no_harm(value):
    drive(Tuner(TWO, {"loss": "min"}, 2), 40, lambda *_: {"loss": value}, regimes)
    drive(Tuner(MIXED, {"loss": "min", "gain": "max"}), 20, lambda *_: {"loss": value, "gain": value})


@pytest.mark.parametrize("space", [TWO, MIXED], ids=["floats", "mixed"])
def test_where_a_metric_is_always_zero_nothing_is_better_than_the_default(space):
    """The errors of a healthy service: differences of 1e-258 were proven gains."""
    tuner = Tuner(space, {"errors": "min"}, seed=0)
    drive(tuner, 60, lambda *_: {"errors": 0.0})
    assert tuner.recommend() == tuner.default


@pytest.mark.parametrize("context", [lambda _: [5.0, 5.0], lambda t: [t % 3, t % 3], lambda _: [0.0, 0.0]])
def test_contexts_that_say_little_do_no_harm(context):
    asked = drive(Tuner(TWO, {"loss": "min"}, 2), 30, lambda _, p: answer(0, p), context)
    assert loss(0, asked[-1]) < 0.02


def test_without_context_it_tunes_too():
    asked = drive(Tuner({"x": Float(0.0, 1.0)}, {"loss": "min"}), 20, lambda _, p: {"loss": (p["x"] - 0.87) ** 2})
    assert asked[-1]["x"] == pytest.approx(0.87, abs=0.05)


@pytest.mark.parametrize(
    "space", [{f"x{i}": Float(0.0, 1.0) for i in range(30)}, {"n": Int(1, 10**6, log=True)}, MIXED]
)
def test_spaces_of_all_kinds_are_tuned(space):
    def far(params):
        return sum(abs(knob.to_unit(params[name]) - 0.8) for name, knob in space.items())

    asked = drive(Tuner(space, {"loss": "min"}, 1), 40, lambda _, p: {"loss": far(p)}, lambda t: [float(t % 2)])
    assert np.mean([far(p) for p in asked[30:]]) < 0.6 * far(asked[0])


def test_a_long_context_is_taken():
    rng = np.random.default_rng(0)
    asked = drive(Tuner(TWO, {"loss": "min"}, 768), 30, lambda _, p: answer(0, p), lambda _: rng.normal(size=768))
    assert loss(0, asked[-1]) < 0.05


def test_an_explanation_names_the_expert_and_the_similar_situations():
    tuner = Tuner(TWO, {"loss": "min"}, 2)
    drive(tuner, 20, answer, regimes)
    why = tuner.explain(tuner.ask(regimes(5)).id)
    assert why.expert in QuadraticFamily.experts
    assert sum(why.gate) == pytest.approx(1.0)
    assert len(why.slots) == len(why.weights) == 3
    assert all(regime(slot) == 0 for slot in why.slots)  # the situations of its own regime
    assert 0.0 <= why.novelty < 0.2
    assert "loss is expected to be 5 " in str(why)
    assert f"The forecast rests mostly on {why.expert}." in why.details
    strange = tuner.explain(tuner.ask([50.0, 1.0]).id)
    assert strange.novelty > 0.9


@pytest.mark.parametrize("seed", range(3))
def test_an_optimum_that_moves_with_a_context_never_seen_twice_is_followed(seed):
    """Kernels alone are five times as far off: no situation is like another."""
    kind = presets.default(quadratic=True)
    tuner, rng, losses = Tuner(TWO, {"loss": "min"}, 1, preset=kind, seed=seed), np.random.default_rng(seed), []
    for _ in range(70):
        context = rng.random()
        s = tuner.ask([context])
        losses.append(sum((value - 0.2 - 0.6 * context) ** 2 for value in s.params.values()))
        tuner.tell(s.id, {"loss": 1.0 + losses[-1] + 0.01 * rng.normal()})
    assert np.mean(losses[40:]) < 0.005
