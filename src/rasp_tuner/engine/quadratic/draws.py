"""What one tuner's choice leaves to chance, drawn from its own generator."""

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.engine.kernel.state import Dims, State

SOURCES = ("predicted optimum", "best tried", "probe near it", "first probe")  # of a choice, by its number


def draw(rng: np.random.Generator, dims: Dims, state: State, draws: Array) -> None:
    """Fill `draws`: uniform in [0, 1), one for each knob and candidate; a first probe is one knob and one way."""
    if state.count[0] >= 2.0:
        rng.random(out=draws)
        return
    draws[:] = 0.0
    draws[0] = (rng.integers(dims.knobs) + 0.5) / dims.knobs
    draws[1] = 0.5 * (rng.choice([-1.0, 1.0]) > 0.0)
