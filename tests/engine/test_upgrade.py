import numpy as np
import pytest

from rasp_tuner.engine.kernel.pooled_prior import noise_variances
from rasp_tuner.engine.quadratic.upgrade import upgraded


def test_of_three_rival_noises_the_best_says_score_noise_and_covariance():
    scores = np.full((5, 3), -40.0)
    scores[:, 1] = -20.0
    scores[3] = [-30.0, -9.0, 0.0]  # the leader: very noisy
    scores[4] = [-1.0, -8.0, -30.0]
    state = {
        "evidence/scores": scores.ravel(),
        "moving/covariance": np.arange(3.0)[:, None, None] * np.ones((3, 2, 2)),
        "moving/units": np.array([7.0, 5.0]),
    }
    now = upgraded(state)
    assert now["evidence/scores"].tolist() == [-20.0, -20.0, -20.0, 0.0, -1.0]
    assert noise_variances(now["noise/scores"][None])[0] == pytest.approx([1e-2, 1e-2, 1e-2, 0.3, 1e-4], rel=0.5)
    assert now["moving/covariance"].tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert now["moving/unit"].tolist() == [5.0]


def test_a_state_of_today_stays_as_it_is():
    state = {"evidence/scores": np.zeros(5), "noise/scores": np.zeros((5, 9))}
    assert upgraded(state) == state
