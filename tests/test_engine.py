"""The engine of preset `default`, through the public Tuner."""

import numpy as np
import pytest

from rasp_tuner import Float, Tuner

TWO = {"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)}


@pytest.mark.parametrize("corner", [0.0, 1.0])
def test_the_first_probe_leaves_a_default_at_the_edge(corner):
    for seed in range(8):
        tuner = Tuner(TWO, {"loss": "min"}, default={"x": corner, "y": corner}, seed=seed)
        first = tuner.ask()
        tuner.tell(first.id, {"loss": 1.0})
        assert tuner.ask().params != first.params
