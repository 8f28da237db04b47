"""How likely a loss is under Gaussian processes of parameters and time, with and without a context.

symbol   shape    meaning
y        [n]      loss in the order of time, standardised
u        [n, d]   points relative to their median, in units of half the box
K        [n, n]   covariance without noise; only ratios matter, for the scale of what is explained is profiled out
D        [n, n]   squared distances between contexts, in units of their spread
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.contexts.distance import pairwise_squares

RIVAL_NOISES = np.array([1e-4, 1e-3, 1e-2, 1e-1, 1.0])  # rival noise variances
QUIETER_RATIOS = np.array(
    [1.0, 0.1, 0.01]
)  # with a context, some of what was noise may be none: times the noise without
QUADRATIC_WEIGHT = 10.0  # weight of a quadratic
ROUGH_WEIGHTS = (1.0, 10.0)  # rival weights of any smooth shape besides
WIDTHS = (1.0, 0.1, 0.02)  # and of its squared length, in units of the median squared distance between points
LEVEL_DRIFT_WEIGHTS = (0.0, 0.1, 0.5)  # rival weights of a level that drifts
SHAPE_DRIFT_WEIGHTS = (0.0, 1.0, 10.0)  # and of a shape that drifts: the optimum may move by itself
CONSTANT_SHARE = 0.3  # constant against linear and quadratic part of the bowl
MEMORY_STEPS = 15.0  # steps in which a drift forgets
CONTEXT_WEIGHTS = np.array([1.0, 10.0])  # rival weights of what the context changes
TESTED_RATIOS = (np.array([1.0]), np.array([1.0, 0.01]))  # by which shifts are compared: the others hardly ever win
CHANGED_SHARES = (0.3, 0.1)  # share of roughness, and of a plain shift of the level, in what the context changes


@dataclass(frozen=True, slots=True)
class Blind:
    """The likeliest model that does not look at the context: a bowl, roughness, a level and a shape that drift."""

    K: Array  # [n, n]
    shape: Array  # [n, n] the part that depends on the parameters, with mean variance 1: a context may change it
    noise: float
    score: float  # log likelihood


def fit_blind(points: Array, y: Array) -> Blind:
    """The likeliest blind model of y [n] at points [n, d] of the unit box, in the order of time."""
    drift = drifting(len(y))
    best: Blind | None = None
    for bowl, rough, weight in _shapes(points):
        shape = _unit(bowl + CHANGED_SHARES[0] * min(weight, 1.0) * rough + CHANGED_SHARES[1])
        for level, turn in product(LEVEL_DRIFT_WEIGHTS, SHAPE_DRIFT_WEIGHTS):
            K = 1.0 + QUADRATIC_WEIGHT * bowl + weight * rough + (level + turn * shape) * drift
            scores = log_likelihoods([K], RIVAL_NOISES, y)[0]
            i = int(scores.argmax())
            if best is None or scores[i] > best.score:
                best = Blind(K, shape, float(RIVAL_NOISES[i]), float(scores[i]))
    if best is None:
        raise RuntimeError("no model was tried")
    return best


def gain(blind: Blind, D: Array, y: Array) -> float:
    """Nats by which y is likelier if the shape of the loss may differ between contexts at distances D; at least 0."""
    scores = [
        float(log_likelihoods([K], blind.noise * ratios, y).max())
        for K, ratios in zip(_seeing(blind, D), TESTED_RATIOS, strict=True)
    ]
    return max(*scores, blind.score) - blind.score


def explained(blind: Blind, D: Array, y: Array) -> float:
    """Share of the blind model's squared errors that the context takes away, each sample forecast from the others."""
    Ks, noises = _seeing(blind, D), blind.noise * QUIETER_RATIOS
    at = np.unravel_index(int(log_likelihoods(Ks, noises, y).argmax()), (len(Ks), len(noises)))
    before, after = errors_left(blind.K, blind.noise, y), errors_left(Ks[at[0]], float(noises[at[1]]), y)
    return max(1.0 - float(after @ after) / max(float(before @ before), 1e-300), 0.0)


