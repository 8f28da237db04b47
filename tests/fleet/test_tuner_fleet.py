"""Fleets whose knobs are no batch of quadratics: each tuner is a Tuner."""

import numpy as np
import pytest

from rasp_tuner import (
    Bool,
    Categorical,
    Category,
    Float,
    Int,
    InvalidSpace,
    InvalidValue,
    Metric,
    PowerOfTwo,
    SnapshotError,
    SnapshotFileError,
    Tuner,
)
from rasp_tuner.fleet import Fleet
from rasp_tuner.fleet.ray import RayFleet

SPACE = {
    "codec": Categorical(["raw", "lz", "zip"]),
    "threads": Int(1, 8),
    "level": Int(1, 9, when={"codec": ["lz", "zip"]}),
    "x": Float(0.0, 1.0),
}
DEFAULT = {"codec": "raw", "threads": 2, "x": 0.5}
BEST = np.array(["lz", "zip", "lz", "zip"])


def fleet(size=4, **changes):
    settings = {"space": SPACE, "metrics": {"ms": "min"}, "context": ["qps"], "default": DEFAULT, "seed": 3}
    return Fleet(**settings | changes, size=size)


def test_columns_of_powers_of_two_are_numbers_and_can_be_told_again():
    many = fleet(2, space={"block": PowerOfTwo(1, 64), "codec": SPACE["codec"]}, default={"block": 8, "codec": "raw"})
    suggested = many.ask({"qps": [1.0, 2.0]})
    assert np.log2(suggested.params["block"]).tolist() == [3.0, 3.0]
    many.tell({"ms": [1.0, 2.0]})
    many.observe({"qps": [1.0, 2.0]}, suggested.params, {"ms": [1.0, 2.0]})
    assert many.learned.tolist() == [2, 2]


def cost(params, which=slice(None)):
    return {"ms": 10.0 + 5.0 * (params["codec"] != BEST[which]) + abs(params["threads"] - 6.0)}


def teach(many, steps):
    for step in range(steps):
        suggested = many.ask({"qps": np.full(4, float(step % 2))})
        many.tell(cost(suggested.params))
    return many


def test_each_tuner_finds_what_is_best_for_it():
    many = teach(fleet(), 60)
    known = many.recommend({"qps": [0.0] * 4})
    assert known["codec"].tolist() == BEST.tolist()
    assert known["threads"].tolist() == [6.0] * 4
    assert many.learned.tolist() == [60] * 4
    assert repr(many).startswith("<Fleet of 4 tuners device='cpu' knobs=['codec', 'threads', 'level', 'x'] learned=240")


def test_a_tuner_of_a_fleet_is_a_tuner():
    """Taken out, asked and told by itself, and brought back, it goes on as one that stayed."""
    one, other = teach(fleet(), 12), teach(fleet(), 12)
    alone = one[2]
    for step in range(12):
        qps = {"qps": [float(step % 3)]}
        there = other.ask(qps, 2)
        other.tell(cost(there.params, [2]), 2)
        here = alone.ask({"qps": float(step % 3)})
        assert {name: column[0] for name, column in there.params.items() if column[0] is not None} == here.params
        alone.tell(here.id, {"ms": float(cost(there.params, [2])["ms"][0])})
    one[2] = alone
    assert one[2].to_bytes() == other[2].to_bytes()
    assert one.learned.tolist() == [12, 12, 24, 12]


def test_what_one_tuner_gets_does_not_depend_on_who_else_is_asked():
    together, apart = teach(fleet(), 8), teach(fleet(), 8)
    wanted = together.ask({"qps": [1.0] * 4})
    for i in (3, 0, 2, 1):
        assert apart.ask({"qps": [1.0]}, i).points.tolist() == wanted.points[i : i + 1].tolist()


def test_a_knob_that_does_not_exist_is_none():
    many = fleet()
    suggested = many.ask({"qps": [0.0] * 4})
    assert suggested.params["codec"].tolist() == ["raw"] * 4
    assert suggested.params["level"].tolist() == [None] * 4
    params = {"codec": ["lz", "raw"], "threads": [1, 8], "level": [4, None], "x": [0.1, 0.9]}
    many.observe({"qps": [0.0, 1.0]}, params, {"ms": [3.0, 9.0]}, [0, 1])
    assert many.learned.tolist() == [1, 1, 0, 0]
    with pytest.raises(InvalidValue, match=r"level.*for tuner 1"):
        many.observe({"qps": [0.0, 1.0]}, params | {"level": [4, 5]}, {"ms": [3.0, 9.0]}, [0, 1])


