"""Beliefs of several engines in one call of the kernel on arrays: NumPy's cost for each small array is paid once.

The compiled kernel gains nothing by it: there a belief costs less than to hand it to a thread (docs/SERVICE.md).
"""

from collections.abc import Iterable
from typing import TypeGuard

import numpy as np

from rasp_tuner.core.numerics import Array
from rasp_tuner.engine.engine import Engine
from rasp_tuner.engine.kernel.state import SKETCH_DIMENSIONS, State
from rasp_tuner.engine.quadratic.family import QuadraticFamily
from rasp_tuner.engine.quadratic.one import ArraysBelief, ArraysOne

FEWEST = 4  # engines of one shape, from which on to copy their states into one costs less than it saves


def can_share(engine: object) -> TypeGuard[Engine]:
    """Whether what it believes can be computed with that of others: by the kernel on arrays, and by nothing else."""
    return _arrays_of(engine) is not None


def believe_together(asks: Iterable[tuple[Engine, Array]]) -> None:
    """Have engines, each named once, keep what they believe in a context [d_c]: bit for bit what they compute alone."""
    shapes: dict[tuple[object, bytes, float], list[tuple[Engine, ArraysOne, Array]]] = {}
    for engine, context in asks:
        one = _arrays_of(engine)
        if one is not None:
            # as many slots, too: a product over more of them, even of zeros, is summed in another order
            shape = (one.dims, engine.default.tobytes(), float(one.state.count[0]))
            shapes.setdefault(shape, []).append((engine, one, context))
    for alike in shapes.values():
        if len(alike) >= FEWEST:
            states = [dict(one.state.items()) for _, one, _ in alike]
            together = State(**{name: np.concatenate([state[name] for state in states]) for name in states[0]})
            beliefs = alike[0][1].kernel.believe(together, np.array([context for _, _, context in alike]))
            for i, (engine, one, context) in enumerate(alike):
                own = one.kernel.some(beliefs, slice(i, i + 1))
                engine.keep(context, ArraysBelief(one, own))


def _arrays_of(engine: object) -> ArraysOne | None:
    if not isinstance(engine, Engine) or len(engine.gate.families) > 1:
        return None
    family = engine.gate.families[0]
    if not isinstance(family, QuadraticFamily) or not family.samples or not isinstance(family.one, ArraysOne):
        return None
    # a long context is projected by a product in which rows are tuners: BLAS sums many otherwise than one
    return family.one if family.dims.context <= SKETCH_DIMENSIONS else None
