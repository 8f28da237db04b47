"""Which scale a metric is easier to predict on: its own, or its logarithm (the choice of Box and Cox).

symbol   shape      meaning
B, n     scalar     tuners; samples of each, of which those in use count
x, u     [B, n, .]  contexts in units of their deviation; points, from -1 to 1
K        [B, n, n]  kernel: quadratics of the point, half shared by all contexts and half own to similar ones
"""

from collections.abc import Callable
from functools import cache

import numpy as np

from rasp_tuner.engine.kernel import native
from rasp_tuner.engine.kernel.namespace import namespace
from rasp_tuner.engine.numbers import Condition, Number, Tensor

NEIGHBOURS = 8  # samples of similar context that count as one situation
LEVEL_VARIANCE = 0.3  # of log(metric) between situations: a deviation of 1.7 times
MOST_WITHIN = 0.6  # the variance of log(metric) within a situation: a deviation of 2.2 times
LEVEL_RATIO = 6.0  # of the whole variance to that within a situation
LIKELIER_FROM_SAMPLES, LIKELIER_NATS = 16, 0.7  # a sample
FALSE_ONE_IN = 6  # the worst values are left out: false measurements would ask for a logarithm
NOISES = (0.01, 0.3)  # of K, the better of which counts
CONTEXT_WIDTH = 0.3  # of contexts that are still similar, in deviations
SHARED = 0.5  # of the kernel that all contexts have in common
TINY = 1e-20
MOST_COMPILED = 64  # samples that compiled code takes
LOOKS = ((32, 4), (128, 16))  # up to so many samples it is looked at one step in so many
LATER_LOOKS, FIRST_LOOK = 64, 16  # after those one step in so many; and from so many samples on


def due(seen: Number) -> Condition:
    """Whether to look at the scale after so many samples: often while little is known."""
    often = seen % LATER_LOOKS == 0
    for most, every in LOOKS:
        often = often | ((seen <= most) & (seen % every == 0))
    return often & (seen >= FIRST_LOOK)


def levels_apart(contexts: Tensor, logs: Tensor, used: Tensor) -> Condition:
    """[B] whether the level of a metric differs by factors between situations, and by far less within one.

    Of samples [B, n] in use, the contexts [B, n, c] and the logarithms [B, n] of the metric.
    """
    xp = namespace(logs)
    if logs.shape[1] < 2 * NEIGHBOURS:
        return xp.any(used & False, axis=1)
    far = xp.where(used[:, None], _gaps(contexts, used), xp.inf)
    alike = xp.argsort(far, axis=2, stable=True)[:, :, :NEIGHBOURS]
    near = _taken(logs, alike)
    within = _mean(xp.var(near, axis=2, correction=1), used)
    total = _mean((logs - _mean(logs, used)[:, None]) ** 2, used)
    apart = (within < MOST_WITHIN) & (total - within > LEVEL_VARIANCE) & (total > LEVEL_RATIO * within)
    return apart & (xp.sum(used, axis=1) >= 2 * NEIGHBOURS)


