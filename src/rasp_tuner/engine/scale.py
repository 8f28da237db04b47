"""Which scale a metric is easier to predict on: its own, or its logarithm (the choice of Box and Cox).

symbol   shape      meaning
B, n     scalar     tuners; samples of each, of which those in use count
x, u     [B, n, .]  contexts in units of their metric (core/context_metric.py); points, from -1 to 1
K        [B, n, n]  kernel: quadratics of the point, half shared by all contexts and half own to similar ones
"""

from collections.abc import Callable
from functools import cache

import numpy as np

from rasp_tuner.core.numerics import Array
from rasp_tuner.engine.kernel import native
from rasp_tuner.engine.kernel.masks import Flags
from rasp_tuner.engine.kernel.state import Places
from rasp_tuner.engine.scalar_or_batch import Condition, Number

NEIGHBOURS = 8  # samples of similar context that count as one situation
LEVEL_VARIANCE = 0.3  # of log(metric) between situations: a deviation of 1.7 times
MOST_WITHIN = 0.6  # the variance of log(metric) within a situation: a deviation of 2.2 times
LEVEL_RATIO = 6.0  # of the whole variance to that within a situation
LIKELIER_FROM_SAMPLES, LIKELIER_NATS = 16, 0.7  # a sample
FALSE_ONE_IN = 6  # the worst values are left out: false measurements would ask for a logarithm
NOISES = (0.01, 0.3)  # of K, the better of which counts
CONTEXT_WIDTH = 0.3  # of contexts that are nearly the same, in deviations: a wider one asks for logarithms in vain
SHARED = 0.5  # of the kernel that all contexts have in common
TINY = 1e-20  # of a size or variance whose logarithm is taken
MOST_COMPILED = 64  # samples that compiled code takes
LOOKS = ((32, 4), (128, 16))  # up to so many samples it is looked at one step in so many
LATER_LOOKS, FIRST_LOOK = 64, 16  # after those one step in so many; and from so many samples on


def due(seen: Number) -> Condition:
    """Whether to look at the scale after so many samples: often while little is known."""
    often = seen % LATER_LOOKS == 0
    for most, every in LOOKS:
        often = often | ((seen <= most) & (seen % every == 0))
    return often & (seen >= FIRST_LOOK)


def levels_apart(contexts: Array, logs: Array, used: Flags) -> Flags:
    """[B] whether the level of a metric differs by factors between situations, and by far less within one.

    Of samples [B, n] in use, the contexts [B, n, c] in units of their metric, and the logarithms [B, n] of the values.
    """
    if logs.shape[1] < 2 * NEIGHBOURS:
        return np.zeros(len(used), dtype=bool)
    far = np.where(used[:, None], _gaps(np.where(used[:, :, None], contexts, 0.0)), np.inf)
    alike = np.argsort(far, axis=2, stable=True)[:, :, :NEIGHBOURS]
    near = _taken(logs, alike)
    within = _mean(np.var(near, axis=2, correction=1), used)
    total = _mean((logs - _mean(logs, used)[:, None]) ** 2, used)
    apart: Flags = (within < MOST_WITHIN) & (total - within > LEVEL_VARIANCE) & (total > LEVEL_RATIO * within)
    apart &= used.sum(axis=1) >= 2 * NEIGHBOURS
    return apart


