"""The same cells on a real Ray cluster of two nodes on this machine give the same losses."""

import csv
import warnings

import pytest

from rasp_tuner.bench import run
from rasp_tuner.bench.protocol import plan

ray = pytest.importorskip("ray", reason="ray is an extra of its own: pip install 'rasp-tuner[ray]'")


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own start-up code leaves sockets and files to the collector
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        made.add_node(num_cpus=1)
        made.wait_for_nodes()
        yield made
        made.shutdown()


def losses(path):
    with path.open() as file:
        return [(r["domain"], r["agent"], r["seed"], r["step"], r["loss"], r["regret"]) for r in csv.DictReader(file)]


@pytest.mark.filterwarnings("ignore")  # the same
def test_a_cluster_of_two_nodes_gives_the_losses_of_one_process(tmp_path, cluster):
    cells = list(plan(["7_Regime_Switch_Simple"], ["static", "random", "cma-es", "rasp-paper"], 2, 25))
    here = losses(run.run_plan(cells, tmp_path / "here"))
    heard = []
    there = losses(run.run_plan(cells, tmp_path / "ray", engine="ray", address=cluster.address, finished=heard.append))
    assert there == here
    assert sorted(cell.key for cell in heard) == sorted(cell.key for cell in cells)
    assert not ray.is_initialized()  # what was started here was stopped here
