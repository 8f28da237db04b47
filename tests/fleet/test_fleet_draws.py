import numpy as np
import pytest

from rasp_tuner.fleet.draws import draws


def test_draws_are_uniform_and_unrelated():
    drawn = draws(3, np.arange(500), np.zeros(500), 40)
    assert drawn.shape == (500, 40)
    assert drawn.min() >= 0.0
    assert drawn.max() < 1.0
    assert np.histogram(drawn, 10, (0.0, 1.0))[0] == pytest.approx(2000, abs=200)
    assert abs(np.corrcoef(drawn[:-1].ravel(), drawn[1:].ravel())[0, 1]) < 0.03
    assert abs(np.corrcoef(drawn[:, :-1].ravel(), drawn[:, 1:].ravel())[0, 1]) < 0.03


def test_draws_depend_on_seed_tuner_and_ask_and_on_nobody_else():
    first = draws(0, np.array([7]), np.array([3]), 5)
    assert (draws(0, np.array([2, 7, 9]), np.array([8, 3, 0]), 5)[1] == first[0]).all()
    for seed, number, ask in ((1, 7, 3), (0, 8, 3), (0, 7, 4), (2**64 - 1, 7, 3)):
        assert not np.isin(draws(seed, np.array([number]), np.array([ask]), 5), first).any()


def test_torch_draws_the_same_bits():
    torch = pytest.importorskip("torch")
    pytest.importorskip("array_api_compat")
    ours = draws(11, np.arange(20.0), np.arange(20.0) * 1e6, 30)
    theirs = draws(11, torch.arange(20.0, dtype=torch.float64), torch.arange(20.0, dtype=torch.float64) * 1e6, 30)
    assert (ours == theirs.numpy()).all()
