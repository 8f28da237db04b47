"""What a fleet in shards needs, without a cluster: who lives where, what shards have in common, what is missing."""

import builtins

import numpy as np
import pytest
from fleet_worlds import DEFAULT, METRICS, SPACE, Worlds, fleet, teach

from rasp_tuner import InvalidSpace, InvalidValue, MissingExtra, SnapshotFileError
from rasp_tuner.fleet import prior as priors
from rasp_tuner.fleet.device import Device
from rasp_tuner.fleet.ray import Books, RayFleet
from rasp_tuner.fleet.shard import Shard, ShardFleet
from rasp_tuner.fleet.shard_group import shards_in


def shards_of(whole, count):
    """The tuners of a fleet in shards, in which each keeps its number."""
    numbers = np.arange(len(whole))
    made = []
    for shard in range(count):
        one = ShardFleet(whole._plan, True, Device("cpu"))
        rows = numbers[numbers % count == shard]
        one.join(ShardFleet.packed(whole, rows), len(whole), {})
        made.append(one)
    return made


@pytest.mark.parametrize("most", [512, 10])
def test_the_prior_of_shards_is_that_of_the_whole_fleet_in_any_order(most, monkeypatch):
    monkeypatch.setattr(priors, "MOST_PRIOR_TUNERS", most)
    whole = fleet(30, share=True)
    teach(whole, Worlds(30), 12)
    expected = priors.combine([ShardFleet.summary(whole)])
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


def test_every_tuner_is_found_in_its_shard():
    def own(*numbers):
        column = np.array(numbers)
        return {"number": column, "learned": 10 * column, "waiting": column > 4, "guided": column < 4, "issued": 8}

    books = Books([own(3), own(1), own(2, 5)])  # of seven, after 0, 4 and 6 left
    assert books.number.tolist() == [1, 2, 3, 5]
    assert (books.learned.tolist(), books.waiting.tolist()) == ([10, 20, 30, 50], [False, False, False, True])
    assert books.issued == 8
    found = {part.shard: (part.rows.tolist(), part.at.tolist()) for part in books.parts(np.array([3, 0, 1]))}
    assert found == {1: ([0], [1]), 2: ([1, 0], [0, 2])}
    whole = [part.which for part in books.parts(np.arange(4))]
    assert whole == [None] * 3  # nothing to keep


def shard_at(folder, every=None):
    return Shard(fleet()._plan.to_bytes(), True, "cpu", 1, (folder, 0, 2), every)


def same_tuners(one, other, done):
    packed, again = (shard.run(done, [], ("packed", (np.arange(4),))).given for shard in (one, other))
    assert packed.keys() == again.keys()
    return all((packed[name] == again[name]).all() for name in packed)


def test_a_snapshot_and_the_changes_since_then_make_the_same_shard(tmp_path):
    worlds, changes, one = Worlds(4), [("add_numbered", (np.array([0, 2, 4, 6]),))], shard_at(tmp_path / "new")
    answer = one.run(0, changes)
    for step in range(14):
        contexts = worlds.contexts()
        changes.append(("ask", (contexts, None)))
        answer = one.run(answer.done, changes[-1:], save=step == 8)
        changes.append(("tell", (worlds.metrics(answer.given.points, contexts), None)))
        answer = one.run(answer.done, changes[-1:])
    assert (answer.done, answer.saved) == (29, 18)
    other = shard_at(tmp_path / "new")
    lacking = other.run(29, [])
    assert (lacking.done, lacking.given) == (18, None)
    assert other.run(10, changes[10:]).done == 29  # those that it made already count once
    assert same_tuners(one, other, 29)
    (tmp_path / "file").touch()
    assert "exists" in shard_at(tmp_path / "file").run(0, [], save=True).unsaved


def test_a_snapshot_is_written_after_so_many_tells_and_never_between_an_ask_and_its_answer(tmp_path):
    shard, saved = shard_at(tmp_path, every=2), []
    calls = [("add_numbered", (np.array([0]),))]
    calls += [("ask", (np.zeros((1, 2)), None)), ("tell", ({"ms": np.ones(1)}, None))] * 3
    calls += [("ask", (np.zeros((1, 2)), None))] * 5
    for number, call in enumerate(calls):
        saved.append(shard.run(number, [call]).saved)
    assert saved == [0, 0, 3, 3, 3, 3, 7, 7, 7, 7, 7, 11]
    assert [path.name for path in tmp_path.iterdir()] == ["shard-00000-of-00002-000000000011.rasp"]


def test_what_a_change_raises_is_said_and_counts_as_done(tmp_path):
    shard = shard_at(tmp_path)
    answer = shard.run(0, [("add_numbered", (np.array([0]),)), ("tell", ({"ms": np.ones(1)}, None))])
    assert isinstance(answer.error, InvalidValue)
    assert shard.run(answer.done, [("ask", (np.zeros((1, 2)), None))]).done == 3


def test_a_folder_holds_the_snapshots_of_one_whole_fleet(tmp_path):
    assert shards_in(tmp_path / "none") == 0
    for name in ("shard-00000-of-00002-000000000007", "shard-00000-of-00002-000000000012", "shard-0-of-x"):
        (tmp_path / f"{name}.rasp").touch()
    with pytest.raises(SnapshotFileError, match="one whole fleet"):
        shards_in(tmp_path)
    (tmp_path / "shard-00001-of-00002-000000000003.rasp").touch()
    assert shards_in(tmp_path) == 2


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
