"""The same cells on a real Ray cluster of two nodes on this machine give the same losses."""

import csv
import warnings

import pytest
from typer.testing import CliRunner

from rasp_lab.bench.runner import run
from rasp_lab.bench.runner.protocol import plan
from rasp_tuner.cli import app
from tests.later import Later

ray = Later("ray", "ray is an extra of its own: pip install 'rasp-lab[ray]'")

AGENTS = ["static", "random", "cma-es", "rasp"]


@pytest.fixture(scope="module")
def cluster():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own start-up code leaves sockets and files to the collector
        made = Later("ray.cluster_utils").Cluster(
            initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
        )
        made.add_node(num_cpus=1)
        made.wait_for_nodes()
        yield made
        made.shutdown()


def losses(path):
    with path.open() as file:
        return [(r["domain"], r["agent"], r["seed"], r["step"], r["loss"], r["regret"]) for r in csv.DictReader(file)]


@pytest.mark.filterwarnings("ignore")  # the same
def test_a_cluster_of_two_nodes_gives_the_losses_of_one_process(tmp_path, cluster):
    cells = list(plan(["A2_Adversarial_Offcentre", "H1_Recurring_Regimes"], AGENTS, 1, 25))
    here = losses(run.run_plan(cells, tmp_path / "here"))
    words = ("bench", "--suite", "beyond", "--agents", ",".join(AGENTS), "--seeds", "1", "--horizon", "25")
    there = ("--engine", "ray", "--address", cluster.address, "--out", str(tmp_path / "ray"))
    result = CliRunner().invoke(app, [*words, *there])
    assert result.exit_code == 0, result.stderr
    assert losses(tmp_path / "ray" / "steps.csv") == here
    assert not ray.is_initialized()  # what was started here was stopped here


@pytest.mark.filterwarnings("ignore")
def test_both_nodes_do_work(tmp_path, cluster, monkeypatch):
    def where(cell, _own):  # inside the test, so that it travels to workers that cannot import this file
        """The node that ran a cell, in place of its losses; slow enough that one node cannot take them all."""
        import time

        import ray

        time.sleep(1.0)
        return cell, f"{ray.get_runtime_context().get_node_id()}\n"

    monkeypatch.setattr(run, "run_cell", where)
    cells = list(plan(["5_Switching_LQR"], ["static"], 8, 1))
    steps = run.run_plan(cells, tmp_path, engine="ray", address=cluster.address)
    nodes = steps.read_text().removeprefix(run.HEADER).split()
    assert len(nodes) == len(cells)
    assert set(nodes) == {node["NodeID"] for node in living(cluster)}


def living(cluster):
    ray.init(address=cluster.address, log_to_driver=False)
    try:
        return [node for node in ray.nodes() if node["Alive"]]
    finally:
        ray.shutdown()
