"""Limits: cost as low as can be while another metric keeps its limit; through the public Tuner."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rasp_tuner import Categorical, Category, Float, Int, InvalidSpace, InvalidValue, Metric, Tuner

LIMIT = 200.0
LOADS = (0.0, 0.4, 1.0)


def cost(memory, workers):
    return 1.0 + memory + 0.6 * workers


def p99(memory, workers, load):
    return 40.0 * (1.0 + load) * math.exp(1.3 * (2.0 - memory - workers))


class Server:
    """Two knobs from 0 to 1: what is cheap is slow, the more so the higher the load."""

    def __init__(self, tuner, noise=0.0, seed=0):
        self.tuner, self.noise, self.rng = tuner, noise, np.random.default_rng(seed)
        self.costs, self.p99s, self.loads = [], [], []

    def step(self):
        load = float(self.rng.choice(LOADS))
        suggestion = self.tuner.ask({"load": load})
        memory, workers = suggestion.params["memory"], suggestion.params["workers"]
        measured = [cost(memory, workers), p99(memory, workers, load)] * (1.0 + self.noise * self.rng.normal(size=2))
        self.tuner.tell(suggestion.id, dict(zip(("cost", "p99_ms"), measured.tolist(), strict=True)))
        self.loads.append(load)
        self.costs.append(cost(memory, workers))
        self.p99s.append(p99(memory, workers, load))
        return self


def tuner_for(limit, default=0.9, seed=0, **options):
    space = {"memory": Float(0.0, 1.0), "workers": Float(0.0, 1.0)}
    default = {"memory": default, "workers": default}
    return Tuner(space, {"cost": "min", "p99_ms": limit}, ["load"], default, seed=seed, **options)


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_the_cheapest_settings_that_keep_a_limit_are_found_and_it_is_rarely_broken(noise):
    tuner = tuner_for(Metric("min", max=LIMIT))
    server = Server(tuner, noise)
    for _ in range(100):
        server.step()
    broken = np.array(server.p99s) > LIMIT
    assert broken.mean() < 0.1
    assert broken[50:].mean() < 0.1
    for load in LOADS:
        found = tuner.recommend({"load": load})
        assert p99(found["memory"], found["workers"], load) <= LIMIT
    best = {load: min(1.0 + m + 0.6 * w for m in GRID for w in GRID if p99(m, w, load) <= LIMIT) for load in LOADS}
    late = np.mean(server.costs[50:]) / np.mean([best[load] for load in server.loads[50:]])
    assert late < 1.15
    assert np.mean(server.costs[50:]) < 0.8 * cost(0.9, 0.9)  # and far below the default


GRID = np.linspace(0.0, 1.0, 41)


def test_without_the_limit_the_same_tuner_goes_where_it_would_be_broken():
    server = Server(tuner_for(Metric("min", weight=1e-6)))
    for _ in range(60):
        server.step()
    assert np.mean(np.array(server.p99s[30:]) > LIMIT) > 0.5


def test_a_limit_beside_the_default_holds_in_every_situation():
    tuner = tuner_for(Metric("min", at_most="1.2 default"))
    server = Server(tuner)
    for _ in range(100):
        server.step()
    shares = [p / p99(0.9, 0.9, load) for p, load in zip(server.p99s, server.loads, strict=True)]
    assert np.mean(np.array(shares) > 1.2 + 1e-9) < 0.15
    assert np.mean(np.array(shares[50:]) > 1.2 + 1e-9) < 0.05
    for load in LOADS:
        found = tuner.recommend({"load": load})
        assert p99(found["memory"], found["workers"], load) <= 1.25 * p99(0.9, 0.9, load)
        assert cost(found["memory"], found["workers"]) < cost(0.9, 0.9)


def test_where_the_default_breaks_the_limit_settings_that_keep_it_are_found():
    tuner = tuner_for(Metric("min", max=LIMIT), default=0.2)
    server = Server(tuner)
    for _ in range(80):
        server.step()
    assert np.mean(np.array(server.p99s[40:]) > LIMIT) < 0.1
    found = tuner.recommend({"load": 1.0})
    assert p99(found["memory"], found["workers"], 1.0) <= LIMIT


def test_what_is_better_when_higher_has_a_least_value():
    tuner = Tuner({"x": Float(0.0, 1.0)}, {"power": "min", "rate": Metric("max", min=50.0)}, None, {"x": 0.9})
    rates = []
    for _ in range(50):
        suggestion = tuner.ask()
        rates.append(100.0 * suggestion.params["x"])
        tuner.tell(suggestion.id, {"power": suggestion.params["x"] ** 2, "rate": rates[-1]})
    assert np.mean(np.array(rates[10:]) < 50.0) < 0.1
    assert 0.5 <= tuner.recommend()["x"] < 0.65
    margin = tuner.margins()["rate"]
    assert margin.limit == pytest.approx(50.0)
    assert margin.bound >= 50.0
    assert margin.kept >= 0.9
    assert margin.share >= 0.0


def test_choices_are_changed_one_by_one_when_all_at_once_would_break_the_limit():
    space = {name: Categorical(["safe", "cheap"]) for name in "abcd"}
    tuner = Tuner(space, {"cost": "min", "p99_ms": Metric("min", max=130.0)}, None, dict.fromkeys("abcd", "safe"))
    values = []
    for _ in range(60):
        suggestion = tuner.ask()
        cheap = sum(value == "cheap" for value in suggestion.params.values())
        values.append(100.0 + 12.0 * cheap)  # two of four keep it
        tuner.tell(suggestion.id, {"cost": 10.0 - cheap, "p99_ms": values[-1]})
    assert np.mean(np.array(values) > 130.0) < 0.15
    assert sum(value == "cheap" for value in tuner.recommend().values()) == 2


def test_margins_are_of_what_is_recommended_or_of_given_settings_and_empty_at_first():
    tuner = tuner_for(Metric("min", max=LIMIT))
    assert tuner.margins({"load": 0.0}) == {}
    server = Server(tuner)
    for _ in range(60):
        server.step()
    assert tuner.margins({"load": 1.0})["p99_ms"].kept >= 0.9
    slow = tuner.margins({"load": 1.0}, {"memory": 0.0, "workers": 0.0})["p99_ms"]
    assert slow.kept < 0.1
    assert slow.share < 0.0
    assert "no room" in str(slow)
    assert "200" in str(slow)
    assert tuner_for(Metric("min")).margins({"load": 0.0}) == {}


def test_crashes_are_data_for_limits_too():
    tuner = Tuner({"x": Float(0.0, 1.0)}, {"cost": "min", "p99_ms": Metric("min", max=1000.0)}, None, {"x": 0.9})
    crashed = 0
    for _ in range(60):
        suggestion = tuner.ask()
        x = suggestion.params["x"]
        if x < 0.4:
            crashed += 1
            tuner.tell_failed(suggestion.id, "out of memory")
        else:
            tuner.tell(suggestion.id, {"cost": x, "p99_ms": 50.0})
    assert crashed < 20
    assert tuner.recommend()["x"] >= 0.4


def test_a_saved_tuner_goes_on_as_if_nothing_had_happened():
    server = Server(tuner_for(Metric("min", max=LIMIT)), 0.05)
    for _ in range(40):
        server.step()
    other = Server(Tuner.from_bytes(server.tuner.to_bytes()), 0.05)
    other.rng.bit_generator.state = server.rng.bit_generator.state
    for _ in range(20):
        server.step(), other.step()
    assert other.p99s == server.p99s[40:]
    assert server.tuner.to_bytes() == other.tuner.to_bytes()


def test_tuners_with_limits_merge():
    first, second = tuner_for(Metric("min", max=LIMIT), seed=1), tuner_for(Metric("min", max=LIMIT), seed=2)
    for tuner in (first, second):
        server = Server(tuner)
        for _ in range(30):
            server.step()
    first.merge(second)
    assert first.learned == 60
    assert first.margins({"load": 0.0})["p99_ms"].kept >= 0.9
    with pytest.raises(InvalidValue, match="same metrics"):
        first.merge(tuner_for(Metric("min", max=150.0), seed=3))


def test_a_tell_that_is_refused_changes_nothing():
    metrics = {"cost": Metric("min", scale="log"), "p99{0} ms": Metric("min", max=LIMIT)}
    tuner = Tuner({"x": Float(0.0, 1.0)}, metrics, None, {"x": 0.5})
    for p99_ms in (300.0, 310.0, 280.0, 320.0, 290.0, 330.0):  # nothing keeps the limit
        suggestion = tuner.ask()
        tuner.tell(suggestion.id, {"cost": 1.0, "p99{0} ms": p99_ms})
    suggestion = tuner.ask()
    assert "to keep the limit of p99{0} ms" in tuner.explain(suggestion.id).source
    before = tuner.to_bytes()
    with pytest.raises(InvalidValue, match="must be above 0"):
        tuner.tell(suggestion.id, {"cost": -1.0, "p99{0} ms": 500.0})
    assert tuner.to_bytes() == before


def test_weights_change_only_of_what_is_minimised():
    tuner = tuner_for(Metric("min", max=LIMIT))
    tuner.reweigh({"cost": 3.0})
    with pytest.raises(InvalidValue, match="has a limit and no weight"):
        tuner.reweigh({"p99_ms": 1.0})


def test_a_limited_metric_may_count_besides():
    tuner = tuner_for(Metric("min", weight=0.5, max=LIMIT))
    server = Server(tuner)
    for _ in range(40):
        server.step()
    assert np.mean(np.array(server.p99s) > LIMIT) < 0.2


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"direction": "min", "min": 3.0}, "a Metric to minimise has no min: give max"),
        ({"direction": "max", "max": 3.0}, "a Metric to maximise has no max: give min"),
        ({"direction": "max", "at_most": "1.05 default"}, "has no at_most"),
        ({"direction": "min", "max": 3.0, "at_most": "1.05 default"}, "give either max or at_most"),
        ({"direction": "min", "max": math.nan}, "Metric max must be a finite number"),
        ({"direction": "min", "at_most": "1.05"}, 'as in "1.05 default"'),
        ({"direction": "min", "at_most": "nan default"}, 'as in "1.05 default"'),
        ({"direction": "max", "at_least": 0.95}, 'as in "0.95 default"'),
        ({"direction": "min", "weight": 0.0}, "must be positive"),
        ({"direction": "min", "weight": -1.0, "max": 3.0}, "or 0 where it has a limit"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(fields, said):
    with pytest.raises(InvalidSpace, match=said):
        Metric(**fields)


def test_something_must_be_minimised_and_preset_paper_says_that_it_keeps_no_limits():
    space, limit = {"x": Float(0.0, 1.0)}, Metric("min", max=3.0)
    with pytest.raises(InvalidSpace, match="every metric is a limit"):
        Tuner(space, {"p99_ms": limit})
    with pytest.raises(InvalidSpace, match="knows no limits"):
        Tuner(space, {"cost": "min", "p99_ms": limit}, preset="paper")


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["float", "int", "choice"]),
    st.floats(-1e6, 1e6),
    st.sampled_from(["auto", "linear"]),
    st.lists(st.floats(-1e9, 1e9), min_size=5, max_size=25),
)
def test_whatever_is_measured_a_suggestion_is_legal_and_margins_are_numbers(kind, limit, scale, values):
    knob = {"float": Float(0.0, 1.0), "int": Int(0, 9), "choice": Categorical(["a", "b", "c"])}[kind]
    tuner = Tuner({"k": knob}, {"cost": "min", "other": Metric("min", scale=scale, max=limit)}, 1)
    for i, value in enumerate(values):
        suggestion = tuner.ask([float(i % 3)])
        assert knob.from_unit(knob.to_unit(suggestion.params["k"])) == suggestion.params["k"]
        tuner.tell(suggestion.id, {"cost": value, "other": values[-1 - i]})
    margin = tuner.margins([0.0])["other"]
    assert math.isfinite(margin.expected)
    assert 0.0 <= margin.kept <= 1.0


def test_the_history_says_what_the_default_comes_to_wherever_the_limit_decided():
    server = Server(tuner_for(Metric("min", max=LIMIT)), 0.02)
    for _ in range(60):
        server.step()
    safe = [row for row in server.tuner.history() if row["chosen_by"].endswith(("the limits", "as far as is safe"))]
    known = [row["expected_default"] for row in safe if row["step"] > 10]
    assert len(known) > 5
    assert known == pytest.approx([cost(0.9, 0.9)] * len(known), rel=0.2)


def test_a_choice_that_is_second_fastest_and_keeps_the_limit_is_found_in_every_situation():
    times, sizes = (
        {"gzip": 1.0, "lz4": 0.15, "zstd": 0.4, "xz": 5.0},
        {"gzip": 1.0, "lz4": 1.6, "zstd": 0.97, "xz": 0.85},
    )
    level, inputs = {"text": 1.0, "log": 3.0, "binary": 10.0}, np.random.default_rng(2)
    knobs = {"codec": Categorical(list(times)), "level": Int(1, 9)}
    metrics = {"time": "min", "size": Metric("min", at_most="1.05 default")}
    tuner = Tuner(knobs, metrics, {"kind": Category()}, {"codec": "gzip", "level": 6}, seed=2)
    broken = 0
    for kind in inputs.choice(list(level), 100):
        asked = tuner.ask({"kind": kind})
        harder = asked.params["level"] - 6
        time = level[kind] * times[asked.params["codec"]] * 1.25**harder * math.exp(inputs.normal(0.0, 0.05))
        size = sizes[asked.params["codec"]] * 0.985**harder
        broken += size > 1.05
        tuner.tell(asked.id, {"time": time, "size": size * level[kind]})
    assert [tuner.recommend({"kind": kind}) for kind in level] == [{"codec": "zstd", "level": 1}] * 3
    assert broken < 10


@pytest.mark.parametrize(("most", "highest"), [(0, 20), (3, 26)])
def test_a_limit_on_a_count_is_used_up_to_its_edge(most, highest):
    """Errors are 0 up to 20 workers, then one more for every two: no more than `most` of them are allowed."""
    knobs, noise = {"workers": Int(1, 64)}, np.random.default_rng(0)
    metrics = {"rate": "max", "errors": Metric("min", max=most)}
    tuner = Tuner(knobs, metrics, default={"workers": 8}, seed=0)
    broken = 0
    for _ in range(100):
        workers = (asked := tuner.ask()).params["workers"]
        errors = max(math.ceil((workers - 20) / 2), 0)
        broken += errors > most
        tuner.tell(asked.id, {"rate": workers * math.exp(noise.normal(0.0, 0.03)), "errors": errors})
    assert highest - 2 <= tuner.recommend()["workers"] <= highest
    assert broken <= 15
    margin = tuner.margins()["errors"]
    assert (margin.limit, margin.kept > 0.9) == (most, True)
    assert margin.bound == most
    assert ("of room" in str(margin)) == (most > 0)  # there is no share of a limit of 0


def test_that_a_metric_is_a_count_is_saved_and_ends_with_the_first_fraction(tmp_path):
    tuner = Tuner({"workers": Int(1, 64)}, {"rate": "max", "errors": Metric("min", max=0)}, default={"workers": 8})
    for errors in (0, 1, 0, 0, 0, 0, 0, 0):
        tuner.tell(tuner.ask().id, {"rate": 1.0, "errors": errors})
    tuner.save(tmp_path / "a.rasp")
    again = Tuner.load(tmp_path / "a.rasp")
    assert again.margins() == tuner.margins()
    before = tuner.margins()["errors"].kept
    tuner.tell(tuner.ask().id, {"rate": 1.0, "errors": 1e-3})
    tuner.save(tmp_path / "b.rasp")
    after = tuner.margins()["errors"]
    assert Tuner.load(tmp_path / "b.rasp").margins()["errors"] == after
    assert before > 0.9
    assert after.kept < 0.7
