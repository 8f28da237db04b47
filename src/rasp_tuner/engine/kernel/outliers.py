"""How far B tuners trust their samples, and which of the first few are false measurements. Symbols as in state.py.

Two false measurements hide each other, so the first samples are not judged one by one: "the k worst are false" are
rival hypotheses, compared by the evidence of a bowl whose steepness and noise are chosen by those that are left. One
Cholesky factor of the samples in order of their y holds the evidence of all of them, for one noise. Were noise a fixed
share of the steepness, many samples near the optimum would make the few that show the bowl look false.

symbol   shape      meaning
b        scalar     tuners that are looked at now
N, n     [b]        rows that any of them uses; rows that each uses
y        [b, N]     target of the samples, in order of time
a        [b, 3, N]  the likeliest curvature of the bowl, for each noise and hypothesis
"""

import math
from typing import NamedTuple

import numpy as np

from rasp_tuner.base.common_constants import ABSURD_DEVIATIONS, CHANGE_IN_A_ROW, EARLY_SAMPLES, FEWEST_SAMPLES
from rasp_tuner.base.numerics import Array
from rasp_tuner.contexts.context_metric import ALIKE
from rasp_tuner.engine.kernel.belief import SlotBelief
from rasp_tuner.engine.kernel.masks import Flags, Rows, assign_where, chunks, column, row_max
from rasp_tuner.engine.kernel.memory import seen_before, triangle
from rasp_tuner.engine.kernel.pooled_prior import (
    COMMON_DEVIATION,
    LEVEL_VARIANCE,
    OPTIMUM_VARIANCE,
    OWN_DEVIATION,
    TINY,
    outliers_found,
)
from rasp_tuner.engine.kernel.state import WINDOW_SAMPLES, Dims, L, Places, State

OUTLIERS_FROM_SAMPLES = 2 * FEWEST_SAMPLES  # on, a single sample may be called false
OUTLIER_ODDS = 1e-2  # prior odds of a false measurement
OUTLIER_ODDS_NEW_SITUATION = 1e-5  # the same in a situation never seen before: it may well be unlike all others
OUTLIER_TRUST = 1e-6  # how much a false measurement counts
OUTLIER, FAILED = 1.0, 2.0  # what is known of an early sample; a failure is no false measurement
LARGEST_RESIDUAL = 1e60  # squared, in units of the usual one: not trusted at all
CHI2_MEDIAN = 0.455  # median of a squared standard normal
BOWL_NOISES = (1e-4, 1e-2, 0.3)  # variances in units of a^2; what situations differ by is noise here
FALSE_IN_A_ROW = CHANGE_IN_A_ROW + 1  # false ones in a row are none: the world has changed
ONE_IN = 3  # no more than one in so many is false
JUDGED = 0.3  # of a kernel: slots that an expert judges


def trust_in_sample(state: State, belief: SlotBelief, logs: Array) -> tuple[Array, Flags]:
    """[B] probability that a sample is no false measurement; and where a second odd one in a row clears both."""
    familiar = row_max(belief.kernels[:, 2])[:, 0] > ALIKE
    odds = np.where(familiar, OUTLIER_ODDS, 0.0 * belief.a + OUTLIER_ODDS_NEW_SITUATION)
    unlike = np.log(odds / (10.0 * np.maximum(state.largest, belief.a)))
    most = row_max(logs)
    mean = (belief.weights * np.exp(logs - most)).sum(axis=1)  # zero if all the weight lies elsewhere
    likely = most[:, 0] + np.log(np.maximum(mean, 1e-300))
    trust = 1.0 / (1.0 + np.exp(np.minimum(unlike - likely, 100.0)))
    trust = np.where(state.steps >= OUTLIERS_FROM_SAMPLES, trust, 1.0)  # before, too little was seen to tell
    odd = trust < 0.5
    cleared = odd & (state.suspected > 0.0)
    state.suspected[...] = odd & ~cleared
    return np.where(cleared, 1.0, trust), cleared


