import numpy as np
import pytest
from fleet_worlds import Worlds, fleet, teach, tuner

from rasp_tuner import InvalidValue, SnapshotError, SnapshotFileError, Tuner
from rasp_tuner.fleet import Fleet


def test_a_loaded_fleet_goes_on_bit_for_bit(tmp_path):
    many, worlds = fleet(5, share=True, guard=0.2), Worlds(5)
    teach(many, worlds, 12, failures=0.2)
    many.add(2)
    many.ask(np.zeros((7, 2)))
    many.tell(None, [6], failed=[True])
    many.save(tmp_path / "fleet.rasp")
    loaded = Fleet.load(tmp_path / "fleet.rasp")
    assert repr(loaded) == repr(many)
    loaded.save(tmp_path / "again.rasp")
    assert (tmp_path / "again.rasp").read_bytes() == (tmp_path / "fleet.rasp").read_bytes()
    for taught in (many, loaded):
        taught.tell({"ms": np.full(6, 11.0)}, np.arange(6))
    assert (teach(many, Worlds(7, 1), 10) == teach(loaded, Worlds(7, 1), 10)).all()
    assert many.add().tolist() == loaded.add().tolist()
    assert (teach(many, Worlds(8, 2), 3) == teach(loaded, Worlds(8, 2), 3)).all()


def test_only_what_is_in_use_is_written(tmp_path):
    many = fleet(20)
    teach(many, Worlds(20), 3)
    many.save(tmp_path / "fleet.rasp")
    assert (tmp_path / "fleet.rasp").stat().st_size < 0.25 * 20 * many.memory_per_tuner


def test_progress_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("rasp_tuner.fleet.fleet_file.BLOCK_TUNERS", 2)
    told = []
    fleet(5).save(tmp_path / "fleet.rasp", progress=lambda done, total: told.append((done, total)))
    assert told == [(2, 5), (4, 5), (5, 5)]
    assert len(Fleet.load(tmp_path / "fleet.rasp", progress=True)) == 5
    assert "5/5 tuners" in capsys.readouterr().err


def test_foreign_and_broken_files_are_refused(tmp_path):
    path = tmp_path / "fleet.rasp"
    fleet(3).save(path)
    whole = path.read_bytes()
    endless = whole[:8] + (2**63).to_bytes(8, "little") + whole[16:]  # the length of the first frame
    broken = (whole[:-1], whole[:100], whole + b"x", whole[:-40] + bytes(40), endless)
    for data in (b"", b"hello", tuner().to_bytes(), *broken):
        path.write_bytes(data)
        with pytest.raises(SnapshotError):
            Fleet.load(path)
    with pytest.raises(SnapshotFileError):
        Fleet.load(tmp_path / "nothing")
    with pytest.raises(SnapshotFileError):
        fleet(1).save(tmp_path / "no" / "folder")
    with pytest.raises(SnapshotFileError):
        fleet(1).save("")


def test_a_tuner_leaves_and_comes_back():
    many, worlds = fleet(3), Worlds(3)
    teach(many, worlds, 15, failures=0.1)
    contexts = worlds.contexts()
    best = many.recommend(contexts)
    one = many[1]
    assert isinstance(one, Tuner)
    assert one.learned == 15
    assert one.recommend(contexts[1]) == pytest.approx({name: float(best[name][1]) for name in best})
    many[2] = one
    again = many.recommend(contexts[[1, 1]], [1, 2])
    assert all(values[0] == values[1] for values in again.values())
    for _ in range(3):
        suggestion = one.ask(contexts[0])
        one.tell(suggestion.id, {"ms": 10.0})
    many[1] = one
    assert many.learned.tolist() == [15, 18, 15]
    assert many[1].to_bytes() == many[1].to_bytes()


def test_what_waits_leaves_and_comes_back():
    many = fleet(2)
    teach(many, Worlds(2), 4)
    suggested = many.ask(np.ones((2, 2)))
    one = many[0]
    (waiting,) = one.pending
    assert waiting.params == pytest.approx({name: float(v[0]) for name, v in suggested.params.items()}, rel=1e-12)
    one.ask(np.zeros(2))
    many[0] = one  # the latest waits
    many.tell({"ms": [9.0, 9.0]})
    one.tell(one.pending[-1].id, {"ms": 9.0})
    contexts = np.ones((2, 2))
    best = many.recommend(contexts)
    assert one.recommend(contexts[0]) == pytest.approx({name: float(best[name][0]) for name in best})


def test_a_tuner_that_has_learned_nothing_joins_and_is_saved(tmp_path):
    many = fleet(2)
    many[1] = tuner()
    many.save(tmp_path / "fleet")
    assert Fleet.load(tmp_path / "fleet").learned.tolist() == [0, 0]


def test_early_failures_leave_and_come_back():
    many = fleet(1)
    many.ask(np.zeros((1, 2)))
    many.tell(failed=[True])
    one = many[0]
    assert one.ask([0.0, 0.0]).params != tuner().ask([0.0, 0.0]).params  # the default failed
    many.add()
    many[1] = one
    many.tell({"ms": [4.0]}, 1)
    assert many.learned.tolist() == [1, 2]
    assert many[1].learned == 2


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"metrics": {"ms": "max"}}, "metrics"), ({"context": 3}, "context"), ({"guard": 0.5}, "guard")],
)
def test_a_tuner_of_another_kind_is_refused(changes, field):
    many = fleet(1)
    with pytest.raises(InvalidValue, match=f"another {field} than the fleet"):
        many[0] = tuner(**changes)
    with pytest.raises(InvalidValue, match="another default"):
        many[0] = tuner(default={"a": 0.1, "b": 0.0, "c": 1.0})
    with pytest.raises(InvalidValue, match=r"quadratic=True"):
        many[0] = tuner(preset="default")
    with pytest.raises(InvalidValue, match="only a Tuner"):
        many[0] = "tuner"


def test_tuners_of_a_fleet_are_merged_and_none_counts_twice(tmp_path):
    many, rng = fleet(4), np.random.default_rng(0)
    for _ in range(5):
        many.ask(rng.normal(size=(4, 2)))
        many.tell({"ms": 1.0 + rng.random(4)})
    one = many[0]
    one.merge(many[1])
    assert one.learned == 10
    many[0] = one
    many.save(tmp_path / "fleet")
    for now in (many, Fleet.load(tmp_path / "fleet")):
        for other in (now[0], now[1]):
            with pytest.raises(InvalidValue, match="both tuners hold samples"):
                now[0].merge(other)
        now.ask(rng.normal(size=(4, 2)))
        now.tell({"ms": np.ones(4)})
        both = now[0]
        both.merge(now[2])
        assert both.learned == 17
    many.remove([0])
    assert many._lineages == {}