def test_constraints_limits_and_kinds_of_context():
    many = fleet(constraints=["threads * x <= 4"])
    for _ in range(25):
        suggested = many.ask({"qps": [0.0] * 4})
        assert (suggested.params["threads"] * suggested.params["x"] <= 4.0).all()
        many.tell(cost(suggested.params))
    limited = Fleet(
        {"x": Float(0.0, 1.0)},
        {"ms": "min", "memory": Metric("min", max=3.0)},
        {"region": Category()},
        {"x": 0.5},
        size=2,
    )
    suggested = limited.ask({"region": ["eu", "us"]})
    limited.tell({"ms": [1.0, 2.0], "memory": [2.0, 2.5]})
    assert limited.learned.tolist() == [1, 1]
    with pytest.raises(InvalidValue, match=r"contexts\['region'\] must hold 2 values"):
        limited.ask({"region": ["eu"]})


def test_failures_stops_and_asking_again():
    many = teach(fleet(), 30)
    first = many.ask({"qps": [0.0] * 4})
    second = many.ask({"qps": [1.0, 1.0]}, [0, 1])
    assert many.pending.tolist() == [True] * 4
    assert len(many[0].pending) == 1
    assert len(first) == 4
    many.tell(
        {"ms": [np.nan, float(second.stop[1])]}, [0, 1],
        failed=[True, False], stopped=[False, bool(np.isfinite(second.stop[1]))],
    )  # fmt: skip
    assert many.pending.tolist() == [False, False, True, True]
    with pytest.raises(InvalidValue, match="tuner 0 has no suggestion that waits"):
        many.tell({"ms": [1.0] * 4})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: f.tell({"ms": [1.0, np.nan, 2.0]}, [2, 0, 1]), r"metrics\['ms'\] must be finite.*for tuner 0"),
        (lambda f: f.tell({"s": [1.0] * 4}), "metrics lacks"),
        (lambda f: f.tell({"ms": [1.0] * 4}, control={"ms": [1.0] * 4}), "takes no control"),
        (lambda f: f.ask({"qps": [0.0, np.inf, 0.0, 0.0]}), "must be finite.*for tuner 1"),
        (lambda f: f.ask(None), "contexts are missing"),
        (lambda f: f.ask({"qps": [0.0]}, 9), "which must hold positions from 0 to 3, got 9"),
        (lambda f: f.observe({"qps": [0.0]}, 3, {"ms": [1.0]}, 0), "params must be columns by name"),
        (lambda f: f.observe({"qps": [0.0]}, {"codec": ["lz"]}, {"ms": [1.0]}, 0), "for tuner 0"),
        (lambda f: f.__setitem__(0, Tuner({"x": Float(0, 1)}, {"ms": "min"})), "another space than the fleet"),
        (lambda f: f.__setitem__(0, "tuner"), "only a Tuner can become"),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(call, message, tmp_path):
    many = teach(fleet(), 3)
    many.ask({"qps": [0.0] * 4})
    many.save(tmp_path / "before")
    with pytest.raises(InvalidValue, match=message):
        call(many)
    many.save(tmp_path / "after")
    assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()


def test_bad_settings_are_refused():
    with pytest.raises(InvalidSpace, match="device must be 'cpu' where a knob has steps or choices"):
        fleet(device="cuda")
    with pytest.raises(InvalidSpace, match=r"default\['threads'\]"):
        fleet(default=DEFAULT | {"threads": 9})
    with pytest.raises(InvalidSpace, match="share must be True or False"):
        fleet(share=1)
    with pytest.raises(InvalidSpace, match=r"a RayFleet takes knobs that always exist.*space\['on'\]"):
        RayFleet({"on": Bool()}, {"ms": "min"})


def test_saved_it_goes_on_bit_for_bit(tmp_path):
    many = teach(fleet(), 10)
    many.remove([1])
    assert many.add(2).tolist() == [3, 4]
    waiting = many.ask({"qps": [0.0] * 5})
    seen = []
    many.save(tmp_path / "fleet", progress=lambda *done_of: seen.append(done_of))
    assert seen[-1] == (5, 5)
    again = Fleet.load(tmp_path / "fleet")
    assert again.pending.tolist() == many.pending.tolist() == [True] * 5
    for one in (many, again):
        one.tell({"ms": np.arange(5.0) + len(waiting)})
    assert again.ask({"qps": [1.0] * 5}).points.tolist() == many.ask({"qps": [1.0] * 5}).points.tolist()
    again.save(tmp_path / "again")
    many.save(tmp_path / "fleet")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "fleet").read_bytes()
    assert [again[i].to_bytes() for i in (3, 4)] != [again[3].to_bytes()] * 2, "new tuners have draws of their own"


def test_a_damaged_file_is_an_error(tmp_path):
    file = tmp_path / "fleet"
    teach(fleet(), 2).save(file)
    whole = file.read_bytes()
    for cut in (4, 12, 200, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:cut])
        with pytest.raises(SnapshotError):
            Fleet.load(file)
    for place in range(8, len(whole), 997):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
        with pytest.raises(SnapshotError):
            Fleet.load(file)
    file.write_bytes(whole + b"more")
    with pytest.raises(SnapshotError, match="goes on after its end"):
        Fleet.load(file)
    with pytest.raises(SnapshotFileError, match="cannot read"):
        Fleet.load(tmp_path / "none")
