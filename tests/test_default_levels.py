"""What the default is expected to give, metric by metric: near the truth, and without a trace in the tuner."""

import numpy as np
import pytest

from rasp_tuner import Float, Int, Metric, Tuner

DEFAULT = {"x": 2, "y": 0.5}
TUNERS = {
    "smooth": {"space": {"x": Float(0.0, 10.0), "y": Float(0.0, 1.0)}},
    "mixed": {"space": {"x": Int(0, 10), "y": Float(0.0, 1.0)}},
    "limited": {
        "space": {"x": Float(0.0, 10.0), "y": Float(0.0, 1.0)},
        "metrics": {"ms": "min", "rps": Metric("max"), "mb": Metric("min", max=900.0)},
    },
}


def tuner_of(kind):
    settings = dict(TUNERS[kind])
    metrics = settings.pop("metrics", {"ms": "min", "rps": Metric("max"), "mb": Metric("min", scale="log")})
    return Tuner(settings.pop("space"), metrics, ["load"], default=DEFAULT, **settings)


def truth(x, load):
    return {"ms": 20.0 + (x - 7.0) ** 2 + 2.0 * load, "rps": 300.0 - 5.0 * abs(x - 4.0), "mb": 100.0 * np.exp(0.1 * x)}


def play(tuner, steps, look=False):
    rng, asked = np.random.default_rng(0), []
    for step in range(steps):
        load = float(rng.choice([1.0, 9.0]))
        s = tuner.ask({"load": load})
        if look and step % 5 == 4:
            tuner.default_levels({"load": 1.0})
        asked.append(s.params)
        told = truth(s.params["x"], load)
        tuner.tell(s.id, {name: value * (1.0 + 0.01 * rng.normal()) for name, value in told.items()})
    return asked


@pytest.mark.parametrize("kind", TUNERS)
def test_each_metric_is_in_its_own_unit_and_looking_changes_no_bit(kind):
    plain, watched = tuner_of(kind), tuner_of(kind)
    assert plain.default_levels({"load": 1.0}) == {}
    assert play(plain, 50) == play(watched, 50, look=True)
    assert plain.to_bytes() == watched.to_bytes()
    for load in (1.0, 9.0):
        levels = plain.default_levels({"load": load})
        assert list(levels) == ["ms", "rps", "mb"]
        for name, value in truth(DEFAULT["x"], load).items():
            assert levels[name].low <= levels[name].mean <= levels[name].high
            assert levels[name].mean == pytest.approx(value, rel=0.25), name


def test_with_one_metric_it_is_what_is_expected_of_the_default():
    tuner = Tuner({"x": Float(0.0, 10.0)}, {"rps": "max"}, default={"x": 2.0})
    for value in (10.0, 11.0, 12.0, 10.5):
        tuner.tell(tuner.ask().id, {"rps": value})
    assert tuner.default_levels()["rps"].mean == -tuner.expected_of_default()
