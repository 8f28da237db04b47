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

from rasp_tuner.engine.kernel.belief import Belief
from rasp_tuner.engine.kernel.memory import seen_before, triangle
from rasp_tuner.engine.kernel.namespace import namespace
from rasp_tuner.engine.kernel.select import Mask, Rows, chosen, chunks, top, uniform, uniform_if_cheap
from rasp_tuner.engine.kernel.shared import (
    COMMON_DEVIATION,
    LEVEL_VARIANCE,
    OPTIMUM_VARIANCE,
    OWN_DEVIATION,
    TINY,
    outliers_found,
)
from rasp_tuner.engine.kernel.state import EARLY_SAMPLES, Dims, L, State, Tensor

OUTLIERS_FROM_SAMPLES = 8  # on, a single sample may be called false
OUTLIER_ODDS = 1e-2  # prior odds of a false measurement
OUTLIER_ODDS_NEW_SITUATION = 1e-5  # the same in a situation never seen before: it may well be unlike all others
FAMILIAR = 0.5  # of the wide kernel: likeness from which on a situation was seen before
OUTLIER_TRUST = 1e-6  # how much a false measurement counts
OUTLIER, FAILED = 1.0, 2.0  # what is known of an early sample; a failure is no false measurement
OUTLYING_DEVIATIONS = 5.0  # at which a sample counts a quarter
LARGEST_RESIDUAL = 1e60  # squared, in units of the usual one: not trusted at all
CHI2_MEDIAN = 0.455  # median of a squared standard normal
BOWL_NOISES = (1e-4, 1e-2, 0.3)  # variances in units of a^2; what situations differ by is noise here
ROW_SAMPLES = 3  # false ones in a row are none: the world has changed
FEWEST_SAMPLES = 4  # samples that can say anything
ONE_IN = 3  # no more than one in so many is false
ALIKE = 0.3  # of a kernel: slots that an expert judges


def trust_in_sample(state: State, belief: Belief, logs: Tensor, mature: Mask) -> tuple[Tensor, Mask]:
    """[B] probability that a sample is no false measurement; and where a second odd one in a row clears both.

    Only tuners that are `mature` have seen enough to tell.
    """
    xp = namespace(logs)
    familiar = top(belief.kernels[:, 2])[:, 0] > FAMILIAR
    odds = xp.where(familiar, OUTLIER_ODDS, 0.0 * belief.a + OUTLIER_ODDS_NEW_SITUATION)
    unlike = xp.log(odds / (10.0 * xp.maximum(state.largest, belief.a)))
    most = top(logs)
    mean = (belief.weights * xp.exp(logs - most)).sum(axis=1)  # zero if all the weight lies elsewhere
    likely = most[:, 0] + xp.log(xp.maximum(mean, 1e-300))
    trust = 1.0 / (1.0 + xp.exp(xp.minimum(unlike - likely, 100.0)))
    if mature is not True:
        trust = xp.where(mature, trust, 1.0)
    odd = trust < 0.5
    if uniform_if_cheap(odd) is False:
        state.suspected[...] = 0.0
        return trust, False
    cleared = odd & (state.suspected > 0.0)
    state.suspected[...] = xp.astype(odd & ~cleared, trust.dtype)
    return xp.where(cleared, 1.0, trust), cleared


def residual_trust(squares: Tensor, scale: Tensor) -> Tensor:
    """One where a squared residual is about `scale`, near zero where it is far beyond."""
    far = namespace(squares).minimum(squares, LARGEST_RESIDUAL * scale) / (OUTLYING_DEVIATIONS**2 * scale)
    return 1.0 / (1.0 + far) ** 2


def targets(dims: Dims, state: State, rows: Rows, n: int) -> Tensor:
    """[b, n] mean y of the first slots of some tuners, relative to the first sample."""
    xp, losses = namespace(state.prompts), state.prompts[rows, :n, dims.features : dims.sample]
    return xp.vecdot(losses, state.weights[rows][:, None]) / xp.maximum(state.counts[rows, :n], 1.0)


