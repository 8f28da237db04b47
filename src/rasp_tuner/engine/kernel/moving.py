"""The moving optimum of B tuners: a bowl whose optimum moves linearly with the context; Gauss-Newton on a window.

symbol   shape        meaning
x        [B, 1 + r]   a one, and the leading principal components of the context, standardised
"""

from functools import lru_cache

import numpy as np

from rasp_tuner.engine.kernel.namespace import namespace
from rasp_tuner.engine.kernel.state import Dims, State, Tensor

FARTHEST_COMPONENT = 3.0  # deviations: one absurd context must not throw the optimum out


@lru_cache
def sketch(dims: Dims, xp: Tensor, device: Tensor) -> Tensor:
    """[c, w] the random projection of long contexts: always the same."""
    drawn = np.random.default_rng(7).normal(size=(dims.context, dims.width)) / np.sqrt(dims.width)
    return xp.asarray(drawn, dtype=xp.float64, device=device)


def reduced(dims: Dims, contexts: Tensor) -> Tensor:
    """[B, w] contexts, projected if they are long."""
    if dims.context == dims.width:
        return contexts
    return contexts @ sketch(dims, namespace(contexts), contexts.device)


def encoded(dims: Dims, state: State, contexts: Tensor) -> Tensor:
    """x [B, 1 + r] of contexts [B, c]."""
    return components(state, reduced(dims, contexts)[:, None])[:, 0]


def components(state: State, contexts: Tensor) -> Tensor:
    """x [B, n, 1 + r] of reduced contexts [B, n, w]."""
    xp = namespace(contexts)
    x = (contexts - state.centre[:, None]) @ state.encode
    one = xp.ones((*x.shape[:2], 1), dtype=x.dtype, device=x.device)
    return xp.concat([one, xp.clip(x, -FARTHEST_COMPONENT, FARTHEST_COMPONENT)], axis=2)