def restore_trust(state: State, mask: Flags) -> None:
    """The latest sample of these tuners was no mistake after all."""
    window = (state.steps - 1.0) % WINDOW_SAMPLES
    for whole, places in ((state.trust.swapaxes(1, 2), state.latest), (state.window_weights, window)):
        at = column(places)
        latest = whole[at]
        assign_where(latest, mask, 1.0)
        whole[at] = latest


def residual_trust(squares: Array, scale: Array) -> Array:
    """One where a squared residual is about `scale`, near zero where it is far beyond."""
    far = np.minimum(squares, LARGEST_RESIDUAL * scale) / (ABSURD_DEVIATIONS**2 * scale)
    return 1.0 / (1.0 + far) ** 2


def targets(dims: Dims, state: State, rows: Rows, n: int) -> Array:
    """[b, n] mean y of the first slots of some tuners, relative to the first sample."""
    losses = state.prompts[rows, :n, dims.features : dims.sample]
    means: Array = np.vecdot(losses, state.weights[rows][:, None]) / np.maximum(state.counts[rows, :n], 1.0)
    return means


def masked_median(values: Array, used: Flags) -> Array:
    """[b] the median of those values [b, N] that are used: at least one."""
    count = used.sum(axis=1)[:, None]
    ordered = np.sort(np.where(used, values, np.inf), axis=1)
    middle = np.concat([(count - 1) // 2, count // 2], axis=1)
    median: Array = 0.5 * np.take_along_axis(ordered, middle, axis=1).sum(axis=1)
    return median


def update_trust(dims: Dims, state: State, belief: SlotBelief, mask: Flags) -> None:
    """Trust each slot by how far it lies from what its expert makes of it, so that outliers count little.

    Tuners in the mask have at least one slot.
    """
    for rows in chunks(mask, L * max(dims.rows, dims.prompt)):
        _update_trust(dims, state, belief, rows)


def _update_trust(dims: Dims, state: State, belief: SlotBelief, rows: Rows) -> None:
    count = state.count[rows]
    n = int(count.max())
    used = (np.arange(n) < count[:, None])[:, None]
    form = np.empty((len(count), L, dims.sample))
    form[:, :, : dims.features], form[:, :, dims.features :] = belief.mean[rows], -state.weights[rows][:, None]
    form[:, :, 0] += belief.offset[rows][:, None]
    above, beside, times = triangle(dims.sample)
    form = form[:, :, above] * form[:, :, beside] * times
    squares = np.maximum(form @ state.prompts[rows, :n].mT, 0.0)
    squares = np.where(used, squares / np.maximum(state.counts[rows, :n], 1.0)[:, None], np.inf)  # mean ones
    kernels, a = belief.kernels[rows, :, :n], belief.a[rows][:, None]
    order = np.argsort(squares, axis=2)
    mass = np.cumulative_sum(np.take_along_axis(kernels, order, axis=2), axis=2)
    half = np.argmax(mass >= 0.5 * mass[:, :, -1:], axis=2)[:, :, None]
    middle = np.take_along_axis(squares, np.take_along_axis(order, half, axis=2), axis=2)
    scale = np.maximum((belief.noises[rows, :L] * a**2)[:, :, None], middle / CHI2_MEDIAN)
    state.trust[rows, :, :n] = np.where(kernels > JUDGED, residual_trust(squares, scale), state.trust[rows, :, :n])


def recheck_early_samples(dims: Dims, state: State, mask: Flags) -> None:
    """Look again at the first samples: a few false ones among them would bend all that is shared."""
    numbers = EARLY_SAMPLES**2 * max(3, dims.context // ONE_IN)
    for rows in chunks(mask & (state.count >= FEWEST_SAMPLES), numbers):
        _recheck(dims, state, rows)


def _recheck(dims: Dims, state: State, rows: Rows) -> None:
    d, count = dims.knobs, state.count[rows]
    n = int(np.max(count))
    used = np.arange(n) < count[:, None]
    samples = FirstSamples(
        u=state.prompts[rows, :n, 1 : 1 + d],
        y=np.where(used, targets(dims, state, rows, n), np.inf),
        counts=count.astype(np.int64)[:, None],
        location=state.location[rows],
        location_variance=state.location_variance[rows],
    )
    known = state.early[rows, :n]
    out, a = early_outliers(samples, _may_be_false(state, rows, samples) & (known != FAILED))
    was = (known == OUTLIER) & used
    for array, usual, if_false in (
        (state.trust.swapaxes(1, 2), 1.0, OUTLIER_TRUST),
        (state.window_weights, 1.0, OUTLIER_TRUST),
        (state.early, 0.0, OUTLIER),
    ):
        now = array[rows, :n]
        false, true = (mask if now.ndim == 2 else mask[:, :, None] for mask in (out, was))
        array[rows, :n] = np.where(false, if_false, np.where(true, usual, now))
    outliers_found(state, rows, np.any(out & ~was, axis=1), a)


class FirstSamples(NamedTuple):
    """The first samples of some tuners, and where they expect optima."""

    u: Array  # [b, N, d]
    y: Array  # [b, N] infinite in rows not in use
    counts: Places  # [b, 1] n
    location: Array  # [b, d]
    location_variance: Array  # [b, d]


def _may_be_false(state: State, rows: Rows, samples: FirstSamples) -> Flags:
    """[b, N] the worst third, but only in situations where something far better was seen before.

    Where all is about as bad, the situation is: nothing says that its level is that of others.
    """
    y, count = samples.y, samples.counts
    n = y.shape[1]
    suspects = count // ONE_IN
    turn = np.arange(n // ONE_IN)
    place = np.minimum(count - suspects + turn, count - 1)
    slots = np.take_along_axis(np.argsort(y, axis=1, stable=True), place, axis=1)
    middle = masked_median(y, np.arange(n) < count)[:, None]
    better = y[:, None] < (0.5 * (np.take_along_axis(y, slots, axis=1) + middle))[:, :, None]
    seen = seen_before(state, rows, slots, better) & (turn < suspects)
    may: Flags = np.any((slots[:, :, None] == np.arange(n)) & seen[:, :, None], axis=1)
    return may


def early_outliers(samples: FirstSamples, may: Flags) -> tuple[Flags, Array]:
    """Which samples [b, N] are false, and the curvature [b] that the others have; only some `may` be."""
    y, count = samples.y, samples.counts
    n = y.shape[1]
    places = np.arange(n)
    used = places < count
    low = np.min(y, axis=1)[:, None]
    size = np.max(np.where(used, y, low), axis=1)[:, None] - low
    told = size > 0.0
    ranked = np.argsort(y, axis=1, stable=True)
    worst = places >= count - count // ONE_IN
    group = np.astype(worst, np.int64) + np.astype(worst & np.take_along_axis(may, ranked, axis=1), np.int64)
    group = np.where(used, group, 3)
    order = np.take_along_axis(ranked, np.argsort(group, axis=1, stable=True), axis=1)
    z = np.where(used, y - masked_median(y, used)[:, None], 0.0) / np.where(told, size, 1.0)
    z = np.take_along_axis(z, order, axis=1)
    lower = _factor(samples, order, used, z)
    by_y, by_prior = lower[:, :, n, :n], lower[:, :, n + 1, :n]
    q = places + 1.0 * np.ones_like(z[:1])
    square, linear, shift = (np.cumulative_sum(product, axis=2) for product in (by_y**2, by_y * by_prior, by_prior**2))
    a = np.maximum((np.sqrt(linear**2 + 4.0 * q * square) - linear) / (2.0 * q), TINY)
    evidence = linear / a - 0.5 * square / a**2 - 0.5 * shift - q * np.log(a)
    determinant = np.cumulative_sum(np.log(np.linalg.diagonal(lower)[:, :, :n]), axis=2)
    evidence -= determinant + 0.5 * math.log(2.0 * math.pi) * q
    evidence += ((count - q) * math.log(OUTLIER_ODDS))[:, None]  # false ones lie anywhere within the range of y
    alike = np.cumulative_sum(np.astype(z != z[:, :1], np.int64), axis=1) == 0
    most = (group == 2).sum(axis=1)[:, None]
    # what is constant, as a metric of zeros and ones, says nothing
    ruled_out = ~used | alike | (places < count - most - 1)
    evidence = np.reshape(np.where(ruled_out[:, None], -np.inf, evidence), (len(y), -1))
    best = np.argmax(evidence, axis=1)[:, None]
    false = told & used & (places > best % n)
    false = np.take_along_axis(false, np.argsort(order, axis=1), axis=1)
    curvature = (np.take_along_axis(np.reshape(a, evidence.shape), best, axis=1) * size)[:, 0]
    return _unless_in_a_row(samples, may, false, curvature)


def _unless_in_a_row(samples: FirstSamples, may: Flags, false: Flags, a: Array) -> tuple[Flags, Array]:
    """The same, where no few in a row are false; else looked at again, without them."""
    n = false.shape[1] - FALSE_IN_A_ROW + 1
    begin = false[:, :n]
    for shift in range(1, FALSE_IN_A_ROW):
        begin = begin & false[:, shift : n + shift]
    rows = np.any(begin, axis=1)
    if not rows.any():
        return false, a
    honest = np.zeros_like(false)
    for shift in range(FALSE_IN_A_ROW):
        honest[:, shift : n + shift] |= begin
    u, y, counts, location, variance = samples
    some = FirstSamples(u[rows], y[rows], counts[rows], location[rows], variance[rows])
    again = early_outliers(some, (may & ~honest)[rows])
    false[rows], a[rows] = again
    return false, a


def _factor(samples: FirstSamples, order: Places, used: Flags, z: Array) -> Array:
    """[b, 3, N + 2, N + 2] Cholesky factors of how samples covary under the prior of a tuner without any, and noise.

    Two rows more come last: the factor has there what solving for z, and for the mean of the prior, would give.
    """
    (u, _, _, where, unsure), n = samples, z.shape[1]
    u = np.take_along_axis(u, np.broadcast_to(order[:, :, None], u.shape), axis=1)
    squares = u**2
    common = COMMON_DEVIATION * squares.sum(axis=2)[:, :, None]
    linear = np.sqrt(unsure / OPTIMUM_VARIANCE)[:, None] * u
    level = np.full_like(common, math.sqrt(LEVEL_VARIANCE))
    f = np.where(used[:, :, None], np.concat([level, linear, OWN_DEVIATION * squares, common], axis=2), 0.0)
    expected = (unsure + where**2).sum(axis=1)[:, None] + (squares - 2.0 * where[:, None] * u).sum(axis=2)
    sides = np.stack([z, np.where(used, expected, 0.0)], axis=1)
    noises = np.stack([np.full_like(z[:, 0], noise) for noise in BOWL_NOISES], axis=1)[:, :, None]
    covariance = np.zeros((len(z), len(BOWL_NOISES), n + 2, n + 2))
    covariance[:, :, :n, :n] = (f @ f.mT)[:, None]
    covariance[:, :, n:, :n] = sides[:, None]
    covariance[:, :, :n, n:] = sides.mT[:, None]
    diagonal = np.reshape(covariance, (len(z), len(BOWL_NOISES), -1))[:, :, :: n + 3]  # a view
    diagonal[:, :, :n] += noises
    diagonal[:, :, n:] = 1.0 + 2.0 * (sides**2).sum(axis=2)[:, None] / noises  # enough for a factor to exist
    return np.linalg.cholesky(covariance)