def masked_median(values: Tensor, used: Tensor) -> Tensor:
    """[b] the median of those values [b, N] that are used: at least one."""
    xp, count = namespace(values), used.sum(axis=1)[:, None]
    ordered = xp.sort(xp.where(used, values, xp.inf), axis=1)
    middle = xp.concat([(count - 1) // 2, count // 2], axis=1)
    return 0.5 * xp.take_along_axis(ordered, middle, axis=1).sum(axis=1)


def update_trust(dims: Dims, state: State, belief: Belief, mask: Mask, n: int) -> None:
    """Trust each slot by how far it lies from what its expert makes of it, so that outliers count little.

    Tuners in the mask have at least one slot, and n at most.
    """
    for rows in chunks(mask, state.size, L * max(dims.rows, dims.prompt)):
        _update_trust(dims, state, belief, rows, n)


def _update_trust(dims: Dims, state: State, belief: Belief, rows: Rows, n: int) -> None:
    xp, count = namespace(state.trust), state.count[rows]
    used = (xp.arange(n, device=count.device) < count[:, None])[:, None]
    form = xp.empty((len(count), L, dims.sample), dtype=count.dtype, device=count.device)
    form[:, :, : dims.features], form[:, :, dims.features :] = belief.mean[rows], -state.weights[rows][:, None]
    form[:, :, 0] += belief.offset[rows][:, None]
    above, beside, times = triangle(dims.sample, xp, form.device)
    form = form[:, :, above] * form[:, :, beside] * times
    squares = xp.maximum(form @ state.prompts[rows, :n].mT, 0.0)
    squares = xp.where(used, squares / xp.maximum(state.counts[rows, :n], 1.0)[:, None], xp.inf)  # mean ones
    kernels, a = belief.kernels[rows, :, :n], belief.a[rows][:, None]
    order = _order(squares)
    mass = xp.cumulative_sum(xp.take_along_axis(kernels, order, axis=2), axis=2)
    half = xp.argmax(xp.astype(mass >= 0.5 * mass[:, :, -1:], xp.int8), axis=2)[:, :, None]
    middle = xp.take_along_axis(squares, xp.take_along_axis(order, half, axis=2), axis=2)
    scale = xp.maximum((belief.noises[rows, :L] * a**2)[:, :, None], middle / CHI2_MEDIAN)
    state.trust[rows, :, :n] = xp.where(kernels > ALIKE, residual_trust(squares, scale), state.trust[rows, :, :n])


def _order(values: Tensor) -> Tensor:
    """[b, L, n] the places of values that are not negative, from small to large; equal ones in any order.

    A GPU sorts 800 numbers as fast as 200, so there all experts are sorted in one row. The bits of such floats are in
    their order; values that differ in the last two only are equal here.
    """
    xp, (size, _, n) = namespace(values), values.shape
    if xp is np:
        return np.argsort(values, axis=2)
    expert = xp.arange(L, device=values.device)[:, None] << 61
    bits = ((values + 0.0).view(xp.int64) >> 2) + expert  # + 0.0: never -0.0
    return xp.argsort(bits.reshape((size, L * n)), axis=1).reshape(values.shape) % n


def recheck_early_samples(dims: Dims, state: State, mask: Mask) -> None:
    """Look again at the first samples: a few false ones among them would bend all that is shared."""
    numbers = EARLY_SAMPLES**2 * max(3, dims.context // ONE_IN)
    for rows in chunks(mask & (state.count >= FEWEST_SAMPLES), state.size, numbers):
        _recheck(dims, state, rows)


def _recheck(dims: Dims, state: State, rows: Rows) -> None:
    xp, d, count = namespace(state.early), dims.knobs, state.count[rows]
    n = int(xp.max(count))
    used = xp.arange(n, device=count.device) < count[:, None]
    samples = Samples(
        u=state.prompts[rows, :n, 1 : 1 + d],
        y=xp.where(used, targets(dims, state, rows, n), xp.inf),
        count=xp.astype(count, xp.int64)[:, None],
        location=state.location[rows],
        location_variance=state.location_variance[rows],
    )
    known = state.early[rows, :n]
    out, a = early_outliers(samples, _may_be_false(state, rows, samples) & (known != FAILED))
    was = (known == OUTLIER) & used
    if uniform(xp.any(out | was, axis=1)) is False:
        return
    for array, usual, if_false in (
        (state.trust.swapaxes(1, 2), 1.0, OUTLIER_TRUST),
        (state.window_weights, 1.0, OUTLIER_TRUST),
        (state.early, 0.0, OUTLIER),
    ):
        now = array[rows, :n]
        false, true = (mask if now.ndim == 2 else mask[:, :, None] for mask in (out, was))
        array[rows, :n] = xp.where(false, if_false, xp.where(true, usual, now))
    outliers_found(state, rows, xp.any(out & ~was, axis=1), a)


class Samples(NamedTuple):
    """The first samples of some tuners, and where they expect optima."""

    u: Tensor  # [b, N, d]
    y: Tensor  # [b, N] infinite in rows not in use
    count: Tensor  # [b, 1] n, an integer
    location: Tensor  # [b, d]
    location_variance: Tensor  # [b, d]


def _may_be_false(state: State, rows: Rows, samples: Samples) -> Tensor:
    """[b, N] the worst third, but only in situations that were seen before."""
    xp, y, count = namespace(samples.y), samples.y, samples.count
    n = y.shape[1]
    suspects = count // ONE_IN
    turn = xp.arange(n // ONE_IN, device=y.device)
    place = xp.minimum(count - suspects + turn, count - 1)
    slots = xp.take_along_axis(xp.argsort(y, axis=1, stable=True), place, axis=1)
    seen = seen_before(state, rows, slots, n) & (turn < suspects)
    return xp.any((slots[:, :, None] == xp.arange(n, device=y.device)) & seen[:, :, None], axis=1)


def early_outliers(samples: Samples, may: Tensor) -> tuple[Tensor, Tensor]:
    """Which samples [b, N] are false, and the curvature [b] that the others have; only some `may` be."""
    y, count = samples.y, samples.count
    xp, n, device = namespace(y), y.shape[1], y.device
    places = xp.arange(n, device=device)
    used = places < count
    low = xp.min(y, axis=1)[:, None]
    size = xp.max(xp.where(used, y, low), axis=1)[:, None] - low
    told = size > 0.0
    ranked = xp.argsort(y, axis=1, stable=True)
    worst = places >= count - count // ONE_IN
    group = xp.astype(worst, xp.int64) + xp.astype(worst & xp.take_along_axis(may, ranked, axis=1), xp.int64)
    group = xp.where(used, group, 3)
    order = xp.take_along_axis(ranked, xp.argsort(group, axis=1, stable=True), axis=1)
    z = xp.where(used, y - masked_median(y, used)[:, None], 0.0) / xp.where(told, size, 1.0)
    z = xp.take_along_axis(z, order, axis=1)
    lower = _factor(samples, order, used, z)
    by_y, by_prior = lower[:, :, n, :n], lower[:, :, n + 1, :n]
    q = places + 1.0 * xp.ones_like(z[:1])
    square, linear, shift = (xp.cumulative_sum(product, axis=2) for product in (by_y**2, by_y * by_prior, by_prior**2))
    a = xp.maximum((xp.sqrt(linear**2 + 4.0 * q * square) - linear) / (2.0 * q), TINY)
    evidence = linear / a - 0.5 * square / a**2 - 0.5 * shift - q * xp.log(a)
    determinant = xp.cumulative_sum(xp.log(xp.linalg.diagonal(lower)[:, :, :n]), axis=2)
    evidence -= determinant + 0.5 * math.log(2.0 * math.pi) * q
    evidence += ((count - q) * math.log(OUTLIER_ODDS))[:, None]  # false ones lie anywhere within the range of y
    alike = xp.cumulative_sum(xp.astype(z != z[:, :1], xp.int64), axis=1) == 0
    most = (group == 2).sum(axis=1)[:, None]
    # what is constant, as a metric of zeros and ones, says nothing
    ruled_out = ~used | alike | (places < count - most - 1)
    evidence = xp.reshape(xp.where(ruled_out[:, None], -xp.inf, evidence), (len(y), -1))
    best = xp.argmax(evidence, axis=1)[:, None]
    false = told & used & (places > best % n)
    false = xp.take_along_axis(false, xp.argsort(order, axis=1), axis=1)
    curvature = (xp.take_along_axis(xp.reshape(a, evidence.shape), best, axis=1) * size)[:, 0]
    return _unless_in_a_row(samples, may, false, curvature)


def _unless_in_a_row(samples: Samples, may: Tensor, false: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """The same, where no few in a row are false; else looked at again, without them."""
    xp, n = namespace(false), false.shape[1] - ROW_SAMPLES + 1
    begin = false[:, :n]
    for shift in range(1, ROW_SAMPLES):
        begin = begin & false[:, shift : n + shift]
    rows = chosen(xp.any(begin, axis=1))
    if rows is None:
        return false, a
    honest = xp.zeros_like(false)
    for shift in range(ROW_SAMPLES):
        honest[:, shift : n + shift] |= begin
    again = early_outliers(Samples(*(array[rows] for array in samples)), (may & ~honest)[rows])
    false[rows], a[rows] = again
    return false, a


def _factor(samples: Samples, order: Tensor, used: Tensor, z: Tensor) -> Tensor:
    """[b, 3, N + 2, N + 2] Cholesky factors of how samples covary under the prior of a tuner without any, and noise.

    Two rows more come last: the factor has there what solving for z, and for the mean of the prior, would give.
    """
    (u, _, _, where, unsure), xp, n = samples, namespace(z), z.shape[1]
    u = xp.take_along_axis(u, xp.broadcast_to(order[:, :, None], u.shape), axis=1)
    squares = u**2
    common = COMMON_DEVIATION * squares.sum(axis=2)[:, :, None]
    linear = xp.sqrt(unsure / OPTIMUM_VARIANCE)[:, None] * u
    level = xp.full_like(common, math.sqrt(LEVEL_VARIANCE))
    f = xp.where(used[:, :, None], xp.concat([level, linear, OWN_DEVIATION * squares, common], axis=2), 0.0)
    expected = (unsure + where**2).sum(axis=1)[:, None] + (squares - 2.0 * where[:, None] * u).sum(axis=2)
    sides = xp.stack([z, xp.where(used, expected, 0.0)], axis=1)
    noises = xp.stack([xp.full_like(z[:, 0], noise) for noise in BOWL_NOISES], axis=1)[:, :, None]
    covariance = xp.zeros((len(z), len(BOWL_NOISES), n + 2, n + 2), dtype=z.dtype, device=z.device)
    covariance[:, :, :n, :n] = (f @ f.mT)[:, None]
    covariance[:, :, n:, :n] = sides[:, None]
    covariance[:, :, :n, n:] = sides.mT[:, None]
    diagonal = xp.reshape(covariance, (len(z), len(BOWL_NOISES), -1))[:, :, :: n + 3]  # a view
    diagonal[:, :, :n] += noises
    diagonal[:, :, n:] = 1.0 + 2.0 * (sides**2).sum(axis=2)[:, None] / noises  # enough for a factor to exist
    return xp.linalg.cholesky(covariance)
