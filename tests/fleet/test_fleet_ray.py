"""A fleet in shards, on a Ray cluster of two nodes on this machine, does what one fleet does; lost shards come back."""

import logging
import os
import signal
import time
import warnings

import numpy as np
import pytest
from fleet_worlds import DEFAULT, METRICS, SPACE, Worlds, fleet, teach

from rasp_tuner import InvalidValue, Tuner
from rasp_tuner.fleet import Fleet
from rasp_tuner.fleet.ray import RayFleet
from tests.later import Later

ray = Later("ray", "ray is an extra of its own: pip install 'rasp-tuner[ray]'")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Ray leaves sockets and files to the collector


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        head = {"num_cpus": 1, "include_dashboard": False, "_system_config": {"health_check_period_ms": 500}}
        # a node that is gone is seen sooner
        made = Later("ray.cluster_utils").Cluster(initialize_head=True, head_node_args=head)
        made.add_node(num_cpus=1)
        made.wait_for_nodes()
        ray.init(address=made.address, log_to_driver=False)
        yield made
        ray.shutdown()
        made.shutdown()


def in_shards(size=7, **changes):
    settings = {"space": SPACE, "metrics": METRICS, "context": 2, "default": DEFAULT, "size": size, "share": False}
    return RayFleet(**{**settings, **changes})


def actors(taught):
    return [member.actor for member in taught._shards._members]


def lose(actor):
    """End its process; Ray starts another one."""
    ray.kill(actor, no_restart=False)


class Deadly:
    """Ends the process that it is sent to."""

    def __reduce__(self):
        return os._exit, (1,)


def where(actor, what):
    """The process or the node of an actor."""

    def tell(_shard, what=what):
        import os

        import ray

        return os.getpid() if what == "process" else ray.get_runtime_context().get_node_id()

    return ray.get(actor.__ray_call__.remote(tell))


def same(taught, other, seed=9, steps=3):
    """Both go on alike."""
    assert taught.learned.tolist() == other.learned.tolist()
    assert taught.pending.tolist() == other.pending.tolist()
    points = [teach(one, Worlds(len(other), seed), steps) for one in (taught, other)]
    np.testing.assert_allclose(*points, rtol=0.0, atol=1e-9)


def test_it_does_what_one_fleet_does():
    one = fleet(7)
    with in_shards() as many:
        assert repr(many) == "<RayFleet of 7 tuners in 2 shards knobs=['a', 'b', 'c'] learned=0 pending=0>"
        assert len({where(actor, "node") for actor in actors(many)}) == 2
        points = [teach(taught, Worlds(7), 12, failures=0.2) for taught in (one, many)]
        np.testing.assert_allclose(*points, rtol=0.0, atol=1e-9)
        contexts = Worlds(7).contexts()
        for rows in (None, [5, 1, 2], 3, slice(0, 0)):
            best = [
                taught.recommend(contexts[slice(None) if rows is None else rows].reshape(-1, 2), rows)
                for taught in (one, many)
            ]
            for name in SPACE:
                np.testing.assert_allclose(best[0][name], best[1][name], rtol=1e-9, atol=1e-9)
        for taught in (one, many):
            taught.remove([2, 3])
            assert taught.add(3).tolist() == [5, 6, 7]
            teach(taught, Worlds(8), 2, np.array([6, 0, 5]))
            params = {name: [knob.from_unit(0.3)] * 2 for name, knob in SPACE.items()}
            taught.observe(contexts[:2], params, {"ms": [9.0, 9.5]}, [7, 1])
            taught.ask(contexts[:2], [4, 1])
        same(many, one)


def test_what_is_wrong_changes_no_shard():
    with in_shards(4) as many:
        with pytest.raises(InvalidValue, match="tuner 2 has no suggestion"):
            many.tell({"ms": [1.0]}, 2)
        many.ask(np.zeros((4, 2)))
        with pytest.raises(InvalidValue, match="must be finite, got nan for tuner 3"):
            many.tell({"ms": [1.0, 1.0, 1.0, np.nan]})
        assert many.learned.tolist() == [0] * 4
        many.tell({"ms": [1.0, 1.0, 1.0, 1.0]})


@pytest.mark.nightly
def test_a_killed_actor_comes_back_and_nothing_is_lost(caplog, tmp_path):
    one = fleet(7)
    with in_shards(snapshot_every=3, folder=tmp_path) as many:
        for taught in (one, many):
            teach(taught, Worlds(7), 8)
        os.kill(where(actors(many)[1], "process"), signal.SIGKILL)
        with caplog.at_level(logging.WARNING, "rasp_tuner.fleet"):
            same(many, one)
        assert [record.args for record in caplog.records] == [(1, 2, 4)]  # asks and tells since the snapshot
        assert all(len(member.changes) <= 3 * 3 for member in many._shards._members)
        contexts = Worlds(7).contexts()
        suggested = [taught.ask(contexts).points for taught in (one, many)]
        np.testing.assert_allclose(*suggested, rtol=0.0, atol=1e-9)
        lose(actors(many)[0])  # between an ask and its tell
        for taught in (one, many):
            taught.tell({"ms": np.arange(7.0) + 5.0})
        same(many, one)
    for shard in range(2):
        assert len(list(tmp_path.glob(f"shard-0000{shard}-*.rasp"))) == 1


