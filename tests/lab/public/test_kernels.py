"""Scores of searches in a kernel's space, and Kernel Tuner's strategies on a small one."""

from importlib.util import find_spec

import numpy as np
import pytest

from rasp_lab.public import kernels, protocols
from rasp_lab.public.cells import LATER, OURS, Cell

pytestmark = pytest.mark.filterwarnings("ignore:Kernel .* lists do not match:UserWarning")  # it counts one in ()
needs_kernel_tuner = pytest.mark.skipif(
    find_spec("kernel_tuner") is None, reason="an extra of its own: pip install 'rasp-tuner[kernel-tuner]'"
)


def test_the_optimum_at_once_scores_one_and_worse_than_random_below_zero(folder):
    data = kernels.kernel(folder)
    order = data.time[0].argsort()
    assert kernels.score(data, "G1", order.tolist()) == 1.0
    assert kernels.score(data, "G1", order[::-1].tolist()) < 0.0


def test_random_search_scores_about_zero():
    """Where values are as far apart as their ranks; elsewhere the value of the mean rank is not the mean value."""
    rng, n = np.random.default_rng(0), 2000
    time = np.arange(1.0, n + 1.0)[None]
    data = kernels.Kernel(["x"], np.arange(n)[:, None], ["G1"], time, np.ones((1, n)), {"G1": (5, 100)})
    scores = [kernels.score(data, "G1", rng.permutation(n).tolist()) for _ in range(300)]
    assert abs(np.mean(scores)) < 0.1


def test_who_takes_long_to_evaluate_has_found_less(folder):
    data, order = kernels.kernel(folder), list(range(18))
    slow = data._replace(seconds=np.where(np.arange(data.time.shape[1]) == 0, 5.0, 1.0) * np.ones((2, 1)))
    assert kernels.score(slow, "G2", order) < kernels.score(data, "G2", order)


def test_the_baseline_has_the_expected_rank():
    time = np.arange(1.0, 10.0)
    assert kernels.baseline(time, np.array([1.0, 4.0, 1000.0])).tolist() == [5.0, 2.0, 1.0]


@needs_kernel_tuner
@pytest.mark.parametrize("agent", [OURS, LATER, "genetic algorithm", kernels.TUNED, "random sample"])
def test_every_strategy_runs_in_simulation(folder, agent):
    cell = Cell("kernels", "G2", agent, 0)
    (row,) = protocols.run(cell, folder)
    assert protocols.run(cell, folder) == [row]
    assert row["score"] <= 1.0
    assert 1 <= row["evaluations"] <= 15  # 1.25 times 12


@needs_kernel_tuner
def test_other_gpus_come_before_the_last_one(folder, monkeypatch):
    ran, evaluated = [], kernels.evaluated
    monkeypatch.setattr(kernels, "evaluated", lambda *given: ran.append((given[1], given[4])) or evaluated(*given))
    protocols.run(Cell("kernels", "G2", LATER, 0), folder)
    assert ran == [("G1", 4), ("G2", 15)]