def explained_by_points(points: Array, x: Array) -> Array:
    """[n, k] what the parameters tell of each column of x [n, k], each sample forecast from the others."""
    bowl, rough = shape_of(points)
    K = 1.0 + bowl + QUADRATIC_WEIGHT * rough
    n = len(x)
    scores, errors = np.empty((len(RIVAL_NOISES), x.shape[1])), np.empty((len(RIVAL_NOISES), *x.shape))
    for i, noise in enumerate(RIVAL_NOISES):  # all columns share the matrix
        V = K + noise * np.eye(n)
        inverse = np.linalg.inv(V)
        solved = inverse @ x
        misfit = np.maximum((x * solved).sum(axis=0), 1e-300)
        scores[i] = -0.5 * (n * np.log(misfit / n) + np.linalg.slogdet(V)[1])
        errors[i] = solved / np.diag(inverse)[:, None]
    best = scores.argmax(axis=0)
    return x - errors[best, :, np.arange(x.shape[1])].T


def errors_left(K: Array, noise: float, y: Array) -> Array:
    """[n] errors of forecasting each sample from all others."""
    inverse = np.linalg.inv(K + noise * np.eye(len(y)))
    errors: Array = (inverse @ y) / np.diag(inverse)
    return errors


def log_likelihoods(Ks: Sequence[Array], noises: Array, y: Array) -> Array:
    """[m, r] of y under m covariances [n, n] and noise variances [r], at the likeliest scale of y."""
    n = len(y)
    V, scores = np.zeros((n + 1, n + 1)), np.empty((len(Ks), len(noises)))
    V[n, :n] = y  # the last row of the factor is then L^-1 y
    diagonal = V.reshape(-1)[:: n + 2]
    for i, K in enumerate(Ks):
        V[:n, :n] = K
        own = np.diag(K)
        for j, noise in enumerate(noises):
            diagonal[:n] = own + noise
            diagonal[n] = 2.0 * float(y @ y) / float(noises.min()) + 1.0  # more than y' V^-1 y
            factor = np.linalg.cholesky(V)
            misfit = max(float(factor[n, :n] @ factor[n, :n]), 1e-300)
            scores[i, j] = -0.5 * n * np.log(misfit / n) - np.log(np.diag(factor)[:n]).sum()
    return scores


def drifting(n: int) -> Array:
    """[n, n] correlation of what drifts."""
    steps = np.arange(n)
    K: Array = np.exp(-np.abs(steps[:, None] - steps) / MEMORY_STEPS)
    return K


def _shapes(points: Array) -> Iterator[tuple[Array, Array, float]]:
    """A bowl [n, n], a roughness [n, n] and its weight, for every rival."""
    u = 2.0 * (points - np.median(points, axis=0))
    far = pairwise_squares(u)
    bowl = _unit((CONSTANT_SHARE + u @ u.T) ** 2)
    typical = float(np.median(far[far > 0.0])) if (far > 0.0).any() else 1.0
    for i, width in enumerate(WIDTHS):
        rough = np.exp(-far / (2.0 * typical * width))
        for weight in ROUGH_WEIGHTS if i else (0.0, *ROUGH_WEIGHTS):
            yield bowl, rough, weight


def shape_of(points: Array) -> tuple[Array, Array]:
    """A bowl [n, n] and any smooth shape [n, n] of points [n, d]."""
    bowl, rough, _ = next(_shapes(points))
    return bowl, rough


def _seeing(blind: Blind, D: Array) -> list[Array]:
    """Covariances [n, n]: the blind one with a part that differs between contexts, weak and strong."""
    changed = np.exp(-D)
    changed *= blind.shape
    return [blind.K + weight * changed for weight in CONTEXT_WEIGHTS]


def _unit(K: Array) -> Array:
    """K with a mean variance of one."""
    unit: Array = K / float(np.mean(np.diag(K)))
    return unit