@pytest.mark.nightly
def test_an_actor_that_dies_at_every_attempt_is_not_waited_for_for_ever():
    one = fleet(4)
    with in_shards(4) as many:
        for taught in (one, many):
            teach(taught, Worlds(4), 3)
        with pytest.raises(ray.exceptions.RayActorError):
            many._shards.query("packed", {1: (Deadly(),)})
        same(many, one)


@pytest.mark.nightly
def test_a_call_that_was_interrupted_takes_effect_with_the_next(monkeypatch):
    one, interrupted = fleet(4), []
    with in_shards(4) as many:
        for taught in (one, many):
            teach(taught, Worlds(4), 3)
            taught.ask(np.zeros((4, 2)))

        def get(reference, get=ray.get):
            interrupted.append(reference)
            if len(interrupted) == 3:  # after those of the books: what shard 0 answers
                raise KeyboardInterrupt
            return get(reference)

        monkeypatch.setattr("ray.get", get)
        with pytest.raises(KeyboardInterrupt):
            many.tell({"ms": np.arange(4.0)})
        monkeypatch.undo()
        lose(actors(many)[1])
        one.tell({"ms": np.arange(4.0)})
        same(many, one)


@pytest.mark.nightly
def test_a_snapshot_that_cannot_be_written_costs_only_memory(tmp_path, caplog):
    one = fleet(4)
    folder, away = tmp_path / "snapshots", tmp_path / "away"
    with in_shards(4, snapshot_every=1, folder=folder) as many:
        folder.rename(away)
        folder.touch()
        for taught in (one, many):
            teach(taught, Worlds(4), 3)
        folder.unlink()
        away.rename(folder)
        assert {record.levelname for record in caplog.records} == {"ERROR"}
        assert "changes are kept in memory" in caplog.records[0].message
        lose(actors(many)[0])
        same(many, one)


@pytest.mark.nightly
def test_what_a_lost_driver_told_is_in_the_snapshots(tmp_path):
    one, many = fleet(7), in_shards(snapshot_every=1, folder=tmp_path)
    for taught in (one, many):
        teach(taught, Worlds(7), 6)
        taught.remove(6)
    many.close()
    with pytest.raises(InvalidValue, match="resume"):
        in_shards(folder=tmp_path)
    with RayFleet.resume(tmp_path, snapshot_every=5) as again:
        assert again.add().tolist() == [6] == one.add().tolist()
        same(again, one)


@pytest.mark.nightly
def test_what_tuners_of_one_shard_know_reaches_a_new_one_on_another():
    one = fleet(40, share=True)
    with in_shards(40, share=True) as many:
        even = np.arange(0, 40, 2)  # one shard
        for taught in (one, many):
            teach(taught, Worlds(40, own=0.03), 15, even)
        contexts = np.zeros((1, 2))
        first = [taught.ask(contexts, 7).points for taught in (one, many)]
        np.testing.assert_allclose(*first, rtol=0.0, atol=1e-9)
        assert (np.abs(first[1] - 0.6) < 0.1).all()  # the usual optimum, not the default
        lose(actors(many)[1])
        for taught in (one, many):
            taught.tell({"ms": [10.0]}, 7)
        same(many, one)


def test_save_and_load_with_another_number_of_shards_and_as_one_fleet(tmp_path):
    one = fleet(7, share=True)
    with in_shards(share=True) as many:
        for taught in (one, many):
            teach(taught, Worlds(7), 9, failures=0.3)
            taught.remove(2)
            taught.add()
            taught.ask(np.zeros((7, 2)))
        many.save(tmp_path / "many.rasp")
        one.save(tmp_path / "one.rasp")
    loaded = Fleet.load(tmp_path / "many.rasp")
    with RayFleet.load(tmp_path / "many.rasp", shards=3) as again:
        assert len(again._shards) == 3
        again.save(tmp_path / "again.rasp")
        assert (tmp_path / "again.rasp").read_bytes() == (tmp_path / "many.rasp").read_bytes()
        lose(actors(again)[0])
        same(again, Fleet.load(tmp_path / "one.rasp"))
    same(loaded, one)


@pytest.mark.nightly
def test_one_of_its_tuners_leaves_and_comes_back():
    one = fleet(4)
    with in_shards(4) as many:
        for taught in (one, many):
            teach(taught, Worlds(4), 6)
            tuner = taught[3]
            assert isinstance(tuner, Tuner)
            tuner.tell(tuner.ask([0.0, 0.0]).id, {"ms": 10.0})
            taught[0] = tuner
        with pytest.raises(InvalidValue, match="only a Tuner"):
            many[0] = "tuner"
        lose(actors(many)[0])
        same(many, one)


@pytest.mark.nightly
def test_a_removed_node_takes_nothing_with_it(cluster):
    one = fleet(7)
    with in_shards(snapshot_every=3) as many:
        for taught in (one, many):
            teach(taught, Worlds(7), 8)
        removed = next(iter(cluster.worker_nodes))
        assert removed.node_id in {where(actor, "node") for actor in actors(many)}
        cluster.remove_node(removed, allow_graceful=False)
        try:
            while removed.node_id in {node["NodeID"] for node in ray.nodes() if node["Alive"]}:
                time.sleep(0.1)
            same(many, one)
            assert [where(actor, "node") for actor in actors(many)] == [cluster.head_node.node_id] * 2
        finally:
            cluster.add_node(num_cpus=1)
            cluster.wait_for_nodes()
