"""What one tuner's choice leaves to chance, drawn from its own generator."""

import numpy as np

from rasp_tuner.core.numerics import Array
from rasp_tuner.engine.kernel.choose import draws_needed
from rasp_tuner.engine.kernel.state import Dims, State

SOURCES = ("predicted optimum", "best tried", "probe near it", "first probe")  # of a choice, by its number


def draws_for(dims: Dims, state: State, rng: np.random.Generator) -> Array:
    """Uniform in [0, 1), one for each knob and candidate; a first probe is one knob and one way."""
    if state.count[0] >= 2.0:
        return rng.random(draws_needed(dims))
    draws = np.zeros(draws_needed(dims))
    draws[0] = (rng.integers(dims.knobs) + 0.5) / dims.knobs
    draws[1] = 0.5 * (rng.choice([-1.0, 1.0]) > 0.0)
    return draws
