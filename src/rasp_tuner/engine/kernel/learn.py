"""Learning of B tuners: one sample each, scored, remembered and fitted. Symbols as in state.py."""

from typing import Any

import numpy as np

from rasp_tuner.engine.kernel.shared import OPTIMUM_VARIANCE, constants
from rasp_tuner.engine.kernel.state import Dims, E, L

LOCAL_ODDS = 3.0  # nats against every local expert but the blind one


def start(dims: Dims) -> dict[str, Any]:
    """What of a tuner that knows nothing is not zero: for `state.blank`."""
    scores = np.zeros(E)
    scores[1:L] = -LOCAL_ODDS
    return {
        "distance": np.array([2.0, 6.0]),
        "level_variance": 4.0,
        "shape": np.ones(dims.knobs),
        "location_variance": np.full(dims.knobs, OPTIMUM_VARIANCE),
        "scores": scores,
        "noises": constants(np, "cpu").noise_prior,
        "weights": np.ones(dims.columns),
        "window_weights": 1.0,
        "unit": 1.0,
    }
