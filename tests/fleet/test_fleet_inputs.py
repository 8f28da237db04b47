"""What a fleet takes and refuses."""

import numpy as np
import pytest
from fleet_worlds import DEFAULT, SPACE, Worlds, fleet, teach

from rasp_tuner import InvalidSpace, InvalidValue, Metric

HALVES = dict.fromkeys("ab", [0.5] * 4)


def test_contexts_by_name_and_metrics_as_lists():
    many = fleet(2, context=["qps", "kb"])
    suggested = many.ask({"kb": [1.0, 2.0], "qps": np.array([10, 20])})
    assert set(suggested.params) == set(SPACE)
    assert {name: values.tolist() for name, values in suggested.params.items()} == {
        name: [value] * 2 for name, value in DEFAULT.items()
    }
    many.tell({"ms": [3.0, 4.0]})
    assert repr(many) == "<Fleet of 2 tuners device='cpu' knobs=['a', 'b', 'c'] learned=2 pending=0>"
    assert len(many.ask([[1.0, 2.0]], 1)) == 1
    assert many.pending.tolist() == [False, True]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: f.tell({"ms": [1.0] * 4}), "tuner 3 has no suggestion that waits"),
        (lambda f: f.tell({"ms": [1.0, np.nan, 2.0]}, [2, 0, 1]), r"metrics\['ms'\] must be finite.*for tuner 0"),
        (lambda f: f.tell({"ms": [1.0, 2.0]}, [0, 1, 2]), r"metrics\['ms'\] must have the shape \[3\], got \[2\]"),
        (lambda f: f.tell({"s": [1.0] * 3}, [0, 1, 2]), "metrics lacks"),
        (lambda f: f.tell(None, [0, 1, 2]), "metrics must be a mapping"),
        (lambda f: f.tell({"ms": [1.0] * 3}, [0, 1, 2], failed=[0, 1, 1]), "failed must hold 3 times True or False"),
        (lambda f: f.ask(np.zeros((4, 3))), r"contexts must have the shape \[4, 2\], got \[4, 3\]"),
        (lambda f: f.ask([[0.0, np.inf]] * 4), "contexts must be finite.*for tuner 0"),
        (lambda f: f.ask(None), "contexts are missing"),
        (lambda f: f.ask({"x": [0.0] * 4}), "contexts have no names here"),
        (lambda f: f.ask("many"), "contexts must be an array of numbers"),
        (lambda f: f.ask([["1", "2"]] * 4), "contexts must be an array of numbers"),
        (lambda f: f.tell({"ms": [1.0, "2", 3.0]}, [0, 1, 2]), r"metrics\['ms'\] must be an array of numbers"),
        (lambda f: f.tell({"ms": np.array([1, 2, "3"], dtype=object)}, [0, 1, 2]), "must be an array of numbers"),
        (lambda f: f.ask(np.zeros((1, 2)), 4), "which must hold positions from 0 to 3, got 4"),
        (lambda f: f.ask(np.zeros((1, 2)), -1), "which must hold positions from 0 to 3, got -1"),
        (lambda f: f.ask(np.zeros((2, 2)), [1, 1]), "which must name a tuner once in a call, got 1 twice"),
        (lambda f: f.ask(np.zeros((2, 2)), [0.5, 1]), "which must be None, a position"),
        (lambda f: f.recommend(np.zeros((2, 2)), "all"), "which must be None, a position"),
        (lambda f: f.remove(9), "which must hold positions"),
        (lambda f: f.add(0), "n must be a whole number from 1"),
        (
            lambda f: f.observe(np.zeros((4, 2)), {**HALVES, "c": [1, 1, -1, 1]}, {"ms": [1.0] * 4}),
            r"params\['c'\] must be a finite number from 0.01 to 100.0, got -1.0 for tuner 2",
        ),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(call, message, tmp_path):
    many = fleet()
    teach(many, Worlds(4), 3)
    many.ask(np.zeros((3, 2)), [0, 1, 2])
    many.save(tmp_path / "before")
    with pytest.raises(InvalidValue, match=message):
        call(many)
    many.save(tmp_path / "after")
    assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()


def test_a_log_scale_takes_positive_metrics():
    many = fleet(2, metrics={"ms": Metric("min", scale="log")})
    many.ask(np.zeros((2, 2)))
    with pytest.raises(InvalidValue, match=r"must be above 0, since its scale is 'log'; got -1.0 for tuner 1"):
        many.tell({"ms": [1.0, -1.0]})
    many.tell({"ms": [1.0, -1.0]}, failed=[False, True])
    assert many.learned.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"device": "tpu"}, "device must be 'cpu', 'cuda'"),
        ({"share": 1}, "share must be True or False"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"size": -1}, "size must be a whole number"),
        ({"space": {}}, "space must map"),
        ({"metrics": {"ms": "low"}}, "must be 'min', 'max' or a Metric"),
        ({"default": {"a": 3.0, "b": 0.0, "c": 1.0}}, r"default\['a'\]"),
        ({"default": None, "guard": 0.1}, "measured against what runs today"),
    ],
)
def test_bad_settings_are_refused(changes, message):
    with pytest.raises(InvalidSpace, match=message):
        fleet(**changes)