def easier_in_logs(contexts: Array, points: Array, logs: Array, used: Flags) -> Flags:
    """[B] whether samples are far likelier if their logarithms [B, n] are predicted instead of the values themselves.

    Of samples [B, n] in use, at points [B, n, d] and in contexts [B, n, c] in units of their metric.
    """
    n = logs.shape[1]
    if n < LIKELIER_FROM_SAMPLES:
        return np.zeros(len(used), dtype=bool)
    if n <= MOST_COMPILED and native.available():
        return _compiled(contexts, points, logs, used)
    counts = np.sum(used, axis=1)
    order = np.argsort(np.where(used, logs, np.inf), axis=1, stable=True)[:, : n - n // FALSE_ONE_IN]
    kept = np.arange(order.shape[1])[None] < (counts - counts // FALSE_ONE_IN)[:, None]
    contexts, u, logs = _taken(contexts, order), 2.0 * _taken(points, order) - 1.0, _taken(logs, order)
    like = np.exp(_gaps(np.where(kept[:, :, None], contexts, 0.0)) / (-2.0 * CONTEXT_WIDTH**2))
    kernel = (SHARED + (1.0 - SHARED) * like) * (1.0 + (u @ u.mT) / u.shape[2]) ** 2
    one = np.eye(kernel.shape[1])
    kernel = np.where(kept[:, :, None] & kept[:, None], kernel, one)  # what is left out is alone
    noisy = kernel[:, None] + np.asarray(NOISES)[:, None, None] * one
    centred = np.clip(logs - _mean(logs, kept)[:, None], -100.0, 100.0)
    targets = np.stack([np.exp(centred), centred], axis=1)
    inverse: Array = np.linalg.inv(noisy)  # type: ignore[assignment]  # NumPy's types know less
    likelihood = np.max(_likelihood(inverse, targets, kept), axis=1)
    easier: Flags = likelihood[:, 1] - likelihood[:, 0] > LIKELIER_NATS
    easier &= counts >= LIKELIER_FROM_SAMPLES
    return easier


def _compiled(contexts: Array, points: Array, logs: Array, used: Flags) -> Flags:
    """The same by compiled code, which takes a fifth of the time."""
    arrays = [np.ascontiguousarray(array, dtype=np.float64) for array in (contexts, points, logs)]
    flags = np.ascontiguousarray(used), np.empty(len(logs), dtype=bool)
    sizes = (logs.shape[1], points.shape[2], contexts.shape[2])
    ways = [(native.address(array), array.strides[0]) for array in (*arrays, *flags)]

    def some(start: int, stop: int) -> None:
        _function()(stop - start, *sizes, *(begin + start * step for begin, step in ways))

    native.in_parts(some, len(logs))
    return flags[1]


@cache
def _function() -> Callable[..., None]:
    return native.function("rasp_easier_in_logs", [native.NUMBER] * 4 + [native.POINTER] * 5)


def _gaps(x: Array) -> Array:
    """[B, n, n] squared distances between contexts."""
    squares = np.sum(x * x, axis=2)
    gaps: Array = np.clip(squares[:, :, None] + squares[:, None] - 2.0 * (x @ x.mT), 0.0, None)
    return gaps


def _likelihood(inverse: Array, targets: Array, used: Flags) -> Array:
    """[B, k, t] mean log density of each of t targets [B, t, n] given all others, up to a constant.

    `inverse` [B, k, n, n] is that of k kernels.
    """
    used = used[:, None]
    z = np.where(used, targets - _median(targets, used)[:, :, None], 0.0)
    size = np.clip(np.max(np.abs(z), axis=2), TINY, None)
    own = np.linalg.diagonal(inverse)
    squares = ((z / size[:, :, None])[:, None] @ inverse) ** 2 / own[:, :, None]
    variance = np.clip(_median(squares, used[:, None]), TINY, None)  # the median: outliers do not decide
    density: Array = 0.5 * _mean(np.log(own), used)[:, :, None] - 0.5 * np.log(variance) - np.log(size)[:, None]
    return density


def _taken(values: Array, places: Places) -> Array:
    """The values [B, n, ...] of every tuner that stand at its places [B, ...]."""
    tuners, n = values.shape[:2]
    first = n * np.arange(tuners)
    rows = places + np.reshape(first, (tuners,) + (1,) * (places.ndim - 1))
    return np.reshape(values, (tuners * n, *values.shape[2:]))[rows]


def _mean(values: Array, used: Flags) -> Array:
    """Over the last axis [..., n], of what is in use."""
    mean: Array = np.sum(np.where(used, values, 0.0), axis=-1) / np.sum(used, axis=-1)
    return mean


def _median(values: Array, used: Flags) -> Array:
    """Over the last axis [..., n], of what is in use."""
    shape = values.shape
    ranked = np.reshape(np.sort(np.where(used, values, np.inf), axis=-1), (-1, shape[-1]))
    counts = np.reshape(np.broadcast_to(np.sum(used, axis=-1), shape[:-1]), (-1,))
    rows = np.arange(len(ranked))
    return np.reshape(0.5 * (ranked[rows, (counts - 1) // 2] + ranked[rows, counts // 2]), shape[:-1])
