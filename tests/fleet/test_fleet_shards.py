"""What a fleet in shards needs, without a cluster: who lives where, what shards have in common, what is missing."""

import builtins

import numpy as np
import pytest
from fleet_worlds import DEFAULT, METRICS, SPACE, Worlds, fleet, teach

from rasp_tuner import InvalidSpace, InvalidValue, MissingExtra, SnapshotFileError
from rasp_tuner.fleet import prior as priors
from rasp_tuner.fleet.ray import RayFleet
from rasp_tuner.fleet.roster import Roster
from rasp_tuner.fleet.shard import Shard, ShardSettings
from rasp_tuner.fleet.shard_group import found_in


def shards_of(whole, count):
    """The tuners of a fleet in shards, in which each keeps its number."""
    numbers = np.arange(len(whole))
    made = []
    for shard in range(count):
        one = Shard()
        one.restore(ShardSettings("cpu", 1, whole._plan.to_bytes()), None, [])
        rows = numbers[numbers % count == shard]
        one.join(Shard.packed(whole, rows), len(whole), {})
        made.append(one)
    return made


@pytest.mark.parametrize("most", [512, 10])
def test_the_prior_of_shards_is_that_of_the_whole_fleet_in_any_order(most, monkeypatch):
    monkeypatch.setattr(priors, "MOST_PRIOR_TUNERS", most)
    whole = fleet(30, share=True)
    teach(whole, Worlds(30), 12)
    expected = priors.combine([Shard.summary(whole)])
    assert expected.known == 1.0
    for count in (2, 7):
        summaries = [one.summary() for one in shards_of(whole, count)]
        assert all(len(summary.number) <= most for summary in summaries)
        for parts in (summaries, summaries[::-1]):
            found = priors.combine(parts)
            assert all((vars(found)[name] == array).all() for name, array in vars(expected).items())


def test_shards_too_small_to_learn_a_prior_learn_one_together():
    whole = fleet(9, share=True)
    teach(whole, Worlds(9), 12)
    summaries = [one.summary() for one in shards_of(whole, 3)]
    assert [float(priors.combine([summary]).known) for summary in summaries] == [0.0] * 3
    assert priors.combine(summaries).known == 1.0


def test_a_tuner_stays_in_its_shard():
    roster = Roster(3)
    roster.add(7)
    assert [part.rows.tolist() for part in roster.parts(np.arange(7))] == [[0, 1, 2], [0, 1], [0, 1]]
    roster.remove(np.array([0, 4]))
    assert roster.number.tolist() == [1, 2, 3, 5, 6]
    assert {shard: own.tolist() for shard, own in roster.new_numbers(2).items()} == {1: [7], 2: [8]}
    roster.add(2)
    found = {part.shard: (part.rows.tolist(), part.at.tolist()) for part in roster.parts(np.array([6, 0, 1]))}
    assert found == {1: ([0], [1]), 2: ([2, 0], [0, 2])}
    whole = [part.which for part in roster.parts(np.arange(7))]
    assert whole == [None] * 3  # nothing to keep


def test_a_snapshot_and_the_changes_since_then_make_the_same_shard(tmp_path):
    settings = ShardSettings("cpu", 1, fleet()._plan.to_bytes())
    worlds, changes = Worlds(4), [("add_numbered", (np.array([0, 2, 4, 6]),))]
    one, path = Shard(), str(tmp_path / "new" / "shard.rasp")
    one.restore(settings, None, changes)
    for step in range(14):
        contexts = worlds.contexts()
        points = one.ask(contexts).points
        metrics = worlds.metrics(points, contexts)
        one.tell(metrics)
        changes += [("ask", (contexts, None)), ("tell", (metrics, None))]
        if step == 8:
            assert one.write_snapshot(path) is None
            changes = []
    other = Shard()
    other.restore(settings, path, changes)
    every = np.arange(4)
    packed, again = one.packed(every), other.packed(every)
    assert all((packed[name] == again[name]).all() for name in packed)
    one.delete_snapshot(path)
    with pytest.raises(SnapshotFileError, match="a folder that all of them reach"):
        Shard().restore(settings, path, [])
    (tmp_path / "file").touch()
    assert "exists" in one.write_snapshot(str(tmp_path / "file" / "shard.rasp"))


def test_of_each_shard_the_latest_snapshot_counts(tmp_path):
    assert found_in(tmp_path / "none") == []
    for name in ("shard-00000-of-00002-000000000007", "shard-00000-of-00002-000000000012", "shard-0-of-x"):
        (tmp_path / f"{name}.rasp").touch()
    with pytest.raises(SnapshotFileError, match="one whole fleet"):
        found_in(tmp_path)
    (tmp_path / "shard-00001-of-00002-000000000003.rasp").touch()
    assert [member.done for member in found_in(tmp_path)] == [12, 3]
    assert found_in(tmp_path)[0].snapshot.endswith("12.rasp")


def test_without_ray_it_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def without(name, *given):
        if name == "ray":
            raise ModuleNotFoundError("No module named 'ray'", name="ray")
        return real(name, *given)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"pip install 'rasp-tuner\[ray\]'"):
        RayFleet(SPACE, METRICS, 2, DEFAULT, 4)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"shards": 0}, "shards must be"),
        ({"snapshot_every": 0}, "snapshot_every must be"),
        ({"device": 1}, "device must be"),
        ({"size": -1}, "size must be"),
        ({"share": "yes"}, "share must be"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(wrong, message):
    with pytest.raises(InvalidSpace, match=message):
        RayFleet(**{"space": SPACE, "metrics": METRICS, "size": 4, **wrong})


def test_a_folder_of_another_fleet_is_refused(tmp_path):
    with pytest.raises(InvalidValue, match="no snapshots"):
        RayFleet.resume(tmp_path)
    (tmp_path / "shard-00000-of-00001-000000000007.rasp").touch()
    with pytest.raises(InvalidValue, match="resume goes on with them"):
        RayFleet(SPACE, METRICS, folder=tmp_path)