def easier_in_logs(contexts: Tensor, points: Tensor, logs: Tensor, used: Tensor) -> Condition:
    """[B] whether samples are far likelier if their logarithms [B, n] are predicted instead of the values themselves.

    Of samples [B, n] in use, at points [B, n, d] and in contexts [B, n, c].
    """
    xp, n = namespace(logs), logs.shape[1]
    if n < LIKELIER_FROM_SAMPLES:
        return xp.any(used & False, axis=1)
    if xp is np and n <= MOST_COMPILED and native.available():
        return _compiled(contexts, points, logs, used)
    counts = xp.sum(used, axis=1)
    order = xp.argsort(xp.where(used, logs, xp.inf), axis=1, stable=True)[:, : n - n // FALSE_ONE_IN]
    kept = xp.arange(order.shape[1], device=logs.device)[None] < (counts - counts // FALSE_ONE_IN)[:, None]
    contexts, u, logs = _taken(contexts, order), 2.0 * _taken(points, order) - 1.0, _taken(logs, order)
    like = xp.exp(_gaps(contexts, kept) / (-2.0 * CONTEXT_WIDTH**2 * max(contexts.shape[2], 1)))
    kernel = (SHARED + (1.0 - SHARED) * like) * (1.0 + (u @ u.mT) / u.shape[2]) ** 2
    one = xp.eye(kernel.shape[1], dtype=logs.dtype, device=logs.device)
    kernel = xp.where(kept[:, :, None] & kept[:, None], kernel, one)  # what is left out is alone
    noisy = kernel[:, None] + xp.asarray(NOISES, dtype=logs.dtype, device=logs.device)[:, None, None] * one
    centred = xp.clip(logs - _mean(logs, kept)[:, None], -100.0, 100.0)
    targets = xp.stack([xp.exp(centred), centred], axis=1)
    likelihood = xp.max(_likelihood(xp.linalg.inv(noisy), targets, kept), axis=1)
    return (likelihood[:, 1] - likelihood[:, 0] > LIKELIER_NATS) & (counts >= LIKELIER_FROM_SAMPLES)


def _compiled(contexts: Tensor, points: Tensor, logs: Tensor, used: Tensor) -> Condition:
    """The same by compiled code, which takes a fifth of the time."""
    arrays = [np.ascontiguousarray(array, dtype=np.float64) for array in (contexts, points, logs)]
    arrays += [np.ascontiguousarray(used), np.empty(len(logs), dtype=bool)]
    sizes = (*logs.shape, points.shape[2], contexts.shape[2])
    _function()(*sizes, *(native.address(array) for array in arrays))
    return arrays[-1]


@cache
def _function() -> Callable[..., None]:
    return native.function("rasp_easier_in_logs", [native.NUMBER] * 4 + [native.POINTER] * 5)


def _gaps(contexts: Tensor, used: Tensor) -> Tensor:
    """[B, n, n] squared distances, each dimension in units of its deviation."""
    xp, shown = namespace(contexts), used[:, :, None]
    counts = xp.sum(used, axis=1)[:, None, None]
    x = xp.where(shown, contexts, 0.0)
    x = xp.where(shown, x - xp.sum(x, axis=1, keepdims=True) / counts, 0.0)
    spread = xp.sqrt(xp.sum(x * x, axis=1, keepdims=True) / counts)
    x = x / xp.where(spread > 0.0, spread, 1.0)
    squares = xp.sum(x * x, axis=2)
    return xp.clip(squares[:, :, None] + squares[:, None] - 2.0 * (x @ x.mT), 0.0, None)


def _likelihood(inverse: Tensor, targets: Tensor, used: Tensor) -> Tensor:
    """[B, k, t] mean log density of each of t targets [B, t, n] given all others, up to a constant.

    `inverse` [B, k, n, n] is that of k kernels.
    """
    xp, used = namespace(targets), used[:, None]
    z = xp.where(used, targets - _median(targets, used)[:, :, None], 0.0)
    size = xp.clip(xp.max(xp.abs(z), axis=2), TINY, None)
    own = xp.linalg.diagonal(inverse)
    squares = ((z / size[:, :, None])[:, None] @ inverse) ** 2 / own[:, :, None]
    variance = xp.clip(_median(squares, used[:, None]), TINY, None)  # the median: outliers do not decide
    return 0.5 * _mean(xp.log(own), used)[:, :, None] - 0.5 * xp.log(variance) - xp.log(size)[:, None]


def _taken(values: Tensor, places: Tensor) -> Tensor:
    """The values [B, n, ...] of every tuner that stand at its places [B, ...]."""
    xp = namespace(values)
    tuners, n = values.shape[:2]
    first = n * xp.arange(tuners, device=values.device)
    rows = places + xp.reshape(first, (tuners,) + (1,) * (places.ndim - 1))
    return xp.reshape(values, (tuners * n, *values.shape[2:]))[rows]


def _mean(values: Tensor, used: Tensor) -> Tensor:
    """Over the last axis [..., n], of what is in use."""
    xp = namespace(values)
    mean: Number = xp.sum(xp.where(used, values, 0.0), axis=-1) / xp.sum(used, axis=-1)
    return mean


def _median(values: Tensor, used: Tensor) -> Tensor:
    """Over the last axis [..., n], of what is in use."""
    xp, shape = namespace(values), values.shape
    ranked = xp.reshape(xp.sort(xp.where(used, values, xp.inf), axis=-1), (-1, shape[-1]))
    counts = xp.reshape(xp.broadcast_to(xp.sum(used, axis=-1), shape[:-1]), (-1,))
    rows = xp.arange(len(ranked), device=values.device)
    return xp.reshape(0.5 * (ranked[rows, (counts - 1) // 2] + ranked[rows, counts // 2]), shape[:-1])
